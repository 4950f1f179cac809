"""Facts about a run that its first event records, and that stores keep in columns: its owner, its workspace, its
labels, and whether it has deps of its own."""

from collections.abc import Sequence

import msgspec

from treadle.domain.envelope import Draft
from treadle.domain.errors import SessionContinued, SessionTaken
from treadle.domain.events import RunQueued
from treadle.domain.ids import RunId, SessionId
from treadle.domain.labels import NO_LABELS, Labels
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import UNKNOWN_WORKSPACE, Workspace


def read_owner_of_run(opening: Sequence[Draft]) -> UserId:
    """Return the owner of a run that starts with these events."""
    queued = _find_queued(opening)
    return LOCAL_USER if queued is None else queued.user


def read_workspace_of_run(opening: Sequence[Draft]) -> Workspace:
    """Return the workspace of a run that starts with these events."""
    queued = _find_queued(opening)
    return UNKNOWN_WORKSPACE if queued is None or queued.workspace is None else queued.workspace


def has_own_deps(opening: Sequence[Draft]) -> bool:
    """Return whether a run that starts with these events was submitted with deps of its own."""
    queued = _find_queued(opening)
    return queued is not None and queued.own_deps


def read_followed_run(opening: Sequence[Draft]) -> RunId | None:
    """Return the run that must be the latest of the session when a run starts with these events, or None."""
    queued = _find_queued(opening)
    return None if queued is None or queued.follows is None else queued.follows.run_id


def encode_labels(labels: Labels) -> str:
    """Return the labels of a run as its summary holds them."""
    return msgspec.json.encode(labels).decode()


_labels = msgspec.json.Decoder(Labels)


def decode_labels(written: str) -> Labels:
    """Return the labels in the summary of a run, which are empty text if there are none."""
    return _labels.decode(written) if written else NO_LABELS


def _find_queued(opening: Sequence[Draft]) -> RunQueued | None:
    return next((draft.data for draft in opening if isinstance(draft.data, RunQueued)), None)


def explain_continued_session(session_id: SessionId) -> SessionContinued:
    """Return the error for a run that was to follow another one, which others follow already."""
    return SessionContinued(f"{session_id} has gone on. Start another session from the followed run.")


def explain_taken_session(session_id: SessionId) -> SessionTaken:
    """Return the error for a run submitted to a session of another owner."""
    return SessionTaken(f"{session_id} belongs to another user. Start another session.")
