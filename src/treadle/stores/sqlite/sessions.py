"""Sessions on SQLite: their runs, and the lineage of their segments."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.domain.envelope import decode_data
from treadle.domain.events import RunEnd
from treadle.domain.ids import SessionId
from treadle.domain.modes import ApprovalMode
from treadle.domain.users import UserId
from treadle.domain.workspaces import Workspace, WorkspaceId
from treadle.ports.journal import RunRecord
from treadle.ports.sessions import SegmentRecord, SessionBasics, SessionRecord, make_default_title
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.transaction import Transaction, explain_deleted_session, to_run_record
from treadle.stores.sqlite.writer import SqliteWriter


class SqliteSessions:
    """Implements `ports.sessions.Sessions`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def newest(
        self,
        limit: int = 50,
        before: SessionId | None = None,
        agents: Sequence[str] | None = None,
        owner: UserId | None = None,
        *,
        children: bool = True,
        workspaces: Sequence[WorkspaceId] | None = None,
    ) -> Sequence[SessionRecord]:
        names = None if agents is None else msgspec.json.encode(agents).decode()
        wanted = (before, names, limit, children)

        def look(db: SqliteDatabase) -> list[SessionRecord]:
            if workspaces is not None:
                return _read(db, _find_latest_in_workspaces(db, wanted, owner, workspaces)[:limit])
            if owner is not None:
                return _read(db, _find_latest(db, "latest_runs_of_sessions_of_owner", (*wanted, owner)))
            return _read(db, _find_latest(db, "latest_runs_of_sessions", wanted))

        return await self._writer.read(look)

    async def basics(self, session_id: SessionId) -> SessionBasics | None:
        found = await self._writer.read(lambda db: db.execute(SQL["basics_of_session"], (session_id,)).fetchone())
        return None if found is None else _to_basics(found)

    async def find(self, session_id: SessionId) -> SessionRecord | None:
        def look(db: SqliteDatabase) -> SessionRecord | None:
            latest = db.execute(SQL["latest_run_of_session"], (session_id,)).fetchone()
            if latest is not None and latest[0] is not None:
                return _read(db, [latest[0]])[0]
            if db.execute(SQL["tombstone"], (session_id,)).fetchone() is not None:
                raise explain_deleted_session(db, session_id)
            return None

        return await self._writer.read(look)

    async def rename(self, session_id: SessionId, title: str) -> None:
        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["rename_session"], (session_id, title))

        await self._writer.write(work, lambda _: None, patient=False)

    async def set_model(self, session_id: SessionId, model: str | None) -> None:
        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["set_model_of_session"], (session_id, model))

        await self._writer.write(work, lambda _: None, patient=False)

    async def set_mode(self, session_id: SessionId, mode: ApprovalMode | None) -> None:
        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["set_mode_of_session"], (session_id, mode))

        await self._writer.write(work, lambda _: None, patient=False)

    async def runs(self, session_id: SessionId) -> Sequence[RunRecord]:
        found = await self._writer.read(lambda db: db.execute(SQL["runs_of_session"], (session_id,)).fetchall())
        return [to_run_record(row) for row in found]

    async def ends(self, session_id: SessionId) -> Sequence[RunEnd]:
        found = await self._writer.read(lambda db: db.execute(SQL["ends_of_session"], (session_id,)).fetchall())
        decoded = [decode_data(type_, raw, version) for type_, version, raw in found]
        return [data for data in decoded if isinstance(data, RunEnd)]

    async def segments(self, session_id: SessionId) -> Sequence[SegmentRecord]:
        found = await self._writer.read(lambda db: db.execute(SQL["segments"], (session_id,)).fetchall())
        return [SegmentRecord(*row) for row in found]


def _find_latest(db: SqliteDatabase, statement: str, values: tuple[Any, ...]) -> list[int]:
    """Return the latest run of each matching session."""
    return [int(row[0]) for row in db.execute(SQL[statement], values)]


def _find_latest_in_workspaces(
    db: SqliteDatabase, wanted: tuple[Any, ...], owner: UserId | None, workspaces: Sequence[WorkspaceId]
) -> list[int]:
    """Return the latest runs of sessions, newest first. Each workspace is read on its own, in the order of its
    index."""
    name, found = "latest_runs_of_sessions_in_workspace", list[int]()
    for workspace in set(workspaces):
        found += _find_latest(db, name, (*wanted, owner, workspace))
    return sorted(found, reverse=True)


def _read(db: SqliteDatabase, latest: Sequence[int]) -> list[SessionRecord]:
    """Return sessions by their latest runs."""
    numbers = msgspec.json.encode(latest).decode()
    return [_to_record(row) for row in db.execute(SQL["sessions"], (numbers,))]


def _to_basics(row: Any) -> SessionBasics:
    owner, agent, model, mode, workspace, folder, latest = row
    return SessionBasics(
        owner=owner,
        agent=agent,
        model=model,
        workspace=Workspace(workspace, folder),
        latest_run=latest,
        mode=mode,
    )


def _to_record(row: Any) -> SessionRecord:
    *facts, title, model, mode, workspace, folder, beginning = row
    shown = title or make_default_title(beginning)
    place = Workspace(workspace, folder)
    return SessionRecord(*facts, title=shown, model=model, mode=mode, workspace=place)
