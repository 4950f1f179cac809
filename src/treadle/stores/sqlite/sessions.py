"""Sessions on SQLite: their runs, and the lineage of their segments."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.domain.envelope import decode_data
from treadle.domain.events import RunEnd
from treadle.domain.ids import SessionId
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
        places = None if workspaces is None else msgspec.json.encode(workspaces).decode()
        if owner is None:
            statement, wanted = SQL["sessions"], (before, names, limit, children, places)
        else:
            statement, wanted = SQL["sessions_of_owner"], (before, names, limit, children, owner, places)
        found = await self._writer.read(lambda db: db.execute(statement, wanted).fetchall())
        return [_to_record(row) for row in found]

    async def basics(self, session_id: SessionId) -> SessionBasics | None:
        found = await self._writer.read(lambda db: db.execute(SQL["basics_of_session"], (session_id,)).fetchone())
        return None if found is None else _to_basics(found)

    async def find(self, session_id: SessionId) -> SessionRecord | None:
        def look(db: SqliteDatabase) -> SessionRecord | None:
            found = db.execute(SQL["session"], (session_id,)).fetchone()
            if found is None and db.execute(SQL["tombstone"], (session_id,)).fetchone() is not None:
                raise explain_deleted_session(db, session_id)
            return None if found is None else _to_record(found)

        return await self._writer.read(look)

    async def rename(self, session_id: SessionId, title: str) -> None:
        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["rename_session"], (session_id, title))

        await self._writer.write(work, lambda _: None, patient=False)

    async def set_model(self, session_id: SessionId, model: str | None) -> None:
        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["set_model_of_session"], (session_id, model))

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


def _to_basics(row: Any) -> SessionBasics:
    owner, agent, model, workspace, folder, latest = row
    return SessionBasics(owner, agent, model, Workspace(workspace, folder), latest)


def _to_record(row: Any) -> SessionRecord:
    *facts, title, model, workspace, folder, beginning = row
    shown = title or make_default_title(beginning)
    return SessionRecord(*facts, title=shown, model=model, workspace=Workspace(workspace, folder))
