"""What the engine tells the model apart from the user's words: time and place in front of the user's message, and
notes of the guards. All of it becomes part of the conversation, so that the prompt prefix only grows."""

from collections.abc import Mapping
from typing import Final

from treadle.core.state import RunState
from treadle.domain.events import BudgetHint, EventData, MemoryRecalled
from treadle.domain.ids import Instant
from treadle.domain.permissions import Asker
from treadle.domain.time_format import minute

_PLACES: Final[Mapping[Asker, str]] = {
    "terminal": "; the user is at a terminal",
    "channel": "; the user writes through a chat channel",
    "command": "",
}


def make_preface(state: RunState, now: Instant) -> str:
    """Return the time and place to put in front of the message that a person has just sent; "" for no message, or
    for one that no person has sent."""
    if state.asker is None or not state.unrecalled:
        return ""
    place = _PLACES[state.asker] if state.lineage is None else ""  # the message of a child is its parent's
    return f"[{minute(now)}{place}]"


def joins_transcript(note: EventData) -> bool:
    """Whether what goes with a request becomes part of the conversation."""
    if isinstance(note, MemoryRecalled):
        return note.place == "message"
    if isinstance(note, BudgetHint):
        return note.kept
    return bool(getattr(note, "note", ""))
