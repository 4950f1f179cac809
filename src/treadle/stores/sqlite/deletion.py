"""Deletion of sessions from SQLite that leaves no traces in its files.

Overwriting freed space (`secure_delete`) is not enough: where pages were split or merged, copies of rows remain in
the gaps. So the database file is rewritten afterwards, and the write-ahead log truncated."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import apsw
import msgspec

from treadle.domain.errors import InvalidState, StoreFull, StoreLocked, UnknownSession
from treadle.domain.ids import Instant, SessionId
from treadle.ports.clock import Clock
from treadle.ports.deletion import IdleSession, Tombstone
from treadle.stores.sqlite.connection import BUSY_TIMEOUT_MS, SQL, SqliteDatabase, connect, explain
from treadle.stores.sqlite.memory import forget_memory
from treadle.stores.sqlite.transaction import Transaction, explain_deleted_session
from treadle.stores.sqlite.writer import SqliteWriter

DELETE_STATEMENTS = (
    "delete_answered_requests",
    "delete_events",
    "delete_deliveries",
    "delete_approvals",
    "delete_said",
    "delete_summaries",
    "delete_labels",
    "delete_feedback",
    "delete_results",
    "delete_segments",
    "delete_grants",
    "delete_notes",
    "delete_reservations",
    "delete_tree_accounts",
    "delete_tree_windows",
    "delete_tree_warnings",
    "delete_dead_letters",
    "delete_channel_inbox",
    "delete_channel_outbox",
    "delete_channel_conversations",
    "bury_runs",
    "delete_runs",
)
"""Delete everything that belongs to a session, in this order: the runs, which the other statements look up, come
last."""


class SqliteDeletions:
    """Implements `ports.deletion.Deletions` in the process that owns the database."""

    def __init__(self, writer: SqliteWriter, path: str, clock: Clock) -> None:
        self._writer = writer
        self._path = path
        self._clock = clock

    async def delete(self, session_id: SessionId, by: str) -> Sequence[Tombstone]:
        def work(transaction: Transaction) -> list[Tombstone]:
            _refuse_unknown(transaction.db, session_id)
            family = _find_family(transaction.db, session_id)
            for member in family:
                _refuse_unfinished(transaction.db, member)
            return _delete_all(transaction, family, self._clock.now(), by)

        return await self._writer.write(work, _do_nothing, patient=False)

    async def idle(self, before: Instant, agent: str | None = None) -> Sequence[IdleSession]:
        found = await self._writer.read(lambda db: db.execute(SQL["idle_sessions"], (before, agent)).fetchall())
        return [_to_idle_session(row) for row in found]

    async def prune(self, session_ids: Sequence[SessionId], before: Instant, by: str) -> Sequence[Tombstone]:
        def work(transaction: Transaction) -> list[Tombstone]:
            idle = [session_id for session_id in session_ids if _is_idle(transaction.db, session_id, before)]
            return _delete_all(transaction, idle, self._clock.now(), by)

        return await self._writer.write(work, _do_nothing, patient=False)

    async def find_recalling_sessions(self, session_id: SessionId) -> Sequence[SessionId]:
        def look(db: SqliteDatabase) -> list[SessionId]:
            memories = db.execute(SQL["memories_from_session"], (session_id,)).fetchall()
            used = [memory_id for memory_id, uses in memories if uses]
            if not used:
                return []
            found = db.execute(SQL["recalled_elsewhere"], (session_id, msgspec.json.encode(used).decode()))
            return [SessionId(str(row[0])) for row in found]

        return await self._writer.read(look)

    async def clear(self, before: Instant) -> int:
        def work(transaction: Transaction) -> int:
            return len(transaction.db.execute(SQL["delete_old_requests"], (before,)).fetchall())

        count = await self._writer.write(work, _do_nothing, patient=False)
        if self._path != ":memory:":
            await asyncio.to_thread(_rewrite_file, self._path)
        return count


def _do_nothing(_: object) -> None:
    """Do nothing after the commit."""


def _to_idle_session(row: Any) -> IdleSession:
    return IdleSession(*row[:7])


# ── Checks ──


def _refuse_unknown(db: SqliteDatabase, session_id: SessionId) -> None:
    if db.execute(SQL["deletable"], (session_id,)).fetchone() is not None:
        return
    if db.execute(SQL["tombstone"], (session_id,)).fetchone() is not None:
        raise explain_deleted_session(db, session_id)
    raise UnknownSession(f"There is no session {session_id}. `treadle sessions list` shows all sessions.")


def _refuse_unfinished(db: SqliteDatabase, session_id: SessionId) -> None:
    if found := db.execute(SQL["first_unfinished"], (session_id,)).fetchone():
        raise InvalidState(
            f"{session_id} has a run that has not ended. Nothing was deleted. Wait for it to end, or cancel it "
            f"with: treadle runs cancel {found[0]}"
        )


def _is_idle(db: SqliteDatabase, session_id: SessionId, before: Instant) -> bool:
    found = db.execute(SQL["deletable"], (session_id,)).fetchone()
    if found is None:
        return False
    session = _to_idle_session(found)
    return session.unfinished == 0 and session.latest_at < before


def _find_family(db: SqliteDatabase, session_id: SessionId) -> list[SessionId]:
    """Return the session, and the sessions that were started only by its runs or by those of its family."""
    family = [session_id]
    for member in family:
        for (child,) in db.execute(SQL["sessions_under"], (member,)).fetchall():
            parents = {parent for (parent,) in db.execute(SQL["parents_of_session"], (child,))}
            if child not in family and parents <= {*family, child}:
                family.append(SessionId(str(child)))
    return family


# ── Deletion ──


def _delete_all(
    transaction: Transaction, session_ids: Sequence[SessionId], now: Instant, by: str
) -> list[Tombstone]:
    transaction.forget()
    [(position,)] = transaction.db.execute(SQL["latest_position"]).fetchall()
    return [_delete(transaction.db, session_id, now, by, position) for session_id in session_ids]


def _delete(db: SqliteDatabase, session_id: SessionId, now: Instant, by: str, position: int) -> Tombstone:
    from treadle.stores.sqlite.searches import remove_from_index

    [row] = db.execute(SQL["deletable"], (session_id,)).fetchall()
    session, agent_id = _to_idle_session(row), row[7]
    memories = [memory_id for memory_id, _ in db.execute(SQL["memories_from_session"], (session_id,))]
    for memory_id in memories:
        forget_memory(db, memory_id)
    remove_from_index(db, session_id)
    for name in DELETE_STATEMENTS:
        db.execute(SQL[name], (session_id,))
    counts = (session.runs, session.events, len(memories), session.first_at, session.latest_at, now, by)
    db.execute(SQL["bury_session"], (session_id, agent_id, *counts, position))
    return Tombstone(session_id, session.agent, *counts)


def _rewrite_file(path: str) -> None:
    """Rewrite the database without gaps and truncate the write-ahead log. Commits wait meanwhile."""
    try:
        with closing(connect(path, apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            connection.execute("VACUUM").fetchall()
            [(is_busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except apsw.FullError:
        raise StoreFull(_describe_leftovers(path, "the disk is too full to rewrite it. Free some space")) from None
    except apsw.Error as error:
        raise explain(error, path) from error
    if is_busy:
        raise StoreLocked(_describe_leftovers(path, "another program is reading it. Close that program"))


def _describe_leftovers(path: str, why: str) -> str:
    return (
        f"The session is deleted, but copies of its pages may remain in {path} and {path}-wal, because {why}, "
        "then run: treadle prune --older-than 36500d --yes"
    )
