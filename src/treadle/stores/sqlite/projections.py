"""What is written beside an event, in its transaction, so that lists need not read journals."""

from collections.abc import Callable

from treadle.domain.envelope import Draft
from treadle.domain.errors import InvalidState
from treadle.domain.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    RunForked,
    RunStart,
    SegmentOpened,
)
from treadle.domain.ids import ApprovalId, Instant
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.memory_rows import REMEMBERING


def _requested(db: SqliteDatabase, run: int, made: Draft) -> None:
    data = made.data
    assert isinstance(data, ApprovalRequested)
    db.execute(
        SQL["insert_approval"],
        (
            data.approval_id,
            run,
            data.call_id,
            data.name,
            data.arguments,
            data.reason,
            data.pattern,
            made.timestamp,
            data.expires_at,
        ),
    )


def _decided(db: SqliteDatabase, _: int, made: Draft) -> None:
    assert isinstance(made.data, ApprovalDecided)
    db.execute(SQL["decide_approval"], (made.data.decision, made.data.approval_id))
    if made.data.decision == "approve" and made.data.remember == "session":
        db.execute(SQL["grant_what_was_approved"], (made.data.approval_id,))


def _expired(db: SqliteDatabase, _: int, made: Draft) -> None:
    assert isinstance(made.data, ApprovalExpired)
    db.execute(SQL["decide_approval"], ("expired", made.data.approval_id))


def _segment_opened(db: SqliteDatabase, run: int, made: Draft) -> None:
    data = made.data
    assert isinstance(data, SegmentOpened)
    values = (data.segment_id, data.parent, data.reason, data.messages, made.timestamp, run)
    db.execute(SQL["insert_segment"], values)
    db.execute(SQL["forget_notes"], (run,))


def _started(db: SqliteDatabase, run: int, made: Draft) -> None:
    assert isinstance(made.data, RunStart)
    if made.data.notes:
        db.execute(SQL["keep_notes"], (made.data.workspace, made.data.notes, run))


def _forked(db: SqliteDatabase, run: int, made: Draft) -> None:
    """Copy what the fork shares with its origin: the whole text of truncated results, and the title."""
    assert isinstance(made.data, RunForked)
    db.execute(SQL["keep_results_of_fork"], (run, made.data.run_id))
    db.execute(SQL["keep_title_of_fork"], (run, made.data.run_id))


PROJECTIONS: dict[str, Callable[[SqliteDatabase, int, Draft], None]] = {
    "approval_requested": _requested,
    "approval_decided": _decided,
    "approval_expired": _expired,
    **REMEMBERING,
    "run_start": _started,
    "run_forked": _forked,
    "segment_opened": _segment_opened,
}
"""By type of event. Each is handed the database, the number of the run and the event."""


def refuse_closed(db: SqliteDatabase, approval_id: ApprovalId, now: Instant) -> None:
    """Raise InvalidState unless the approval still waits for its answer, and its time has not run out."""
    found = db.execute(SQL["approval"], (approval_id,)).fetchone()
    if found is None:
        raise InvalidState(f"{approval_id} is not open any more.")
    expires_at, decision, _, _ = found[-4:]
    if decision is not None or (expires_at is not None and expires_at <= now):
        raise InvalidState(f"{approval_id} is no longer open.")
