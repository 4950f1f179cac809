"""One model call: the reply, heard to its end or to where it was cut, and what is put on record of it."""

from typing import Literal

import msgspec

from treadle.core.context.budget import may_be_too_long
from treadle.core.context.ephemeral import preface, tells
from treadle.core.context.projection import input_estimate, longest_reply, most_expensive, project
from treadle.core.context.tokens import CHARACTERS_PER_TOKEN, tokens_in
from treadle.core.context.transcript import unique_call_ids
from treadle.core.guards.quota import Intent, for_a_model_call, intent_to
from treadle.core.retry import retry_after
from treadle.core.state import RunState
from treadle.domain.events import (
    AttemptReset,
    BreakerClosed,
    BreakerOpened,
    EventData,
    LlmError,
    LlmRequest,
    LlmResponse,
    MemoryRecalled,
    Redacted,
    StepStart,
    StopReason,
    ThinkingDelta,
    Token,
    ToolCallDelta,
)
from treadle.domain.ids import Instant
from treadle.domain.messages import Part, Text, ToolUse
from treadle.domain.models import Profile
from treadle.domain.runs import Usage
from treadle.engine.deps import EngineDeps
from treadle.engine.guarded_model import request_reply
from treadle.engine.owned_run import OwnedRun
from treadle.engine.redaction import REASONING_STREAM, TEXT_STREAM, ReplyRedaction
from treadle.ports.model import (
    CallDelta,
    Completed,
    Delta,
    Failed,
    ModelRequest,
    ReasoningDelta,
    Resolved,
    TextDelta,
)

NO_USAGE = Usage()
MODEL_FAULTS = ("unreachable", "timeout", "overloaded", "server", "malformed")
"""Failures that say that the model itself is in trouble, and not the request, the key or the account."""


def make_intent(
    state: RunState, profile: Profile, notes: tuple[EventData, ...], tools_offered: bool, now: Instant
) -> Intent:
    """The intent to call the model: a new step, or another attempt at the one that is open. What the guards had to
    say goes before it."""
    assert state.model is not None, "a run that asks has resolved its model"
    tokens = input_estimate(state)
    for note in notes:
        if isinstance(note, MemoryRecalled):
            tokens += tokens_in(note.section)
    opened_with = preface(state, now)
    if opened_with:
        tokens += tokens_in(opened_with)
    opening = () if state.step.open else (StepStart(state.step.number + 1),)
    request = LlmRequest(
        step=state.step.number + len(opening),
        attempt=1 if opening else state.step.attempts + 1,
        provider=state.model.provider,
        model=state.model.model,
        messages=len(state.transcript.messages) + bool(state.inbox or any(map(tells, notes))),
        tools_offered=tools_offered,
        repeats_lost=state.in_flight,
        input_estimate=tokens,
        cost_estimate=most_expensive(tokens, state.agent.model_settings, profile),
        preface=opened_with,
    )
    reserve = None
    if state.accounts:
        most = tokens + longest_reply(state.agent.model_settings, profile)
        reserve = for_a_model_call(state, request.step, request.attempt, most, request.cost_estimate)
    return intent_to((*notes, *opening), request, reserve)


async def call_model(model: Resolved, tools_offered: bool, log: OwnedRun, deps: EngineDeps) -> None:
    """Ask, show what comes as it comes, and record how it ended: a reply, or a failure and its retry."""
    attempt = Attempt(log, deps, model, project(log.state, tools_offered, model.profile))
    deps.hub.speaking(log.origin.run_id, attempt)
    try:
        await log.unless(_must_stop, attempt.read(), until=log.state.deadline)
    finally:
        deps.hub.speaking(log.origin.run_id, None)
    log.record(*attempt.on_record())


def _must_stop(state: RunState) -> bool:
    return state.cancelled is not None or state.interrupted is not None or state.steered == "interrupt"


