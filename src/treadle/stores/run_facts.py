"""Facts about a run that stores keep in columns: from its first event its owner, its workspace, its labels and
whether it has deps of its own, and from its last event what lists show of it."""

from collections.abc import Sequence

import msgspec

from treadle.domain.envelope import Draft
from treadle.domain.errors import SessionContinued, SessionTaken
from treadle.domain.events import RunEnd, RunQueued
from treadle.domain.ids import RunId, SessionId
from treadle.domain.labels import NO_LABELS, Labels
from treadle.domain.modes import ApprovalMode
from treadle.domain.runs import NO_FACTS, RunFacts
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import UNKNOWN_WORKSPACE, Workspace
from treadle.ports.journal import summarize_message


def read_owner_of_run(opening: Sequence[Draft]) -> UserId:
    """Return the owner of a run that starts with these events."""
    queued = _find_queued(opening)
    return LOCAL_USER if queued is None else queued.user


def read_workspace_of_run(opening: Sequence[Draft]) -> Workspace:
    """Return the workspace of a run that starts with these events."""
    queued = _find_queued(opening)
    return UNKNOWN_WORKSPACE if queued is None or queued.workspace is None else queued.workspace


def read_mode_of_run(opening: Sequence[Draft]) -> ApprovalMode | None:
    """Return the mode that a run that starts with these events begins with."""
    queued = _find_queued(opening)
    return None if queued is None else queued.mode


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


def make_final_facts(end: RunEnd, model: str = "") -> RunFacts:
    """Return what lists show of a run that has ended."""
    used = end.metrics
    return RunFacts(
        model=model,
        credits=used.credits,
        tool_calls=used.actions,
        model_calls=used.model_calls,
        model_ms=used.model_ms,
        tool_ms=used.tool_ms,
        unpriced_calls=used.unpriced_calls,
        score=end.score,
        reason="" if end.status == "completed" else summarize_message(end.reason),
    )


def encode_facts(facts: RunFacts) -> str:
    """Return the facts of a run as its summary holds them."""
    return msgspec.json.encode(facts).decode()


_facts = msgspec.json.Decoder(RunFacts)


def decode_facts(written: str) -> RunFacts:
    """Return the facts in the summary of a run, which are empty text if there are none."""
    return _facts.decode(written) if written else NO_FACTS


def _find_queued(opening: Sequence[Draft]) -> RunQueued | None:
    return next((draft.data for draft in opening if isinstance(draft.data, RunQueued)), None)


def explain_continued_session(session_id: SessionId) -> SessionContinued:
    """Return the error for a run that was to follow another one, which others follow already."""
    return SessionContinued(f"{session_id} has gone on. Start another session from the followed run.")


def explain_taken_session(session_id: SessionId) -> SessionTaken:
    """Return the error for a run submitted to a session of another owner."""
    return SessionTaken(f"{session_id} belongs to another user. Start another session.")
