"""What stands in where an engine has no vault, no people to ask and nowhere to keep long results."""

from collections.abc import Collection, Mapping, Sequence

from treadle.domain.envelope import Origin
from treadle.domain.errors import UnknownApproval
from treadle.domain.identity import ApprovalId, RunId, SessionId
from treadle.ports.approvals import ApprovalRecord, Grant
from treadle.ports.vault import Redaction, SecretRefused, TextStream


class _AsItIs:
    """Implements `ports.vault.TextStream`."""

    def feed(self, piece: str) -> str:
        return piece

    def rest(self) -> str:
        return ""


class NothingToHide:
    """Implements `ports.vault.Redactor`."""

    is_idle = True

    def redact(self, text: str) -> Redaction:
        return Redaction(text)

    def stream(self) -> TextStream:
        return _AsItIs()


class NoVault:
    """Implements `ports.vault.Vault`."""

    redactor = NothingToHide()

    def names(self, agent: str) -> Collection[str]:
        return ()

    def granted(self, agent: str, tool: str) -> Mapping[str, str]:
        return {}

    def reveal(self, name: str, agent: str, tool: str) -> str:
        raise SecretRefused(f"There is no secret `{name}`: this engine has no vault.", "there is no vault")


class NoApprovals:
    """Implements `ports.approvals.Approvals`."""

    async def find(self, approval_id: ApprovalId) -> ApprovalRecord:
        raise UnknownApproval(f"There is no approval {approval_id}.")

    async def pending(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        return ()

    async def grants(self, session_id: SessionId) -> Sequence[Grant]:
        return ()


class NoResults:
    """Implements `ports.results.Results`."""

    async def keep(self, origin: Origin, call_id: str, content: str) -> None:
        return None

    async def read(self, session_id: SessionId, call_id: str) -> str | None:
        return None
