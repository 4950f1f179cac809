"""How what a run remembers is written beside its event, in the same transaction; and how any memory is kept."""

import logging
from collections.abc import Callable

import apsw

from treadle.domain.envelope import Draft
from treadle.domain.events import JournalWritten, MemoryRecalled, MemorySaved
from treadle.domain.ids import AgentId
from treadle.domain.memories import Memory
from treadle.domain.text import folded
from treadle.domain.users import UserId
from treadle.stores.memories import digest, marks_kept, storable_text
from treadle.stores.sqlite.connection import SQL, SqliteDatabase

logger = logging.getLogger(__name__)

ODD = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.SQLError, ValueError, TypeError)
"""What says that one memory cannot be kept, and nothing about the disk."""


def keep_memory(db: SqliteDatabase, memory: Memory) -> bool:
    """Keep it with its words; whether it is new. One whose id is there already is left as it is, and so is a fact
    whose text is."""
    text = storable_text(memory.text)
    words = marked_words(text, memory.agent_id, memory.owner)
    found = db.execute(
        SQL["insert_memory"],
        (
            memory.memory_id,
            memory.agent_id,
            memory.kind,
            text,
            words,
            digest(text),
            memory.created_at,
            memory.source,
            memory.used_at,
            memory.uses,
            memory.pinned,
            memory.session_id,
            memory.run_id,
            memory.owner,
        ),
    ).fetchone()
    if found is None:
        return False
    db.execute(SQL["insert_memory_words"], (found[0], words))
    return True


def marked_words(text: str, agent_id: AgentId, owner: UserId) -> str:
    """The words of a text as they are kept: once for each mark."""
    found = folded(text)
    return " ".join([prefix + word for prefix in marks_kept(agent_id, owner) for word in found])


def _saved(db: SqliteDatabase, run: int, made: Draft) -> None:
    if not isinstance(made.data, MemorySaved):
        return
    data, at = made.data, made.timestamp
    if (memory := _of_run(db, run, made, data.memory_id, data.text)) is None:
        return
    if data.repeats is not None:
        said_again = (at, data.pinned, data.repeats, memory.agent_id, memory.owner)
        if db.execute(SQL["repeat_memory"], said_again).fetchall():
            return
    kept = Memory(
        memory.memory_id, memory.agent_id, "long_term", memory.text, at, data.source,
        pinned=data.pinned, session_id=memory.session_id, run_id=memory.run_id, owner=memory.owner,
    )  # fmt: skip
    if not keep_memory(db, kept):
        same = (at, data.pinned, kept.agent_id, kept.owner, digest(kept.text))
        db.execute(SQL["repeat_same_memory"], same).fetchall()


def _journal_written(db: SqliteDatabase, run: int, made: Draft) -> None:
    if isinstance(made.data, JournalWritten):
        memory = _of_run(db, run, made, made.data.memory_id, made.data.text)
        if memory is not None:
            keep_memory(db, memory)


def _of_run(db: SqliteDatabase, run: int, made: Draft, memory_id: str, text: str) -> Memory | None:
    """What a run noted; None where there is nothing to keep, or it is kept already."""
    found = db.execute(SQL["run_of_memory"], (run,)).fetchone()
    if found is None or not text.strip() or db.execute(SQL["has_memory"], (memory_id,)).fetchone():
        return None
    agent_id, session_id, run_id, owner = found
    return Memory(
        memory_id,
        agent_id,
        "journal",
        text,
        made.timestamp,
        session_id=session_id,
        run_id=run_id,
        owner=owner,
    )


def _recalled(db: SqliteDatabase, _: int, made: Draft) -> None:
    if isinstance(made.data, MemoryRecalled):
        used = {reminder.memory_id for reminder in made.data.reminders}
        db.executemany(SQL["recalled_memory"], ((made.timestamp, memory_id) for memory_id in sorted(used)))


def _harmless(
    project: Callable[[SqliteDatabase, int, Draft], None],
) -> Callable[[SqliteDatabase, int, Draft], None]:
    """The same, but a memory that cannot be kept is told of and left out: no run stops for it."""

    def projected(db: SqliteDatabase, run: int, made: Draft) -> None:
        db.execute("SAVEPOINT memory")
        try:
            project(db, run, made)
        except ODD as error:
            db.execute("ROLLBACK TO memory")
            logger.warning("a memory could not be kept (%s): %s", made.type, error)
        db.execute("RELEASE memory")

    return projected


REMEMBERING: dict[str, Callable[[SqliteDatabase, int, Draft], None]] = {
    "memory_saved": _harmless(_saved),
    "journal_written": _harmless(_journal_written),
    "memory_recalled": _harmless(_recalled),
}
"""By type of event, as in `projections`."""
