"""Folding changes of the transcript: truncation, compaction, undo, pins, recalled memories and session commands.
The journal keeps everything; this concerns only what the model is shown."""

from collections.abc import Iterable

import msgspec

from treadle.core.context.compaction import make_summary_message
from treadle.core.context.projection import set_preamble
from treadle.core.context.transcript import make_transcript
from treadle.core.context.truncation import truncate_results
from treadle.core.fold.registry import on
from treadle.core.state import RunState
from treadle.core.suspicion import MODEL_CALL
from treadle.domain import events as e
from treadle.domain.messages import Message, user


def replace_transcript(state: RunState, messages: Iterable[Message]) -> None:
    """Replace the transcript with these messages, in a form that no provider rejects."""
    state.transcript = make_transcript(messages)
    state.context.tokens.invalidate()
    state.context.is_rewritten = True


def _allow_retry(state: RunState) -> None:
    """Allow a retry of a request that was rejected as too long."""
    if state.attempts.failure is not None and state.attempts.failure.compact:
        state.attempts.failure, state.attempts.failures, state.attempts.retry_at = None, 0, None


@on(e.ContextTrimmed)
def _on_context_trimmed(state: RunState, data: e.ContextTrimmed) -> None:
    messages, (first, last) = state.transcript.messages, data.dropped
    left = [*messages[:first], *(messages[index] for index in data.kept), *messages[last:]]
    replace_transcript(state, truncate_results(left, frozenset(data.results), data.longest))
    state.context.stages_used.add(data.stage)
    _allow_retry(state)


@on(e.CompactionStarted)
def _on_compaction_started(state: RunState, data: e.CompactionStarted) -> None:
    state.status, state.waiting = "running", None
    state.context.is_compacting = True
    state.usage.model_calls += 1
    state.usage.repeated_calls += data.repeats_lost


@on(e.CompactionFailed)
def _on_compaction_failed(state: RunState, data: e.CompactionFailed) -> None:
    state.context.is_compacting, state.context.compaction = False, data
    state.context.failed_at = state.transcript.tokens
    state.context.stages_used.add(data.stage)
    state.spend(data.usage, data.duration_ms, data.cost)
    state.usage.model_calls += data.calls - 1  # the first was counted when it started


@on(e.ContextCompacted)
def _on_context_compacted(state: RunState, data: e.ContextCompacted) -> None:
    messages = state.transcript.messages
    kept = [messages[index] for index in data.kept]
    summary = make_summary_message(data.summary, data.record)
    replace_transcript(state, [*messages[: data.first], summary, *kept, *messages[data.last :]])
    state.context.is_compacting, state.context.compaction = False, data
    state.context.stages_used.add(data.stage)
    state.spend(data.usage, data.duration_ms, data.cost)
    state.usage.model_calls += data.calls - 1  # the first was counted when it started
    state.guards.suspicion.finish(MODEL_CALL)
    _allow_retry(state)


@on(e.SegmentOpened)
def _on_segment_opened(state: RunState, data: e.SegmentOpened) -> None:
    state.segment, state.segment_at = data, state.latest_at
    if data.reason == "reset":
        replace_transcript(state, ())


@on(e.CompactionUndone)
def _on_compaction_undone(state: RunState, data: e.CompactionUndone) -> None:
    messages = state.transcript.messages
    replace_transcript(state, [*messages[: data.first], *data.messages, *messages[data.last :]])


@on(e.MessagePinned)
def _on_message_pinned(state: RunState, data: e.MessagePinned) -> None:
    messages = list(state.transcript.messages)
    pinned = msgspec.structs.replace(data.message, mark="pinned")
    if data.index is None:
        messages.append(pinned)
    else:
        messages[data.index] = pinned
    replace_transcript(state, messages)


@on(e.CommandObeyed)
def _on_command_obeyed(state: RunState, data: e.CommandObeyed) -> None:
    state.command_result = data


@on(e.MemoryRecalled)
def _on_memory_recalled(state: RunState, data: e.MemoryRecalled) -> None:
    if data.place == "system":
        set_preamble(state, state.prompt.preamble.tools, data.section)
    else:
        state.turn.inbox.insert(0, user(data.section))  # after the message, small models take it for the question
