"""Sessions on PostgreSQL: their runs, and the lineage of their segments."""

from collections.abc import Sequence

from treadle.domain.envelope import decode_data
from treadle.domain.events import RunEnd
from treadle.domain.ids import SessionId
from treadle.domain.modes import ApprovalMode
from treadle.domain.users import UserId
from treadle.domain.workspaces import Workspace, WorkspaceId
from treadle.ports.journal import RunRecord
from treadle.ports.sessions import SegmentRecord, SessionBasics, SessionRecord, make_default_title
from treadle.stores.postgres.batch import explain_deleted_session
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow
from treadle.stores.postgres.runs import to_run_record


class PostgresSessions:
    """Implements `ports.sessions.Sessions`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

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
        names, places = (None if given is None else list(given) for given in (agents, workspaces))
        found = await self._database.rows("sessions", before, names, limit, owner, children, places)
        return [_to_record(row) for row in found]

    async def basics(self, session_id: SessionId) -> SessionBasics | None:
        found = await self._database.row("basics_of_session", session_id)
        if found is None:
            return None
        owner, agent, model, mode, workspace, folder, latest = found
        return SessionBasics(
            owner=owner,
            agent=unescape_nul(agent),
            model=model,
            workspace=Workspace(workspace, folder),
            latest_run=latest,
            mode=mode,
        )

    async def find(self, session_id: SessionId) -> SessionRecord | None:
        found = await self._database.row("session", session_id)
        if found is not None:
            return _to_record(found)
        if grave := await self._database.row("grave", session_id):
            raise explain_deleted_session((grave[0], grave[1], grave[2]))
        return None

    async def rename(self, session_id: SessionId, title: str) -> None:
        await self._database.rows("rename_session", session_id, title)

    async def set_model(self, session_id: SessionId, model: str | None) -> None:
        await self._database.rows("set_model_of_session", session_id, model)

    async def set_mode(self, session_id: SessionId, mode: ApprovalMode | None) -> None:
        await self._database.rows("set_mode_of_session", session_id, mode)

    async def runs(self, session_id: SessionId) -> Sequence[RunRecord]:
        return [to_run_record(row) for row in await self._database.rows("runs_of_session", session_id)]

    async def ends(self, session_id: SessionId) -> Sequence[RunEnd]:
        found = await self._database.rows("ends_of_session", session_id)
        decoded = [decode_data(type_, raw, version) for type_, version, raw in found]
        return [data for data in decoded if isinstance(data, RunEnd)]

    async def segments(self, session_id: SessionId) -> Sequence[SegmentRecord]:
        return [SegmentRecord(*row) for row in await self._database.rows("segments", session_id)]


def _to_record(row: PostgresRow) -> SessionRecord:
    session_id, agent, *facts, title, model, mode, workspace, folder, beginning = row
    return SessionRecord(
        session_id,
        unescape_nul(agent),
        *facts,
        title=make_default_title(beginning) if title is None else unescape_nul(title),
        model=model,
        mode=mode,
        workspace=Workspace(workspace, folder),
    )
