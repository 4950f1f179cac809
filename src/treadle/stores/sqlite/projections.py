"""Projections of events, written in the same transaction so that lists need not read journals."""

from collections.abc import Callable

from treadle.domain.envelope import Draft
from treadle.domain.errors import InvalidState
from treadle.domain.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    RunEnd,
    RunForked,
    RunQueued,
    RunStart,
    SegmentOpened,
    UserMessage,
)
from treadle.domain.ids import ApprovalId, Instant
from treadle.ports.journal import summarize_message
from treadle.stores.run_facts import encode_facts, encode_labels, make_final_facts
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.memory_rows import MEMORY_PROJECTIONS
from treadle.stores.usage_counts import RunProgress


def _project_request(db: SqliteDatabase, run: int, draft: Draft) -> None:
    data = draft.data
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
            draft.timestamp,
            data.expires_at,
        ),
    )


def _project_decision(db: SqliteDatabase, _: int, draft: Draft) -> None:
    assert isinstance(draft.data, ApprovalDecided)
    db.execute(SQL["decide_approval"], (draft.data.decision, draft.data.approval_id))
    if draft.data.decision == "approve" and draft.data.remember == "session":
        db.execute(SQL["grant_what_was_approved"], (draft.data.approval_id,))


def _project_expiry(db: SqliteDatabase, _: int, draft: Draft) -> None:
    assert isinstance(draft.data, ApprovalExpired)
    db.execute(SQL["decide_approval"], ("expired", draft.data.approval_id))


def _project_segment(db: SqliteDatabase, run: int, draft: Draft) -> None:
    data = draft.data
    assert isinstance(data, SegmentOpened)
    values = (data.segment_id, data.parent, data.reason, data.messages, draft.timestamp, run)
    db.execute(SQL["insert_segment"], values)
    db.execute(SQL["forget_notes"], (run,))


def _project_queued(db: SqliteDatabase, run: int, draft: Draft) -> None:
    data = draft.data
    assert isinstance(data, RunQueued)
    if data.tags or data.metadata:
        labels = data.labels
        db.execute(SQL["note_labels"], (run, encode_labels(labels)))
        for key, value in labels.pairs():
            db.execute(SQL["insert_label"], (key, value, run, data.user))


def _project_start(db: SqliteDatabase, run: int, draft: Draft) -> None:
    assert isinstance(draft.data, RunStart)
    if draft.data.notes:
        db.execute(SQL["keep_notes"], (draft.data.workspace, draft.data.notes, run))


def _project_fork(db: SqliteDatabase, run: int, draft: Draft) -> None:
    """Copy what the fork shares with its origin: the whole text of truncated results, the title and the
    chosen model."""
    assert isinstance(draft.data, RunForked)
    db.execute(SQL["keep_results_of_fork"], (run, draft.data.run_id))
    db.execute(SQL["keep_choices_of_fork"], (run, draft.data.run_id))
    db.execute(SQL["open_summary"], (run, summarize_message(draft.data.asked)))


def _project_message(db: SqliteDatabase, run: int, draft: Draft) -> None:
    assert isinstance(draft.data, UserMessage)
    db.execute(SQL["open_summary"], (run, summarize_message(draft.data.message.text)))


PROJECTIONS: dict[str, Callable[[SqliteDatabase, int, Draft], None]] = {
    "approval_requested": _project_request,
    "approval_decided": _project_decision,
    "approval_expired": _project_expiry,
    **MEMORY_PROJECTIONS,
    "run_queued": _project_queued,
    "user_message": _project_message,
    "run_start": _project_start,
    "run_forked": _project_fork,
    "segment_opened": _project_segment,
}
"""By event type. Each is called with the database, the number of the run and the event."""


def project_end(db: SqliteDatabase, run: int, end: RunEnd, model: str) -> None:
    """Write the summary of a run that has ended, with the model that was resolved for it."""
    used = end.metrics
    tokens, facts = used.input_tokens + used.output_tokens, encode_facts(make_final_facts(end, model))
    db.execute(SQL["close_summary"], (run, used.cost, tokens, used.steps, used.duration_ms, facts))


def project_progress(db: SqliteDatabase, run: int, progress: RunProgress) -> None:
    """Add to the summary of a run in progress."""
    cost, tokens, steps, facts = progress
    db.execute(SQL["add_progress"], (run, cost, tokens, steps, encode_facts(facts)))


def require_open_approval(db: SqliteDatabase, approval_id: ApprovalId, now: Instant) -> None:
    """Raise InvalidState unless the approval is undecided and has not expired."""
    found = db.execute(SQL["state_of_approval"], (approval_id,)).fetchone()
    if found is None:
        raise InvalidState(f"{approval_id} is no longer open.")
    expires_at, decision = found
    if decision is not None or (expires_at is not None and expires_at <= now):
        raise InvalidState(f"{approval_id} is no longer open.")
