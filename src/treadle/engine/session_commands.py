"""Session commands: reset, undo, pin, and the questions about memory and usage."""

from collections.abc import Sequence

from treadle.core.context.memory_prompt import list_memories, remove_notes
from treadle.core.context.projection import estimate_input
from treadle.core.fold import fold_all
from treadle.core.steps import RunSessionCommand
from treadle.domain.commands import AskMemory, AskUsage, PinMessage, ResetSession, UndoSession
from treadle.domain.events import (
    CommandObeyed,
    CompactionUndone,
    ContextCompacted,
    EventData,
    MessagePinned,
    SegmentOpened,
    SegmentReason,
    SessionUsage,
)
from treadle.domain.graphemes import truncate
from treadle.domain.ids import SegmentId
from treadle.domain.messages import Image, Message, Text, user
from treadle.domain.money import format_cost
from treadle.engine.deps import SessionDeps
from treadle.engine.owned_run import OwnedRun
from treadle.engine.run_history import load_run_history
from treadle.ports.journal import Journal
from treadle.ports.sessions import SegmentRecord

EXCERPT_CHARACTERS = 60
MAX_PIN_CHARACTERS = 8000
MAX_LISTED_MEMORIES = 10
"""Memories that are shown."""


async def run_session_command(step: RunSessionCommand, run: OwnedRun, deps: SessionDeps) -> None:
    match step.command:
        case ResetSession():
            said = CommandObeyed("The conversation starts over. /undo takes it back.")
            run.record(_open_segment("reset", 0, run), said)
        case PinMessage(text):
            run.record(*_pin(text, run.state.transcript.messages))
        case UndoSession():
            run.record(*await _undo(run, deps))
        case AskMemory(text):
            run.record(await _list_memories(text, run, deps))
        case AskUsage():
            used = await _measure_usage(run, deps)
            run.record(CommandObeyed(_describe_usage(used), usage=used))


def _open_segment(reason: SegmentReason, messages: int, run: OwnedRun) -> SegmentOpened:
    return SegmentOpened(SegmentId(run.worker.ids("seg")), run.state.segment.segment_id, reason, messages)


def _pin(text: str, messages: Sequence[Message]) -> tuple[EventData, ...]:
    if len(text) > MAX_PIN_CHARACTERS:
        size = f"at most {MAX_PIN_CHARACTERS} characters, and this has {len(text)}"
        refusal = f"What is pinned stays in every request: {size}."
        return (CommandObeyed(refusal, done=False),)
    if text:
        return MessagePinned(user(text)), CommandObeyed(f"Pinned: {_excerpt(text)}")
    for index in reversed(range(len(messages))):
        message = messages[index]
        said = remove_notes(message.text) if message.role == "user" and message.mark != "summary" else ""
        if said and message.mark == "pinned":
            return (CommandObeyed(f"It is pinned already: {_excerpt(said)}"),)
        if said:
            return _pin_message(index, message, said)
    return (CommandObeyed("There is no message to pin yet. /pin TEXT keeps a text.", done=False),)


def _pin_message(index: int, message: Message, said: str) -> tuple[EventData, ...]:
    """Pin what the user said, with its images and without what the engine added."""
    if len(said) > MAX_PIN_CHARACTERS:
        limit = f"at most {MAX_PIN_CHARACTERS} can be pinned"
        refusal = f"Your last message has {len(said)} characters; {limit}. Try /pin TEXT."
        return (CommandObeyed(refusal, done=False),)
    pictures = tuple([part for part in message.parts if isinstance(part, Image)])
    kept = Message("user", (Text(said), *pictures))
    return MessagePinned(kept, index), CommandObeyed(f"Pinned: {_excerpt(said)}")


def _excerpt(text: str) -> str:
    return truncate(" ".join(text.split()), EXCERPT_CHARACTERS)


