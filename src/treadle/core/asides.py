"""What the model is told with one request alone: it comes after the conversation and never becomes part of it, so
that the prompt before it stays the same."""

from treadle.core.state import RunState
from treadle.domain.calendar import minute
from treadle.domain.events import BudgetHint, EventData, MemoryRecalled
from treadle.domain.identity import Instant

_WHERE = {"terminal": "The user sits at a terminal.", "channel": "The user writes through a chat channel."}


def aside(state: RunState, notes: tuple[EventData, ...], now: Instant) -> str:
    """When and where a person has just spoken; and how much is left, for agents that want to know."""
    told = [note.note for note in notes if isinstance(note, BudgetHint)]
    if state.asker is not None and _a_person_spoke(state):
        told = [f"It is {minute(now)}. {_WHERE[state.asker]}", *told]
    return f"[aside from the engine, not from the user] {' '.join(told)}" if told else ""


def tells(note: EventData) -> bool:
    """Whether what goes with a request becomes part of the conversation."""
    if isinstance(note, MemoryRecalled):
        return note.place == "message"
    return not isinstance(note, BudgetHint) and bool(getattr(note, "note", ""))


def _a_person_spoke(state: RunState) -> bool:
    messages = state.transcript.messages
    return bool(state.unrecalled) or bool(messages and messages[-1].role == "user" and not state.calls)
