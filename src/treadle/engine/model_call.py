"""One model call: the request, its streamed reply, and the events that record it."""

from contextlib import suppress
from typing import Literal

import msgspec

from treadle.core.context.budget import may_be_too_long
from treadle.core.context.ephemeral import joins_transcript, make_preface
from treadle.core.context.projection import estimate_input, max_cost, max_reply_tokens, project
from treadle.core.context.tokens import CHARACTERS_PER_TOKEN, estimate_text
from treadle.core.context.transcript import make_call_ids_unique
from treadle.core.guards.quota import Intent, make_reserved_intent, reserve_model_call
from treadle.core.retry import plan_retry
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
    ThinkingDelta,
    Token,
    ToolCallDelta,
)
from treadle.domain.ids import Instant
from treadle.domain.messages import Part, Text, ToolUse
from treadle.domain.models import Profile
from treadle.domain.runs import Usage
from treadle.engine.guarded_model import request_reply
from treadle.engine.owned_run import OwnedRun
from treadle.engine.redaction import REASONING_STREAM, TEXT_STREAM, ReplyRedaction
from treadle.engine.stop_texts import StopTextFilter, StopTextFound, cut_reply
from treadle.engine.text_blocks import LiveDelta, WrittenReply
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
"""Failures that indicate a problem of the model itself, not of the request, the key or the account."""


def make_intent(
    state: RunState, profile: Profile, notes: tuple[EventData, ...], tools_offered: bool, now: Instant
) -> Intent:
    """Return the intent to call the model: a new step, or another attempt at the open one. The guards' notes
    precede it."""
    assert state.model is not None, "a run that asks has resolved its model"
    tokens = estimate_input(state)
    for note in notes:
        if isinstance(note, MemoryRecalled):
            tokens += estimate_text(note.section)
    opening_text = make_preface(state, now)
    if opening_text:
        tokens += estimate_text(opening_text)
    opening = () if state.step.is_open else (StepStart(state.step.number + 1),)
    request = LlmRequest(
        step=state.step.number + len(opening),
        attempt=1 if opening else state.step.attempts + 1,
        provider=state.model.provider,
        model=state.model.model,
        messages=len(state.transcript.messages) + bool(state.turn.inbox or any(map(joins_transcript, notes))),
        tools_offered=tools_offered,
        repeats_lost=state.attempts.in_flight,
        input_estimate=tokens,
        cost_estimate=max_cost(tokens, state.agent.model_settings, profile),
        preface=opening_text,
    )
    reserve = None
    if state.accounts:
        max_tokens = tokens + max_reply_tokens(state.agent.model_settings, profile)
        reserve = reserve_model_call(state, request.step, request.attempt, max_tokens, request.cost_estimate)
    return make_reserved_intent((*notes, *opening), request, reserve)


async def call_model(model: Resolved, tools_offered: bool, run: OwnedRun) -> None:
    """Call the model, stream its reply, and record how it ended: with a reply, or with a failure and its retry."""
    attempt = Attempt(run, model, project(run.state, tools_offered, model.profile))
    run.worker.hub.set_live_text(run.origin.run_id, attempt)
    try:
        await run.run_unless(_must_stop, attempt.read(), until=run.state.deadline)
    finally:
        run.worker.hub.set_live_text(run.origin.run_id, None)
    run.record(*attempt.make_events())


def _must_stop(state: RunState) -> bool:
    return state.cancelled is not None or state.interrupted is not None or state.steer_mode == "interrupt"


