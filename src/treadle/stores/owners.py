"""Whose a run is, as its first event says."""

from collections.abc import Sequence

from treadle.domain.envelope import Draft
from treadle.domain.errors import SessionTaken
from treadle.domain.events import RunQueued
from treadle.domain.ids import SessionId
from treadle.domain.users import LOCAL_USER, UserId


def read_owner_of_run(opening: Sequence[Draft]) -> UserId:
    """The owner of a run that begins with these events."""
    for draft in opening:
        if isinstance(draft.data, RunQueued):
            return draft.data.user
    return LOCAL_USER


def explain_taken_session(session_id: SessionId) -> SessionTaken:
    """For a run that was to begin in a session of another owner."""
    return SessionTaken(f"{session_id} belongs to another user. Begin another session.")
