"""Deletion of sessions from PostgreSQL in one transaction, while other processes continue."""

import uuid
from collections.abc import Sequence

from treadle.domain.errors import InvalidState, UnknownSession
from treadle.domain.ids import Instant, SessionId
from treadle.ports.clock import Clock
from treadle.ports.deletion import IdleSession, Tombstone
from treadle.stores.postgres.batch import explain_deleted_session
from treadle.stores.postgres.connection import DRIVER_ERRORS, escape_nul, explain, unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow

AFFECTED_TABLES = (
    "runs, events, deliveries, said, approvals, grants, results, segments, session_notes, memories, memory_codes, "
    "memory_vectors, requests, accounts, windows, reservations, warnings, dead_letters"
)
"""The tables that lose rows."""


class PostgresDeletions:
    """Implements `ports.deletion.Deletions`. Each deletion has an id, so that a retry after a lost connection finds
    it done."""

    def __init__(self, database: PostgresDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def delete(self, session_id: SessionId, by: str) -> Sequence[Tombstone]:
        deletion = uuid.uuid4().hex
        found = await self._database.row("delete_session", session_id, self._clock.now(), by, deletion)
        assert found is not None, "a function always returns a row"
        unknown, unfinished, where = found
        if unknown:
            raise await self._unknown(session_id)
        if unfinished is not None:
            raise InvalidState(
                f"{where} has a run that has not ended. Nothing was deleted. Wait for it to end, or cancel it "
                f"with: treadle runs cancel {unfinished}"
            )
        return await self._tombstones(deletion)

    async def idle(self, before: Instant, agent: str | None = None) -> Sequence[IdleSession]:
        return [_to_idle_session(row) for row in await self._database.rows("idle_sessions", before, agent)]

    async def prune(self, session_ids: Sequence[SessionId], before: Instant, by: str) -> Sequence[Tombstone]:
        deletion, wanted = uuid.uuid4().hex, list(map(escape_nul, session_ids))
        await self._database.rows("prune_sessions", wanted, before, self._clock.now(), by, deletion)
        return await self._tombstones(deletion)

    async def find_recalling_sessions(self, session_id: SessionId) -> Sequence[SessionId]:
        return [SessionId(row[0]) for row in await self._database.rows("recalled_elsewhere", session_id)]

    async def clear(self, before: Instant) -> int:
        """Let the server reuse the space of deleted rows. The server overwrites it over time; until then, and while
        older transactions are open, its files still contain the rows. They also remain in the write-ahead log, in
        standbys and in backups for as long as the operator keeps those."""
        count = len(await self._database.rows("forget_requests", before))
        try:
            connection = await self._database.connect()
            try:
                await connection.execute("SET statement_timeout = 0")
                await connection.execute(f"VACUUM {AFFECTED_TABLES}")
            finally:
                await connection.close(timeout=1)
        except DRIVER_ERRORS as error:
            raise explain(error, self._database.url) from error
        return count

    async def _unknown(self, session_id: SessionId) -> UnknownSession:
        if deleted := await self._database.row("grave", session_id):
            return explain_deleted_session((deleted[0], deleted[1], unescape_nul(deleted[2])))
        return UnknownSession(f"There is no session {session_id}. `treadle sessions list` shows all sessions.")

    async def _tombstones(self, deletion: str) -> list[Tombstone]:
        return [_to_tombstone(row) for row in await self._database.rows("tombstones", deletion)]


def _to_idle_session(row: PostgresRow) -> IdleSession:
    session_id, agent, *rest = row
    return IdleSession(session_id, unescape_nul(agent), *rest)


def _to_tombstone(row: PostgresRow) -> Tombstone:
    session_id, agent, *counts, at, by = row
    runs, events, memories, first_at, latest_at = counts
    return Tombstone(
        session_id=session_id,
        agent=unescape_nul(agent),
        runs=runs,
        events=events,
        memories=memories,
        first_at=first_at,
        latest_at=latest_at,
        deleted_at=at,
        deleted_by=unescape_nul(by),
    )
