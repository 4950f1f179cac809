"""Pending approvals, and approvals that hold for a whole session."""

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.envelope import Origin
from treadle.domain.ids import ApprovalId, Instant, RunId
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import UNKNOWN_WORKSPACE, Workspace


class ApprovalRecord(Struct, frozen=True):
    """An approval as lists show it, updated in the transaction of its events."""

    approval_id: ApprovalId
    origin: Origin
    call_id: str
    tool: str
    arguments: str
    reason: str
    pattern: str | None
    requested_at: Instant
    expires_at: Instant | None
    decision: Literal["approve", "deny", "expired"] | None
    agent: str = ""
    """The name of the run's agent."""
    owner: UserId = LOCAL_USER
    """The user of the run."""
    message: str = ""
    """The beginning of the message that the run answers."""
    workspace: Workspace = UNKNOWN_WORKSPACE
    """The workspace of the run."""


class Grant(Struct, frozen=True):
    """Calls of this tool that match the pattern need no further approval in the session, in the same workspace."""

    tool: str
    pattern: str


class Approvals(Protocol):
    async def find(self, approval_id: ApprovalId) -> ApprovalRecord:
        """Return an approval. Raise UnknownApproval if there is none."""
        ...

    async def list_pending(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        """Return the pending approvals of one run or of all runs, oldest first."""
        ...

    async def grants(self, run_id: RunId) -> Sequence[Grant]:
        """Return what was approved for the session of a run, in the workspace of the run and since the session
        continues there. It is stored in the transaction of the answer."""
        ...

    async def revoke(self, run_id: RunId, grant: Grant) -> bool:
        """Remove what was approved for the session of a run, in the workspace of the run. Return False if there is
        no such grant."""
        ...
