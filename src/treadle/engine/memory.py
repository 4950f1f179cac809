"""Memory around a run: what it is reminded of before the model is asked, and what is kept of it afterwards."""

from collections.abc import Sequence

from treadle.core.context.memory_prompt import interaction, section
from treadle.core.state import RunState
from treadle.domain.events import EventData, MemoryFlushed, MemoryRecalled, MemorySaved, Reminder
from treadle.domain.memories import MemorySource
from treadle.domain.runs import Outcome
from treadle.engine.deps import EngineDeps
from treadle.engine.owned_run import OwnedRun
from treadle.ports.memory import Without

MAX_EXTRA_RESULTS = 10
"""So many more are looked for, in the place of those that the conversation shows already."""


async def recall_memories(state: RunState, deps: EngineDeps) -> tuple[EventData, ...]:
    """What the agent remembers that fits what was said: it goes with the request."""
    settings = state.agent.memory
    said = _query_text(state)
    if not settings.recall or not said:
        return ()
    origin, seen = state.origin, state.transcript.recalled
    here = Without(session=origin.session_id, since=state.segment_at)
    recall = await deps.memories.recall(
        state.memories, said, settings.recall + min(len(seen), MAX_EXTRA_RESULTS), settings.embedder, here
    )
    events: list[EventData] = [] if recall.degraded is None else [recall.degraded]
    shown, found = section(recall, seen, settings.recall)
    if shown:
        reminders = tuple([Reminder(each.memory.memory_id, round(each.score, 4)) for each in found])
        events.append(MemoryRecalled(reminders, shown, recall.by, settings.place))
    return tuple(events)


def _query_text(state: RunState) -> str:
    """What to look for: the messages that are new; before every step, also what the agent itself said last."""
    if state.unrecalled or state.agent.memory.when == "message" or state.step.open:
        return "\n".join(state.unrecalled)
    return state.answer_so_far


async def save_interaction(outcome: Outcome, state: RunState, deps: EngineDeps) -> tuple[EventData, ...]:
    """What is kept of a run that has come to an answer."""
    if not state.agent.memory.remember or outcome.kind != "completed" or state.command is not None:
        return ()
    text = interaction(state.asked, outcome.text)
    return () if not text else (await _make_memory(text, "run", state, deps),)


async def save_before_compaction(texts: Sequence[str], log: OwnedRun, deps: EngineDeps) -> tuple[EventData, ...]:
    """What a compaction is about to take out of the conversation, kept where it is worth it."""
    if not log.state.agent.memory.remember:
        return ()
    saved = [await _make_memory(text, "compaction", log.state, deps) for text in texts]
    return (*saved, MemoryFlushed(tuple([event.memory_id for event in saved])))


async def _make_memory(text: str, source: MemorySource, state: RunState, deps: EngineDeps) -> MemorySaved:
    twin = await deps.memories.twin(state.origin.agent_id, state.owner, text)
    return MemorySaved(deps.ids("mem"), text, source, repeats=twin)
