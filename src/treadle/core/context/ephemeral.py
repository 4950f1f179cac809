"""What the engine tells the model besides the user's words: the time and place before the user's message, and the
notes of the guards. All of it becomes part of the transcript, so that the prompt prefix only grows."""

from collections.abc import Mapping
from typing import Final

from treadle.core.state import RunState
from treadle.domain.events import EventData, MemoryRecalled
from treadle.domain.ids import Instant
from treadle.domain.permissions import Asker
from treadle.domain.time_format import format_minute

_PLACES: Final[Mapping[Asker, str]] = {  # a message through the API comes from a program
    "terminal": "; the user is at a terminal",
    "channel": "; the user writes through a chat channel",
    "command": "",
    "editor": "; the user is in an editor",
    "dashboard": "; the user writes in the dashboard",
}


def make_preface(state: RunState, now: Instant) -> str:
    """Return the time and place to put before the latest message, or "" if there is none from a user or a
    schedule."""
    if not state.texts_to_recall:
        return ""
    asker = state.review.asker
    if asker in _PLACES:
        place = _PLACES[asker] if state.lineage is None else ""  # a child run's message comes from its parent
    elif state.is_scheduled:
        place = "; a scheduled message"
    else:
        return ""  # a program gets the prompt that it wrote
    return f"[{format_minute(now)}{place}]"


def joins_transcript(note: EventData) -> bool:
    """Return whether an event that goes with a request becomes part of the transcript."""
    if isinstance(note, MemoryRecalled):
        return note.place == "message"
    return bool(getattr(note, "note", ""))
