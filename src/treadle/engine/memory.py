"""Memory in a run: what is recalled before a model call, and what is saved afterwards."""

from collections.abc import Sequence

from treadle.core.context.memory_prompt import make_section, summarise_interaction
from treadle.core.state import RunState
from treadle.domain.events import EventData, MemoryFlushed, MemoryRecalled, MemorySaved, Reminder
from treadle.domain.memories import MemorySource
from treadle.domain.runs import Outcome
from treadle.engine.owned_run import OwnedRun
from treadle.ports.clock import Ids
from treadle.ports.memory import Memories, RecallExclusion

MAX_EXTRA_RESULTS = 10
"""Number of additional search results, to make up for memories that the transcript shows already."""


async def recall_memories(state: RunState, memories: Memories) -> tuple[EventData, ...]:
    """Return the memories that fit the new messages, as events that go with the request."""
    settings = state.agent.memory
    query = _make_query(state)
    if not settings.recall or not query or state.is_anonymous:
        return ()
    origin, seen = state.origin, state.transcript.recalled
    exclusion = RecallExclusion(session=origin.session_id, since=state.segment_at)
    recall = await memories.recall(
        state.memories, query, settings.recall + min(len(seen), MAX_EXTRA_RESULTS), settings.embedder, exclusion
    )
    events: list[EventData] = [] if recall.degraded is None else [recall.degraded]
    section = make_section(recall, seen, settings.recall)
    if section.text:
        scores = [round(each.score, 4) for each in section.found]
        reminders = tuple(
            [
                Reminder(shown.memory_id, score, shown.created_at, shown.excerpt)
                for shown, score in zip(section.memories, scores, strict=True)
            ]
        )
        events.append(MemoryRecalled(reminders, section.text, recall.by, settings.place, section.notes))
    return tuple(events)


def _make_query(state: RunState) -> str:
    """Return the text to search for: the new messages or, for an agent that recalls at every step, its last
    answer."""
    if state.texts_to_recall or state.agent.memory.when == "message" or state.step.is_open:
        return "\n".join(state.texts_to_recall)
    return state.turn.answer_so_far


async def save_interaction(
    outcome: Outcome, state: RunState, memories: Memories, ids: Ids
) -> tuple[EventData, ...]:
    """Return the memory of a run that ended with an answer."""
    if not _remembers(state) or outcome.kind != "completed" or state.command is not None:
        return ()
    text = summarise_interaction(state.submitted_text, outcome.text)
    return () if not text else (await _make_memory(text, "run", state, memories, ids),)


async def save_before_compaction(texts: Sequence[str], run: OwnedRun, memories: Memories) -> tuple[EventData, ...]:
    """Return memories of what a compaction is about to remove, if they may be saved."""
    if not may_save_conversation(run.state):
        return ()
    saved = [await _make_memory(text, "compaction", run.state, memories, run.worker.ids) for text in texts]
    return (*saved, MemoryFlushed(tuple([event.memory_id for event in saved])))


def may_save_conversation(state: RunState) -> bool:
    """Return whether the agent saves memories and the whole conversation belongs to a named user."""
    return state.agent.memory.remember and not state.has_anonymous_words


def _remembers(state: RunState) -> bool:
    return state.agent.memory.remember and not state.is_anonymous


async def _make_memory(
    text: str, source: MemorySource, state: RunState, memories: Memories, ids: Ids
) -> MemorySaved:
    duplicate = await memories.find_duplicate(state.origin.agent_id, state.owner, text, state.workspace)
    return MemorySaved(ids("mem"), text, source, repeats=duplicate)
