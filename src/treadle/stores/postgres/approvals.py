"""Approvals and grants on PostgreSQL."""

from collections.abc import Sequence

from treadle.domain.envelope import Origin
from treadle.domain.errors import UnknownApproval
from treadle.domain.ids import ApprovalId, RunId
from treadle.domain.workspaces import Workspace
from treadle.ports.approvals import ApprovalRecord, Grant
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow


class PostgresApprovals:
    """Implements `ports.approvals.Approvals`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def find(self, approval_id: ApprovalId) -> ApprovalRecord:
        found = await self._database.row("approval", approval_id)
        if found is None:
            raise UnknownApproval(
                f"There is no approval {approval_id} in this database. `treadle approvals list` shows pending "
                "approvals."
            )
        return _to_record(found)

    async def list_pending(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        return [_to_record(row) for row in await self._database.rows("pending_approvals", run_id)]

    async def grants(self, run_id: RunId) -> Sequence[Grant]:
        return [Grant(*map(unescape_nul, row)) for row in await self._database.rows("grants", run_id)]

    async def revoke(self, run_id: RunId, grant: Grant) -> bool:
        return bool(await self._database.rows("revoke_grant", run_id, grant.tool, grant.pattern))


def _to_record(row: PostgresRow) -> ApprovalRecord:
    approval_id, run_id, session_id, agent_id, parent, call_id, tool, arguments, reason, pattern, *rest = row
    requested_at, expires_at, decision, agent, owner, message, workspace, folder = rest
    return ApprovalRecord(
        approval_id=approval_id,
        origin=Origin(run_id, session_id, agent_id, parent),
        call_id=unescape_nul(call_id),
        tool=unescape_nul(tool),
        arguments=unescape_nul(arguments),
        reason=unescape_nul(reason),
        pattern=None if pattern is None else unescape_nul(pattern),
        requested_at=requested_at,
        expires_at=expires_at,
        decision=decision,
        agent=unescape_nul(agent),
        owner=owner,
        message=unescape_nul(message),
        workspace=Workspace(workspace, folder),
    )
