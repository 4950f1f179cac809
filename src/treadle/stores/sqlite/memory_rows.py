"""Inserting memories on SQLite, and the projections of memory events, which are written in the same transaction."""

import logging
from collections.abc import Callable

import apsw

from treadle.domain.envelope import Draft
from treadle.domain.events import JournalWritten, MemoryRecalled, MemorySaved
from treadle.domain.ids import AgentId
from treadle.domain.memories import Memory
from treadle.domain.text import fold_words
from treadle.domain.users import UserId
from treadle.stores.memories import compute_digest, list_stored_marks, replace_surrogates
from treadle.stores.sqlite.connection import SQL, SqliteDatabase

logger = logging.getLogger(__name__)

BAD_MEMORY_ERRORS = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.SQLError,
    ValueError,
    TypeError,
)
"""Errors that concern a single memory and not the disk."""


def insert_memory(db: SqliteDatabase, memory: Memory) -> bool:
    """Store a memory with its words, and return whether it is new. A memory whose id exists, or a fact whose text
    exists, is left unchanged."""
    text = replace_surrogates(memory.text)
    words = mark_words(text, memory.agent_id, memory.owner)
    found = db.execute(
        SQL["insert_memory"],
        (
            memory.memory_id,
            memory.agent_id,
            memory.kind,
            text,
            words,
            compute_digest(text),
            memory.created_at,
            memory.source,
            memory.used_at,
            memory.uses,
            memory.pinned,
            memory.session_id,
            memory.run_id,
            memory.owner,
            memory.workspace,
        ),
    ).fetchone()
    if found is None:
        return False
    db.execute(SQL["insert_memory_words"], (found[0], words))
    return True


def mark_words(text: str, agent_id: AgentId, owner: UserId) -> str:
    """Return the words of a text as they are indexed: once per mark."""
    found = fold_words(text)
    return " ".join([prefix + word for prefix in list_stored_marks(agent_id, owner) for word in found])


def _project_saved(db: SqliteDatabase, run: int, draft: Draft) -> None:
    if not isinstance(draft.data, MemorySaved):
        return
    data, at = draft.data, draft.timestamp
    if (memory := _build_run_memory(db, run, draft, data.memory_id, data.text)) is None:
        return
    if data.repeats is not None:
        repeated = (at, data.pinned, data.repeats, memory.agent_id, memory.owner, memory.workspace)
        if db.execute(SQL["repeat_memory"], repeated).fetchall():
            return
    fact = Memory(
        memory_id=memory.memory_id,
        agent_id=memory.agent_id,
        kind="long_term",
        text=memory.text,
        created_at=at,
        source=data.source,
        pinned=data.pinned,
        session_id=memory.session_id,
        run_id=memory.run_id,
        owner=memory.owner,
        workspace=memory.workspace,
    )
    if not insert_memory(db, fact):
        same = (at, data.pinned, fact.agent_id, fact.owner, fact.workspace, compute_digest(fact.text))
        db.execute(SQL["repeat_same_memory"], same).fetchall()


def _project_journal(db: SqliteDatabase, run: int, draft: Draft) -> None:
    if isinstance(draft.data, JournalWritten):
        memory = _build_run_memory(db, run, draft, draft.data.memory_id, draft.data.text)
        if memory is not None:
            insert_memory(db, memory)


def _build_run_memory(db: SqliteDatabase, run: int, draft: Draft, memory_id: str, text: str) -> Memory | None:
    """Return the note of a run, or None if there is nothing to store or it is stored already."""
    found = db.execute(SQL["run_of_memory"], (run,)).fetchone()
    if found is None or not text.strip() or db.execute(SQL["has_memory"], (memory_id,)).fetchone():
        return None
    agent_id, session_id, run_id, owner, workspace = found
    return Memory(
        memory_id,
        agent_id,
        "journal",
        text,
        draft.timestamp,
        session_id=session_id,
        run_id=run_id,
        owner=owner,
        workspace=workspace,
    )


def _project_recalled(db: SqliteDatabase, _: int, draft: Draft) -> None:
    if isinstance(draft.data, MemoryRecalled):
        used = {reminder.memory_id for reminder in draft.data.reminders}
        db.executemany(SQL["recalled_memory"], ((draft.timestamp, memory_id) for memory_id in sorted(used)))


def _log_bad_memories(
    project: Callable[[SqliteDatabase, int, Draft], None],
) -> Callable[[SqliteDatabase, int, Draft], None]:
    """Wrap a projection so that a memory that cannot be stored is logged and skipped. The run continues."""

    def project_or_skip(db: SqliteDatabase, run: int, draft: Draft) -> None:
        db.execute("SAVEPOINT memory")
        try:
            project(db, run, draft)
        except BAD_MEMORY_ERRORS as error:
            db.execute("ROLLBACK TO memory")
            logger.warning("skipped a memory that could not be stored (%s): %s", draft.type, error)
        db.execute("RELEASE memory")

    return project_or_skip


MEMORY_PROJECTIONS: dict[str, Callable[[SqliteDatabase, int, Draft], None]] = {
    "memory_saved": _log_bad_memories(_project_saved),
    "journal_written": _log_bad_memories(_project_journal),
    "memory_recalled": _log_bad_memories(_project_recalled),
}
"""By event type, as in `projections`."""
