"""Models that say again what was said: which one a name stood for, what it answered, what it cost, and whether it
was left alone."""

import asyncio
import re
from typing import Any

import msgspec

from treadle.core.context.tokens import CHARACTERS_PER_TOKEN
from treadle.core.retry import LINEAR_STEP_MS, MAX_DELAY_MS, MIN_DELAY_SHARE
from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.messages import Message
from treadle.domain.models import Prices, Profile
from treadle.domain.runs import Usage
from treadle.ports.model import (
    BreakerChange,
    Completed,
    Failed,
    ModelRequest,
    ReasoningDelta,
    Resolved,
    Show,
    TextDelta,
)
from treadle.replay.recorded_summaries import RecordedSummaries
from treadle.replay.script import Script
from treadle.replay.sentence_facts import dollars_wanted, seconds_left_alone

NO_FALLBACK = "No fallback could take over: "
NOT_ON_RECORD = "not-on-record"
_ROUTED = re.compile(r"^(?:a fallback|complexity .*?: the (?:last tier|tier up to \S+))(?:; |$)")
"""Why the loop itself looked for that name: it will say so again."""


def priced(script: Script, per_dollar: float) -> type[Profile]:
    """A profile whose prices nobody knows any more: what each call cost is on record instead, or what it would have
    cost that was not paid for."""

    class RecordedProfile(Profile, frozen=True, omit_defaults=True):
        def cost(self, usage: Usage) -> float | None:
            for data in script.upcoming():
                match data:
                    case e.LlmRequest(cost_estimate=cost) | e.CompactionStarted(cost_estimate=cost):
                        return cost
                    case e.LlmResponse(cost=cost) | e.LlmError(cost=cost):
                        return cost
                    case e.ContextCompacted(cost=cost) | e.CompactionFailed(cost=cost):
                        return cost
                    case e.BudgetExhausted(wanted=wanted):
                        return wanted or None
                    case e.QuotaExceeded(kind=kind, wanted=wanted):
                        return (wanted / per_dollar or None) if kind == "credits" else 0.0
                    case e.RunWaiting("budget", detail):
                        return dollars_wanted(detail, per_dollar)
                    case _:
                        pass
            return None

    return RecordedProfile


class RecordedModels:
    """Implements `ports.model.Models`."""

    def __init__(self, script: Script, agent: AgentSpec, per_dollar: float) -> None:
        self._script = script
        self._agent = agent
        self._profile = priced(script, per_dollar)
        self.client = RecordedModel(script, agent)
        self._breaker = RecordedBreaker(script)

    def resolve(self, model: str, provider: str | None) -> Resolved:
        if (writer := self._writer(model)) is not None:
            return self._resolved(e.ModelResolved(writer.provider, writer.model, "", ""))
        found = self._found_next(model) or self._in_force(model)
        return self._resolved(found or e.ModelResolved(NOT_ON_RECORD, model, "", ""))

    def _resolved(self, found: e.ModelResolved) -> Resolved:
        facts: dict[str, Any] = msgspec.structs.asdict(found.profile)
        facts["prices"] = Prices(0.0, 0.0)
        profile = self._profile(**facts)
        reason = _ROUTED.sub("", found.reason)
        return Resolved(found.provider, found.model, found.api_mode, reason, self.client, self._breaker, profile)

    def _writer(self, name: str) -> e.CompactionStarted | None:
        """Who writes the summary that comes next, where the agent names somebody for that."""
        if name == self._agent.compaction.model:
            for data in self._script.upcoming():
                if isinstance(data, e.CompactionStarted):
                    return data
                if not isinstance(data, e.BudgetReserved):
                    return None
        return None

    def _found_next(self, name: str) -> e.ModelResolved | None:
        """What the name was found to stand for, where that was news. Raises UsageError where nothing was found."""
        for data in self._script.upcoming():
            match data:
                case e.ModelResolved(route=route) if route in (name, ""):
                    return data
                case e.RunWaiting("unavailable", detail):
                    raise UsageError(detail)
                case e.LlmFallback(reason=reason) if self._is_taken_over:
                    raise UsageError(reason)
                case e.LlmError(message=message) if self._is_taken_over and NO_FALLBACK in message:
                    raise UsageError(message.partition(NO_FALLBACK)[2])
                case e.RunStart() | e.RunRecovered() | e.StepEnd():
                    pass
                case _:
                    return None
        return None

    @property
    def _is_taken_over(self) -> bool:
        """Whether a model has just been given up, so that another is looked for."""
        return isinstance(self._script.written_last(), e.LlmFallback)

    def _in_force(self, name: str) -> e.ModelResolved | None:
        """What the name stood for when it was last looked for."""
        found = None
        for event in self._script.events[: self._script.committed]:
            if isinstance(event.data, e.ModelResolved) and event.data.route in (name, ""):
                found = event.data
        return found


