"""What waits for a person's decision, and what people need not be asked again."""

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.envelope import Origin
from treadle.domain.ids import ApprovalId, Instant, RunId, SessionId
from treadle.domain.users import LOCAL_USER, UserId


class ApprovalRecord(Struct, frozen=True):
    """An approval as lists show it, kept in the transaction of the events it sums up."""

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
    """The name of the agent of its run."""
    owner: UserId = LOCAL_USER
    """The user its run is for."""


class Grant(Struct, frozen=True):
    """Calls of this tool that match the pattern need not be asked for again in a session."""

    tool: str
    pattern: str


class Approvals(Protocol):
    async def find(self, approval_id: ApprovalId) -> ApprovalRecord:
        """Raises UnknownApproval."""
        ...

    async def pending(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        """Those that still wait, of one run or of all, the oldest first."""
        ...

    async def grants(self, session_id: SessionId) -> Sequence[Grant]:
        """What was approved for the whole session, kept in the transaction of the answer."""
        ...