class Attempt:
    """One request, and what has been received so far."""

    def __init__(self, run: OwnedRun, model: Resolved, request: ModelRequest) -> None:
        self.origin = run.origin
        self._run = run
        self._model = model
        self._request = request
        self._sequence = run.state.attempts.request
        self._number = run.state.step.attempts
        self._began = run.worker.clock.monotonic()
        self._first_token_ms: int | None = None
        self._written = WrittenReply(self._sequence, self._number)
        self._end: Completed | Failed | None = None
        self._ended = False
        redactor = run.worker.vault.redactor
        self._redaction = None if redactor.is_idle else ReplyRedaction(redactor)
        self._stops = run.state.agent.model_settings.stop
        self._stop_filter = StopTextFilter(self._stops) if self._stops else None

    async def read(self) -> None:
        if self._number > 1:
            self._show(AttemptReset(self._sequence, self._number))
        try:
            with suppress(StopTextFound):
                self._end = await request_reply(
                    self._model.client, self._request, self._receive, self._run.worker.vault.redactor
                )
            if self._stop_filter is not None:
                self._end_at_stop_text(self._stop_filter)
        finally:
            self._ended = True

    def _end_at_stop_text(self, stops: StopTextFilter) -> None:
        """Leave out what follows a stop text. A call that was ended there reports no usage."""
        if rest := stops.flush():
            self._receive_filtered(TextDelta(rest))
        if stops.is_found:
            parts = (Text(stops.text),) if stops.text else ()
            self._end = Completed(parts, "end_turn", self._estimate_usage(), raw_stop="stop")
        elif isinstance(self._end, Completed):
            self._end = cut_reply(self._end, self._stops)

    def _redact_end(self) -> Completed | Failed | None:
        """Return the end of the reply without secrets, including those that were set while it streamed."""
        redactor = self._run.worker.vault.redactor
        if self._end is None or (self._redaction is None and redactor.is_idle):
            return self._end
        before, self._redaction = self._redaction, ReplyRedaction(redactor)
        return self._redact(self._end, before or self._redaction, self._redaction)

    def _redact(
        self, end: Completed | Failed, stream: ReplyRedaction, redaction: ReplyRedaction
    ) -> Completed | Failed:
        if rest := stream.flush(TEXT_STREAM):
            self._show_text(rest)
        if isinstance(end, Failed):
            return msgspec.structs.replace(end, message=redaction.redact_text(end.message))
        return msgspec.structs.replace(end, parts=redaction.redact_parts(end.parts))

    def make_live_events(self) -> list[LiveDelta]:
        """Return the reply so far, for a reader that joins late."""
        return self._written.make_live_events()

    def make_events(self) -> tuple[EventData, ...]:
        """Return the events that record how the attempt ended."""
        step = self._run.state.step.number
        match self._redact_end():
            case Completed() as reply:
                unique = make_call_ids_unique(reply.parts, self._run.state.knows_call, prefix=f"call_{step}")
                response = self._make_response(msgspec.structs.replace(reply, parts=unique))
                if self._redaction is not None:
                    response = _redact_arguments(response, self._redaction)
                return (*self._make_redacted("model_reply"), response, *self._update_breaker(failed=False))
            case Failed() as failed:
                breaker = self._update_breaker(failed=True) if failed.kind in MODEL_FAULTS else ()
                return (*self._make_redacted("error"), *self._make_error(failed), *breaker)
            case None:  # stopped by a delivery or by the deadline
                text = self._written.text
                parts = (Text(text.join()),) if text.length else ()
                return (self._make_response(Completed(parts, "interrupted", self._estimate_usage())),)

    def _make_redacted(self, where: Literal["model_reply", "error"]) -> tuple[EventData, ...]:
        names = self._redaction.names if self._redaction is not None else None
        return (Redacted(tuple(names), where),) if names else ()

    def _make_response(self, reply: Completed) -> LlmResponse:
        return LlmResponse(
            step=self._run.state.step.number,
            attempt=self._number,
            parts=reply.parts,
            stop=reply.stop,
            usage=reply.usage,
            duration_ms=self._elapsed_ms(),
            first_token_ms=self._first_token_ms,
            raw_stop=reply.raw_stop,
            cost=self._model.profile.cost(reply.usage),
            dropped_calls=reply.dropped_calls,
            excess_calls=reply.excess_calls,
            refusal=reply.refusal,
            window_full=reply.window_full,
        )

    def _make_error(self, failed: Failed) -> tuple[EventData, ...]:
        state = self._run.state
        guessed = failed.unclear and not (failed.compact or failed.refuses_schema) and may_be_too_long(state)
        error = LlmError(
            step=state.step.number,
            attempt=self._number,
            kind=failed.kind,
            message=failed.message,
            retryable=failed.retryable,
            status=failed.status,
            duration_ms=self._elapsed_ms(),
            usage=failed.usage,
            cost=0.0 if failed.usage == NO_USAGE else self._model.profile.cost(failed.usage),
            compact=failed.compact or guessed,
            repair=failed.repair,
            next_key=failed.next_key,
            next_model=failed.next_model,
            wants_reasoning=failed.wants_reasoning,
            refuses_schema=failed.refuses_schema,
            once=failed.once,
            longest_reply=failed.longest_reply,
            guessed=guessed,
            asked_wait=failed.retry_after,
            filtered=failed.filtered,
        )
        retry = plan_retry(
            state, error, failed.retry_after, self._run.worker.clock.now(), self._run.worker.random()
        )
        return (error,) if retry is None else (error, retry)

    def _update_breaker(self, failed: bool) -> tuple[EventData, ...]:
        match self._model.breaker.record(failed, self._run.worker.clock.monotonic(), self._run.origin.run_id):
            case "opened":
                return (BreakerOpened(self._model.provider, self._model.model),)
            case "closed":
                return (BreakerClosed(self._model.provider, self._model.model),)
            case None:
                return ()

    def _receive(self, delta: Delta) -> None:
        """Store a piece of the reply and show it to readers."""
        if self._ended:
            return  # the adapter kept streaming after the end
        if self._stop_filter is not None and isinstance(delta, TextDelta):
            if text := self._stop_filter.add(delta.text):
                self._receive_filtered(TextDelta(text))
            if self._stop_filter.is_found:
                raise StopTextFound
            return
        self._receive_filtered(delta)

    def _receive_filtered(self, delta: Delta) -> None:
        if self._redaction is not None:
            delta = _redact_delta(delta, self._redaction)
        match delta:
            case TextDelta(text):
                self._show_text(text)
            case ReasoningDelta(text):
                thinking = self._written.thinking
                offset = thinking.length
                thinking.append(text)
                if self._has_readers:
                    self._show(ThinkingDelta(self._sequence, self._number, offset, text))
            case CallDelta(index, name, arguments) if index < self._request.max_calls:
                written = self._written.begin_call(index, name)
                offset = written.length
                written.append(arguments)
                if self._has_readers:
                    self._show(
                        ToolCallDelta(
                            request=self._sequence,
                            attempt=self._number,
                            index=index,
                            offset=offset,
                            name=name,
                            arguments=arguments,
                        )
                    )
            case CallDelta():
                pass  # the call is beyond the limit

    def _show_text(self, text: str) -> None:
        if self._first_token_ms is None:
            self._first_token_ms = self._elapsed_ms()
        written = self._written.text
        offset = written.length
        written.append(text)
        if self._has_readers:
            self._show(Token(self._sequence, self._number, offset, text))

    @property
    def _has_readers(self) -> bool:
        return self._run.worker.hub.has_readers(self._run.origin.run_id)

    def _show(self, data: EventData) -> None:
        self._run.show_live(data, self._sequence)

    def _elapsed_ms(self) -> int:
        return round((self._run.worker.clock.monotonic() - self._began) * 1000)

    def _estimate_usage(self) -> Usage:
        """Return the estimated usage of an interrupted attempt, for which the provider reported none."""
        tokens = self._written.length // CHARACTERS_PER_TOKEN
        return Usage(estimate_input(self._run.state), tokens, estimated=True)


def _redact_arguments(response: LlmResponse, redaction: ReplyRedaction) -> LlmResponse:
    """Return the reply without secrets in the arguments of its calls. It records which calls had any."""
    parts: list[Part] = []
    held: list[tuple[str, str]] = []
    for part in response.parts:
        if isinstance(part, ToolUse):
            arguments, names = redaction.redact_arguments(part.arguments)
            parts.append(msgspec.structs.replace(part, arguments=arguments))
            held += [(part.call_id, name) for name in names]
        else:
            parts.append(part)
    return msgspec.structs.replace(response, parts=tuple(parts), secrets=tuple(held)) if held else response


def _redact_delta(delta: Delta, redaction: ReplyRedaction) -> Delta:
    match delta:
        case TextDelta(text):
            return TextDelta(redaction.redact_piece(TEXT_STREAM, text))
        case ReasoningDelta(text):
            return ReasoningDelta(redaction.redact_piece(REASONING_STREAM, text))
        case CallDelta(index, name, arguments):
            return CallDelta(index, name, redaction.redact_piece(index, arguments))