class RecordedBreaker:
    """Implements `ports.model.Breaker`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def wait(self, now: float, who: str = "") -> float | None:
        for data in self._script.upcoming():
            match data:
                case e.RunWaiting("breaker", detail, wake_at):
                    return self._left(detail, wake_at)
                case e.LlmFallback(reason=reason) if (told := seconds_left_alone(reason)) is not None:
                    return float(told)
                case e.ModelResolved():
                    return 1.0
                case _:
                    return None
        return None

    def _left(self, detail: str, wake_at: float | None) -> float:
        told = seconds_left_alone(detail) or 0
        left = 0.0 if wake_at is None else wake_at - self._script.now()
        return left if f"{left:.0f}" == f"{told}" else float(told)

    def record(self, failed: bool, now: float, who: str = "") -> BreakerChange | None:
        for data in self._script.upcoming():
            match data:
                case e.BreakerOpened():
                    return "opened"
                case e.BreakerClosed():
                    return "closed"
                case e.Redacted() | e.LlmResponse() | e.LlmError() | e.LlmRetry():
                    pass
                case _:
                    return None
        return None

    def abandon(self, who: str = "") -> None:
        """Nobody need know."""


class RecordedModel:
    """Answers what was answered. Where nothing was, it never does. Implements `ports.model.Model`."""

    def __init__(self, script: Script, agent: AgentSpec) -> None:
        self._script = script
        self._agent = agent
        self._writer = RecordedSummaries(script)

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        script, began = self._script, self._script.monotonic
        if isinstance(started := script.written_last(), e.CompactionStarted):
            return await self._writer.reply(request, started)
        for data in script.upcoming():
            match data:
                case e.LlmResponse(stop="interrupted"):
                    self._begin_to_say(data, show)
                    break
                case e.LlmResponse(parts=parts, first_token_ms=first, duration_ms=duration):
                    if first is not None:
                        script.monotonic = began + first / 1000
                        show(TextDelta(Message("assistant", parts).text))
                    script.monotonic = began + duration / 1000
                    return Completed(parts, data.stop, data.usage, data.raw_stop, data.dropped_calls)
                case e.LlmError(duration_ms=duration):
                    script.monotonic = began + duration / 1000
                    return self._failed(data)
                case e.Redacted():
                    pass
                case _:
                    break
        await asyncio.get_running_loop().create_future()
        raise AssertionError("what never ends is ended by others")

    def _begin_to_say(self, data: e.LlmResponse, show: Show) -> None:
        """What was heard before somebody did not want to hear more; its length says how much of it was thoughts."""
        began = self._script.monotonic
        said = Message("assistant", data.parts).text
        if data.first_token_ms is not None:
            self._script.monotonic = began + data.first_token_ms / 1000
            show(TextDelta(said))
        unseen = data.usage.output_tokens * CHARACTERS_PER_TOKEN - len(said)
        if unseen > 0:
            show(ReasoningDelta("." * unseen))
        self._script.monotonic = began + data.duration_ms / 1000

    def _failed(self, data: e.LlmError) -> Failed:
        return Failed(
            data.kind,
            data.message,
            data.retryable,
            data.status,
            self._asked_wait(data),
            data.usage,
            data.compact and not data.guessed,
            data.repair,
            data.next_key,
            data.next_model,
            data.wants_reasoning,
            data.once,
            data.longest_reply,
            data.guessed,
        )

    def _asked_wait(self, error: e.LlmError) -> float | None:
        """The wait that the provider must have asked for, as nothing else explains what was done then."""
        if error.asked_wait is not None:
            return error.asked_wait
        if error.next_key or error.repair or not error.retryable or error.longest_reply is not None:
            return None
        failures, policy = self.failures(), self._agent.retry
        retry = self.retry()
        if retry is None:
            return policy.longest_wait_seconds + 1 if failures < policy.attempts and not error.once else None
        if policy.schedule == "linear":
            return None if retry.delay_ms == LINEAR_STEP_MS * failures else retry.delay_ms / 1000
        longest = self.longest(failures)
        return None if int(longest * MIN_DELAY_SHARE) <= retry.delay_ms <= longest else retry.delay_ms / 1000

    def longest(self, failures: int) -> float:
        """Milliseconds that a retry is put off at most, where nobody asks for a wait."""
        return min(MAX_DELAY_MS, self._agent.retry.base_ms * 2**failures)

    def retry(self) -> e.LlmRetry | None:
        """The retry that follows the failure that comes next."""
        for data in self._script.upcoming():
            match data:
                case e.LlmRetry():
                    return data
                case e.Redacted() | e.LlmError():
                    pass
                case _:
                    return None
        return None

    def failures(self) -> int:
        """How many attempts have failed in a row."""
        found = 0
        for event in reversed(self._script.events[: self._script.committed]):
            match event.data:
                case e.LlmResponse() | e.LlmFallback() | e.ContextCompacted() | e.ContextTrimmed():
                    break
                case e.LlmError(next_key=False, repair=False, longest_reply=None):
                    found += 1
                case _:
                    pass
        return found

    def chance(self) -> float:
        """The number that was drawn for the retry that comes next."""
        retry, longest = self.retry(), self.longest(self.failures())
        if retry is None or not longest:
            return 0.0
        return max(0.0, min(1.0, (retry.delay_ms / longest - MIN_DELAY_SHARE) / (1 - MIN_DELAY_SHARE)))
