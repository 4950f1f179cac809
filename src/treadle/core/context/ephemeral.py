"""What the engine tells the model besides the user's words: the time and place before the user's message, and the
notes of the guards. All of it becomes part of the transcript, so that the prompt prefix only grows."""

from collections.abc import Mapping
from typing import Final

from treadle.core.state import RunState
from treadle.domain.events import BudgetHint, EventData, MemoryRecalled
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
    """Return the time to put before the latest message, with the place of its user if that is known, or "" if there
    is no new message. A message of a program or a schedule has a time too, except in runs of older journals."""
    asker = state.review.asker
    if not state.unrecalled or not (state.prompt.message_times or asker in _PLACES):
        return ""
    is_child = state.lineage is not None  # its message comes from its parent
    place = "" if asker is None or is_child else _PLACES.get(asker, "")
    return f"[{format_minute(now)}{place}]"


def joins_transcript(note: EventData) -> bool:
    """Return whether an event that goes with a request becomes part of the transcript."""
    if isinstance(note, MemoryRecalled):
        return note.place == "message"
    if isinstance(note, BudgetHint):
        return note.kept
    return bool(getattr(note, "note", ""))
