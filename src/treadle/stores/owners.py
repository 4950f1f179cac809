"""The owner of a run, which its first event records."""

from collections.abc import Sequence

from treadle.domain.envelope import Draft
from treadle.domain.errors import SessionTaken
from treadle.domain.events import RunQueued
from treadle.domain.ids import SessionId
from treadle.domain.users import LOCAL_USER, UserId


def read_owner_of_run(opening: Sequence[Draft]) -> UserId:
    """Return the owner of a run that starts with these events."""
    for draft in opening:
        if isinstance(draft.data, RunQueued):
            return draft.data.user
    return LOCAL_USER


def explain_taken_session(session_id: SessionId) -> SessionTaken:
    """Return the error for a run submitted to a session of another owner."""
    return SessionTaken(f"{session_id} belongs to another user. Start another session.")
