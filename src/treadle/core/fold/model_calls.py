"""Folding steps and model calls."""

from treadle.core.context.transcript import remove_unsigned_thinking
from treadle.core.fold.context import replace_transcript
from treadle.core.fold.registry import on
from treadle.core.retry import MAX_KEYS
from treadle.core.state import RunState, join_messages
from treadle.core.suspicion import MODEL_CALL
from treadle.core.tools.ledger import WARN_AFTER_FAILURES
from treadle.core.tools.search import resolve_forwarded_call
from treadle.core.usage import StepUsage
from treadle.domain import events as e
from treadle.domain.inert_text import has_visible
from treadle.domain.messages import Message, Part, Text, ToolUse
from treadle.domain.silence import SILENT_STORED, is_silence

REFUSED_SIZE_SHARE = 0.95
"""Share of the size of a rejected transcript that is assumed to be acceptable."""


@on(e.StepStart)
def _on_step_start(state: RunState, data: e.StepStart) -> None:
    state.step = StepUsage(data.step, is_open=True, began_at=state.latest_at)


@on(e.LlmRequest)
def _on_llm_request(state: RunState, data: e.LlmRequest) -> None:
    attempts, turn = state.attempts, state.turn
    state.status, state.waiting = "running", None
    if turn.inbox:
        state.transcript.add(join_messages(turn.inbox, data.preface))
        turn.inbox = []
        if state.texts_to_recall:  # a message was sent, besides the engine's notes
            state.context.tasks.append(state.transcript.messages[-1])
    attempts.request, attempts.in_flight, state.steer_mode = state.sequence, True, None
    state.texts_to_recall = []
    attempts.retry_at = attempts.failure = None
    turn.reply = None
    state.set_calls([])
    state.step.attempts += 1
    state.usage.model_calls += 1
    state.usage.repeated_calls += data.repeats_lost
    if not data.tools_offered:
        state.guards.recovery.report_due = False


@on(e.LlmResponse)
def _on_llm_response(state: RunState, data: e.LlmResponse) -> None:
    attempts, turn, guards, step = state.attempts, state.turn, state.guards, state.step
    attempts.in_flight = attempts.has_retried_once = False
    attempts.failures = attempts.keys_tried = 0
    guards.suspicion.finish(MODEL_CALL)
    turn.reply, state.context.stages_used = data, set()
    state.spend(data.usage, data.duration_ms, data.cost)
    if state.usage.first_token_ms is None:
        state.usage.first_token_ms = data.first_token_ms
    parts, text, uses = data.parts, "", list[ToolUse]()
    for part in parts:
        if isinstance(part, Text):
            text += part.text
        elif isinstance(part, ToolUse):
            uses.append(resolve_forwarded_call(part, state.tools))
    stripped = text.strip() if has_visible(text) else ""
    if data.stop == "interrupted":
        parts, uses = (Text(text),), []
    elif not uses and is_silence(stripped):
        parts = (Text(SILENT_STORED),)
    _add_reply(state, data, parts)
    state.set_calls([state.ledger.add_call(use, state.tools.get(use.name)) for use in uses])
    for call_id, name in data.secrets:
        _add_call_secret(state, call_id, name)
    step.calls = len(uses)
    if guards.continuations:
        turn.answer_so_far += text
    elif stripped:
        turn.answer_so_far = text
    if data.stop != "max_tokens" or uses:
        guards.continuations = 0
    if stripped:
        step.has_news = True
    if stripped or uses:
        guards.empty_turns = 0
    if uses:
        guards.written_calls = 0


def _add_reply(state: RunState, data: e.LlmResponse, parts: tuple[Part, ...]) -> None:
    """Add the model's reply to the transcript, and take in the provider's count."""
    if state.attempts.plain and state.model is not None:
        parts = _drop_refused_thinking(state, parts, state.model.provider, state.model.model)
    transcript, before, usage = state.transcript, state.transcript.tokens, data.usage
    if data.window_full:
        state.context.ceiling = int(before * REFUSED_SIZE_SHARE)
    elif state.context.ceiling is not None:
        state.context.ceiling = max(state.context.ceiling, before)  # the model has accepted this size
    transcript.add(Message("assistant", parts))
    if not usage.estimated:
        counted = usage.input_tokens + usage.output_tokens
        state.context.tokens.report(counted, transcript.tokens, usage.output_tokens, transcript.tokens - before)


def _drop_refused_thinking(state: RunState, parts: tuple[Part, ...], provider: str, model: str) -> tuple[Part, ...]:
    """Remove unsigned thinking from the transcript, since the model has accepted the conversation only without it.
    Return the parts of the reply without it: later runs of the session must not send it either."""
    messages = state.transcript.messages
    kept = [remove_unsigned_thinking(message, provider, model) for message in messages]
    if any(one is not other for one, other in zip(kept, messages, strict=True)):
        replace_transcript(state, kept)
    return remove_unsigned_thinking(Message("assistant", parts), provider, model).parts


def _add_call_secret(state: RunState, call_id: str, name: str) -> None:
    if (call := state.find_call(call_id)) is not None:
        call.secrets = (*call.secrets, name)


@on(e.LlmError)
def _on_llm_error(state: RunState, data: e.LlmError) -> None:
    state.attempts.in_flight, state.attempts.failure, state.attempts.failed_since = False, data, state.latest_at
    state.guards.suspicion.finish(MODEL_CALL)
    if data.next_key and state.attempts.keys_tried < MAX_KEYS:
        state.attempts.keys_tried += 1
    elif not (data.repair or data.refuses_schema) and data.longest_reply is None:  # those are retried once
        state.attempts.failures += 1
    state.context.has_guessed_overflow = state.context.has_guessed_overflow or data.guessed
    if data.compact:
        state.context.ceiling = int(state.transcript.tokens * REFUSED_SIZE_SHARE)
    state.spend(data.usage, data.duration_ms, data.cost)


@on(e.LlmRetry)
def _on_llm_retry(state: RunState, data: e.LlmRetry) -> None:
    if state.attempts.failure is not None and state.attempts.failure.once:
        state.attempts.has_retried_once = True
    state.attempts.failure, state.attempts.retry_at = None, data.wake_at
    state.attempts.plain = (state.attempts.plain or data.plain) and not data.filled
    state.attempts.filled = state.attempts.filled or data.filled
    state.attempts.unconstrained = state.attempts.unconstrained or data.unconstrained
    if data.longest_reply is not None:
        state.attempts.longest_reply = data.longest_reply


@on(e.LlmFallback)
def _on_llm_fallback(state: RunState, data: e.LlmFallback) -> None:
    attempts, context = state.attempts, state.context
    state.model = None
    context.ceiling, context.stages_used, context.has_guessed_overflow = None, set(), False
    attempts.route, attempts.longest_reply = data.to, None
    attempts.plain = attempts.filled = attempts.unconstrained = attempts.has_retried_once = False
    attempts.fallbacks_used += 1
    attempts.failures = attempts.keys_tried = 0
    attempts.failure = attempts.retry_at = None
    attempts.fallback_reason = attempts.fallback_reason or data.reason


@on(e.StepEnd)
def _on_step_end(state: RunState, _: e.StepEnd) -> None:
    if not state.step.interrupted:
        state.guards.suspicion.clear()
    recovery = state.guards.recovery
    recovery.refused_tool = None
    if state.step.has_news:
        recovery.quiet_steps = 0
    else:
        recovery.quiet_steps += 1
    if recovery.quiet_steps == 0 and state.ledger.find_worst_failure()[1] < WARN_AFTER_FAILURES:
        recovery.stage, recovery.detected_at = None, 0
    state.step.is_open = False
