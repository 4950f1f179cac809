"""Replays the models: which model each name was resolved to, its replies and failures, their cost, and the state of
its circuit breaker."""

import asyncio
from typing import Any

import msgspec

from treadle.core.context.tokens import CHARACTERS_PER_TOKEN
from treadle.core.retry import MAX_DELAY_MS, MIN_DELAY_SHARE
from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.messages import Message
from treadle.domain.models import Prices, Profile
from treadle.domain.quotas import Shortage
from treadle.domain.runs import Usage
from treadle.ports.model import (
    BreakerChange,
    Completed,
    Failed,
    ModelRequest,
    ReasoningDelta,
    RecordedReply,
    Resolved,
    Show,
    TextDelta,
)
from treadle.replay.recorded_summaries import RecordedSummaries
from treadle.replay.script import Script

UNRECORDED_PROVIDER = "not-on-record"


def make_profile_type(script: Script, credits_per_dollar: float) -> type[Profile]:
    """Return a profile that takes the cost of each call from the journal, since prices are not recorded."""

    class RecordedProfile(Profile, frozen=True, omit_defaults=True):
        def cost(self, usage: Usage) -> float | None:
            for data in script.list_upcoming():
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
                        return (wanted / credits_per_dollar or None) if kind == "credits" else 0.0
                    case e.RunWaiting("budget", shortage=Shortage() as short):
                        return _compute_wanted_dollars(short, credits_per_dollar)
                    case _:
                        pass
            return None

    return RecordedProfile


def _compute_wanted_dollars(short: Shortage, credits_per_dollar: float) -> float | None:
    """Return the cost of the call that a run waited to make; None if no price was known."""
    if short.wanted is None:
        return None
    return {"cost": short.wanted, "credits": short.wanted / credits_per_dollar}.get(short.kind, 0.0)


class RecordedModels:
    """Implements `ports.model.Models`."""

    def __init__(self, script: Script, agent: AgentSpec, credits_per_dollar: float) -> None:
        self._script = script
        self._agent = agent
        self._profile = make_profile_type(script, credits_per_dollar)
        self.client = RecordedModel(script, agent)
        self._breaker = RecordedBreaker(script)

    def resolve(self, model: str, provider: str | None) -> Resolved:
        if (writer := self._find_writer(model)) is not None:
            return self._make_resolved(e.ModelResolved(writer.provider, writer.model, "", ""))
        found = self._find_next(model) or self._find_current(model)
        return self._make_resolved(found or e.ModelResolved(UNRECORDED_PROVIDER, model, "", ""))

    def _make_resolved(self, found: e.ModelResolved) -> Resolved:
        facts: dict[str, Any] = msgspec.structs.asdict(found.profile)
        facts["prices"] = Prices(0.0, 0.0)
        profile = self._profile(**facts)
        reason = found.reason if found.choice is None else found.resolution
        return Resolved(
            provider=found.provider,
            model=found.model,
            api_mode=found.api_mode,
            reason=reason,
            client=self.client,
            breaker=self._breaker,
            profile=profile,
        )

    def _find_writer(self, name: str) -> e.CompactionStarted | None:
        """Return the model that writes the next summary, if the agent names one for it."""
        if name == self._agent.compaction.model:
            for data in self._script.list_upcoming():
                if isinstance(data, e.CompactionStarted):
                    return data
                if not isinstance(data, e.BudgetReserved):
                    return None
        return None

    def _find_next(self, name: str) -> e.ModelResolved | None:
        """Return the resolution that is recorded next, or None. Raise UsageError if the name was not resolved."""
        for data in self._script.list_upcoming():
            match data:
                case e.ModelResolved(route=route) if route in (name, ""):
                    return data
                case e.RunWaiting("unavailable", detail):
                    raise UsageError(detail)
                case e.LlmFallback(reason=reason) if self._is_falling_back:
                    raise UsageError(reason)
                case e.LlmError(no_fallback=reason) if reason:
                    raise UsageError(reason)
                case e.RunStart() | e.RunRecovered() | e.StepEnd():
                    pass
                case _:
                    return None
        return None

    @property
    def _is_falling_back(self) -> bool:
        """Whether the engine is looking for a fallback."""
        return isinstance(self._script.find_last_draft(), e.LlmFallback)

    def _find_current(self, name: str) -> e.ModelResolved | None:
        """Return the latest resolution of the name."""
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
        for data in self._script.list_upcoming():
            match data:
                case e.RunWaiting("breaker", breaker_seconds=seconds):
                    return seconds or 0.0
                case e.LlmFallback(breaker_seconds=float() as seconds):
                    return seconds
                case e.ModelResolved():
                    return 1.0
                case _:
                    return None
        return None

    def record(self, failed: bool, now: float, who: str = "") -> BreakerChange | None:
        for data in self._script.list_upcoming():
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
        """Do nothing: the journal does not record it."""


