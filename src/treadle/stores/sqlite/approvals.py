"""Approvals and grants on SQLite."""

from collections.abc import Sequence
from typing import Any

from treadle.domain.envelope import Origin
from treadle.domain.errors import UnknownApproval
from treadle.domain.ids import ApprovalId, RunId
from treadle.domain.workspaces import Workspace
from treadle.ports.approvals import ApprovalRecord, Grant
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.transaction import Transaction
from treadle.stores.sqlite.writer import SqliteWriter


class SqliteApprovals:
    """Implements `ports.approvals.Approvals`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def find(self, approval_id: ApprovalId) -> ApprovalRecord:
        found = await self._writer.read(lambda db: db.execute(SQL["approval"], (approval_id,)).fetchone())
        if found is None:
            raise UnknownApproval(
                f"There is no approval {approval_id} in this database. `treadle approvals list` shows pending "
                "approvals."
            )
        return _to_record(found)

    async def list_pending(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        def work(db: SqliteDatabase) -> list[ApprovalRecord]:
            if run_id is None:
                return [_to_record(row) for row in db.execute(SQL["pending_approvals"])]
            return [_to_record(row) for row in db.execute(SQL["pending_approvals_of_run"], (run_id,))]

        return await self._writer.read(work)

    async def grants(self, run_id: RunId) -> Sequence[Grant]:
        return await self._writer.read(lambda db: [Grant(*row) for row in db.execute(SQL["grants"], (run_id,))])

    async def revoke(self, run_id: RunId, grant: Grant) -> bool:
        values = (run_id, grant.tool, grant.pattern)

        def work(transaction: Transaction) -> bool:
            return bool(transaction.db.execute(SQL["revoke_grant"], values).fetchall())

        return await self._writer.write(work, lambda _: None, patient=False)


def _to_record(row: Any) -> ApprovalRecord:
    approval_id, run_id, session_id, agent_id, parent, *rest, workspace, folder = row
    origin = Origin(run_id, session_id, agent_id, parent)
    return ApprovalRecord(approval_id, origin, *rest, workspace=Workspace(workspace, folder))