async def _undo(run: OwnedRun, deps: SessionDeps) -> tuple[EventData, ...]:
    """Restore what the latest compaction or reset removed that is not undone yet."""
    latest = _find_undoable(await deps.sessions.segments(run.origin.session_id))
    if latest is None:
        return (CommandObeyed("There is nothing to undo: nothing was compacted or reset.", done=False),)
    found = await _load_before(latest, run.worker.journal)
    now = run.state.transcript.messages
    if found is None:
        return (CommandObeyed("The conversation before it is no longer stored.", done=False),)
    before, compacted = found
    if compacted is None:
        undone = CompactionUndone(latest.segment_id, 0, 0, tuple(before))
    else:
        removed = before[compacted.first : compacted.last]
        at = next((index for index, message in enumerate(now) if message.mark == "summary"), None)
        if at is None:
            return (CommandObeyed("The summary is not in the conversation any more.", done=False),)
        undone = CompactionUndone(latest.segment_id, at, at + 1 + len(compacted.kept), tuple(removed))
    count = len(now) - (undone.last - undone.first) + len(undone.messages)
    what = "reset" if compacted is None else "compaction"
    said = f"The latest {what} is undone: {len(undone.messages)} messages are back."
    return undone, _open_segment("undo", count, run), CommandObeyed(said)


def _find_undoable(segments: Sequence[SegmentRecord]) -> SegmentRecord | None:
    """Return the latest segment that has not been undone. Each undo takes back the latest one before it."""
    open_segments: list[SegmentRecord] = []
    for segment in segments:
        if segment.reason != "undo":
            open_segments.append(segment)
        elif open_segments:
            open_segments.pop()
    return open_segments[-1] if open_segments else None


async def _load_before(
    segment: SegmentRecord, journal: Journal
) -> tuple[Sequence[Message], ContextCompacted | None] | None:
    """Return the messages just before a segment was opened, from the journal, and the compaction that opened it."""
    state, events = await load_run_history(segment.run_id, journal)
    for index, event in enumerate(events):
        if isinstance(event.data, SegmentOpened) and event.data.segment_id == segment.segment_id:
            found = events[index - 1].data
            compacted = found if isinstance(found, ContextCompacted) else None
            fold_all(state, events[: index if compacted is None else index - 1])
            return state.transcript.messages, compacted
    return None


async def _list_memories(text: str, run: OwnedRun, deps: SessionDeps) -> CommandObeyed:
    """Return the answer with the agent's memories, one per line."""
    if run.state.is_anonymous:
        return CommandObeyed("Memory is off: the message did not name its user.")
    scope = run.state.memories
    if text:
        recall = await deps.memories.recall(scope, text, MAX_LISTED_MEMORIES, run.state.agent.memory.embedder)
        memories = [found.memory for found in recall.found]
    else:
        memories = list(await deps.memories.latest(scope, MAX_LISTED_MEMORIES))
    if not memories:
        return CommandObeyed(f"Nothing that fits `{text}` is remembered." if text else "Nothing is remembered yet.")
    listed, shown = list_memories(memories)
    return CommandObeyed(listed.rstrip("\n"), memories=shown)


async def _measure_usage(run: OwnedRun, deps: SessionDeps) -> SessionUsage:
    """Return what the session has used and how full its context window is."""
    session, state = run.origin.session_id, run.state
    used = [end.metrics for end in await deps.sessions.ends(session)]
    return SessionUsage(
        runs=len(used),
        steps=sum(metrics.steps for metrics in used),
        tool_calls=sum(metrics.actions for metrics in used),
        input_tokens=sum(metrics.input_tokens for metrics in used),
        cached_tokens=sum(metrics.cache_read_tokens for metrics in used),
        output_tokens=sum(metrics.output_tokens for metrics in used),
        cost=sum(metrics.cost for metrics in used),
        unpriced_calls=sum(metrics.unpriced_calls for metrics in used),
        context_tokens=estimate_input(state),
        context_window=state.window,
        messages=len(state.transcript.messages),
        segments=len(await deps.sessions.segments(session)) + 1,
    )


def _describe_usage(used: SessionUsage) -> str:
    size, window = used.context_tokens, used.context_window
    price = format_cost(used.cost, used.unpriced_calls)
    if used.unpriced_calls:
        calls = "1 model call" if used.unpriced_calls == 1 else f"{used.unpriced_calls:,} model calls"
        price += f" ({calls} without a known price)"
    lines = (
        f"runs      {used.runs}, with {used.steps} steps and {used.tool_calls} tool calls",
        f"tokens    {used.input_tokens:,} in ({used.cached_tokens:,} of them from a cache), "
        f"{used.output_tokens:,} out",
        f"cost      {price}",
        f"context   about {size:,} of {window:,} tokens ({size / window:.0%}), {used.messages} messages",
        f"segments  {used.segments}",
    )
    return "\n".join(lines)