class RecordedModel:
    """Implements `ports.model.Model`. Gives the recorded reply. If none is recorded, it never replies."""

    def __init__(self, script: Script, agent: AgentSpec) -> None:
        self._script = script
        self._agent = agent
        self._writer = RecordedSummaries(script)

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        script, began = self._script, self._script.monotonic
        if isinstance(started := script.find_last_draft(), e.CompactionStarted):
            return await self._writer.reply(request, started)
        await script.read_early()
        for data in script.list_upcoming():
            match data:
                case e.LlmResponse(stop="interrupted"):
                    self._begin_reply(data, show)
                    break
                case e.LlmResponse(parts=parts, first_token_ms=first, duration_ms=duration):
                    if first is not None:
                        script.monotonic = began + first / 1000
                        show(TextDelta(Message("assistant", parts).text))
                    script.monotonic = began + duration / 1000
                    return RecordedReply(
                        parts=parts,
                        stop=data.stop,
                        usage=data.usage,
                        raw_stop=data.raw_stop,
                        dropped_calls=data.dropped_calls,
                        excess_calls=data.excess_calls,
                        refusal=data.refusal,
                        window_full=data.window_full,
                    )
                case e.LlmError(duration_ms=duration):
                    script.monotonic = began + duration / 1000
                    return self._make_failure(data)
                case e.Redacted():
                    pass
                case _:
                    break
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the future is never done; the task is cancelled")

    def _begin_reply(self, data: e.LlmResponse, show: Show) -> None:
        """Stream the received part of an interrupted reply. Its size tells how much of it was reasoning."""
        began = self._script.monotonic
        said = Message("assistant", data.parts).text
        if data.first_token_ms is not None:
            self._script.monotonic = began + data.first_token_ms / 1000
            show(TextDelta(said))
        unseen = data.usage.output_tokens * CHARACTERS_PER_TOKEN - len(said)
        if unseen > 0:
            show(ReasoningDelta("." * unseen))
        self._script.monotonic = began + data.duration_ms / 1000

    def _make_failure(self, data: e.LlmError) -> Failed:
        return Failed(
            kind=data.kind,
            message=data.message,
            retryable=data.retryable,
            status=data.status,
            retry_after=data.asked_wait,
            usage=data.usage,
            compact=data.compact and not data.guessed,
            repair=data.repair,
            next_key=data.next_key,
            next_model=data.next_model,
            wants_reasoning=data.wants_reasoning,
            refuses_schema=data.refuses_schema,
            once=data.once,
            longest_reply=data.longest_reply,
            unclear=data.guessed,
            filtered=data.filtered,
        )

    def _max_delay_ms(self, failures: int) -> float:
        """Return the maximum delay of a retry for which the provider asked no wait."""
        return min(MAX_DELAY_MS, self._agent.retry.base_ms * 2**failures)

    def _find_retry(self) -> e.LlmRetry | None:
        """Return the retry after the next failure, or None."""
        for data in self._script.list_upcoming():
            match data:
                case e.LlmRetry():
                    return data
                case e.Redacted() | e.LlmError():
                    pass
                case _:
                    return None
        return None

    def draw_random(self) -> float:
        """Return the random number that gives the recorded delay of the next retry."""
        retry, longest = self._find_retry(), self._max_delay_ms(self._script.state().attempts.failures)
        if retry is None or not longest:
            return 0.0
        return max(0.0, min(1.0, (retry.delay_ms / longest - MIN_DELAY_SHARE) / (1 - MIN_DELAY_SHARE)))