class Attempt:
    """One request and what has come back so far."""

    def __init__(self, log: OwnedRun, deps: EngineDeps, model: Resolved, request: ModelRequest) -> None:
        self.origin = log.origin
        self._log = log
        self._deps = deps
        self._model = model
        self._request = request
        self._sequence = log.state.request
        self._number = log.state.step.attempts
        self._began = deps.clock.monotonic()
        self._first_token_ms: int | None = None
        self._text: list[str] = []
        self._length = 0
        self._reasoned = 0
        self._argued: dict[int, int] = {}
        self._end: Completed | Failed | None = None
        self._over = False
        redactor = deps.vault.redactor
        self._hidden = None if redactor.is_idle else ReplyRedaction(redactor)

    async def read(self) -> None:
        if self._number > 1:
            self._show(AttemptReset(self._sequence, self._number))
        try:
            self._end = await request_reply(
                self._model.client, self._request, self._heard, self._deps.vault.redactor
            )
        finally:
            self._over = True

    def _whole(self) -> Completed | Failed | None:
        """How it ended, without secrets: also without those that were set while it went on."""
        redactor = self._deps.vault.redactor
        if self._end is None or (self._hidden is None and redactor.is_idle):
            return self._end
        before, self._hidden = self._hidden, ReplyRedaction(redactor)
        return self._without_secrets(self._end, before or self._hidden, self._hidden)

    def _without_secrets(
        self, end: Completed | Failed, streamed: ReplyRedaction, hidden: ReplyRedaction
    ) -> Completed | Failed:
        if rest := streamed.rest(TEXT_STREAM):
            self._say(rest)
        if isinstance(end, Failed):
            return msgspec.structs.replace(end, message=hidden.text(end.message))
        return msgspec.structs.replace(end, parts=hidden.parts(end.parts))

    def so_far(self) -> Token:
        """The text until now, for a reader who comes late."""
        return Token(self._sequence, self._number, 0, "".join(self._text))

    def on_record(self) -> tuple[EventData, ...]:
        """How the attempt ended, as events."""
        step = self._log.state.step.number
        match self._whole():
            case Completed(parts, stop, usage, raw_stop, dropped):
                unique = unique_call_ids(parts, self._log.state.knows_call, prefix=f"call_{step}")
                response = self._response(unique, stop, usage, raw_stop, dropped)
                if self._hidden is not None:
                    response = _redact_arguments(response, self._hidden)
                return (*self._redacted("model_reply"), response, *self._breaker(failed=False))
            case Failed() as failed:
                breaker = self._breaker(failed=True) if failed.kind in MODEL_FAULTS else ()
                return (*self._redacted("error"), *self._failed(failed), *breaker)
            case None:  # it was cut short, by a wish or by the deadline
                kept = (Text("".join(self._text)),) if self._text else ()
                return (self._response(kept, "interrupted", self._guess()),)

    def _redacted(self, where: Literal["model_reply", "error"]) -> tuple[EventData, ...]:
        names = self._hidden.names if self._hidden is not None else None
        return (Redacted(tuple(names), where),) if names else ()

    def _response(
        self,
        parts: tuple[Part, ...],
        stop: StopReason,
        usage: Usage,
        raw_stop: str | None = None,
        dropped_calls: tuple[str, ...] = (),
    ) -> LlmResponse:
        return LlmResponse(
            self._log.state.step.number,
            self._number,
            parts,
            stop,
            usage,
            self._elapsed_ms(),
            self._first_token_ms,
            raw_stop,
            self._model.profile.cost(usage),
            dropped_calls=dropped_calls,
        )

    def _failed(self, failed: Failed) -> tuple[EventData, ...]:
        state = self._log.state
        guessed = failed.unclear and not failed.compact and may_be_too_long(state)
        error = LlmError(
            state.step.number,
            self._number,
            failed.kind,
            failed.message,
            failed.retryable,
            failed.status,
            self._elapsed_ms(),
            failed.usage,
            0.0 if failed.usage == NO_USAGE else self._model.profile.cost(failed.usage),
            failed.compact or guessed,
            failed.repair,
            failed.next_key,
            failed.next_model,
            failed.wants_reasoning,
            failed.once,
            failed.longest_reply,
            guessed,
            failed.retry_after,
        )
        retry = retry_after(state, error, failed.retry_after, self._deps.clock.now(), self._deps.chance())
        return (error,) if retry is None else (error, retry)

    def _breaker(self, failed: bool) -> tuple[EventData, ...]:
        match self._model.breaker.record(failed, self._deps.clock.monotonic(), self._log.origin.run_id):
            case "opened":
                return (BreakerOpened(self._model.provider, self._model.model),)
            case "closed":
                return (BreakerClosed(self._model.provider, self._model.model),)
            case None:
                return ()

    def _heard(self, delta: Delta) -> None:
        """Keep what was said, and show it to whoever is listening."""
        if self._over:
            return  # an adapter that does not know when to stop
        if self._hidden is not None:
            delta = _redact_delta(delta, self._hidden)
        match delta:
            case TextDelta(text):
                self._say(text)
            case ReasoningDelta(text):
                offset, self._reasoned = self._reasoned, self._reasoned + len(text)
                if self._is_heard:
                    self._show(ThinkingDelta(self._sequence, self._number, offset, text))
            case CallDelta(index, name, arguments):
                offset = self._argued.get(index, 0)
                self._argued[index] = offset + len(arguments)
                if self._is_heard:
                    self._show(ToolCallDelta(self._sequence, self._number, index, offset, name, arguments))

    def _say(self, text: str) -> None:
        if self._first_token_ms is None:
            self._first_token_ms = self._elapsed_ms()
        offset, self._length = self._length, self._length + len(text)
        self._text.append(text)
        if self._is_heard:
            self._show(Token(self._sequence, self._number, offset, text))

    @property
    def _is_heard(self) -> bool:
        return self._deps.hub.listened_to(self._log.origin.run_id)

    def _show(self, data: EventData) -> None:
        self._log.live(data, self._sequence)

    def _elapsed_ms(self) -> int:
        return round((self._deps.clock.monotonic() - self._began) * 1000)

    def _guess(self) -> Usage:
        """What an attempt that was cut short may have cost: nobody told us."""
        heard = self._length + self._reasoned + sum(self._argued.values())
        return Usage(input_estimate(self._log.state), heard // CHARACTERS_PER_TOKEN, estimated=True)


def _redact_arguments(response: LlmResponse, hidden: ReplyRedaction) -> LlmResponse:
    """The reply, with the secrets taken out of the arguments of its calls, and on record which calls had any."""
    parts: list[Part] = []
    held: list[tuple[str, str]] = []
    for part in response.parts:
        if isinstance(part, ToolUse):
            arguments, names = hidden.arguments(part.arguments)
            parts.append(msgspec.structs.replace(part, arguments=arguments))
            held += [(part.call_id, name) for name in names]
        else:
            parts.append(part)
    return msgspec.structs.replace(response, parts=tuple(parts), secrets=tuple(held)) if held else response


def _redact_delta(delta: Delta, hidden: ReplyRedaction) -> Delta:
    match delta:
        case TextDelta(text):
            return TextDelta(hidden.piece(TEXT_STREAM, text))
        case ReasoningDelta(text):
            return ReasoningDelta(hidden.piece(REASONING_STREAM, text))
        case CallDelta(index, name, arguments):
            return CallDelta(index, name, hidden.piece(index, arguments))
