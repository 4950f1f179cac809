"""Events about approvals, questions to the user and secrets."""

from typing import Literal

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.file_fingerprints import FileFingerprint
from treadle.domain.ids import ApprovalId, Instant
from treadle.domain.modes import ApprovalMode
from treadle.domain.permissions import ConcernKind


@durable("approval_requested")
class ApprovalRequested(EventData, frozen=True):
    """The call waits for a reviewer. The approval is for exactly these arguments."""

    approval_id: ApprovalId
    call_id: str
    name: str
    arguments: str
    reason: str
    """Why it needs an approval, for the reviewer."""
    pattern: str | None = None
    """The pattern of a rule that would allow all such calls, if one can be offered: a glob, or `exactly: LINE`."""
    expires_at: Instant | None = None
    concern: ConcernKind | None = None
    """What the tool found on this machine that needs a reviewer."""
    places: tuple[str, ...] = ()
    """The private places that it uses, without links. The approval is for these."""
    destructive: str | None = None
    """What the call would destroy, if it is known to be destructive. It is approved once at most."""
    files: tuple[FileFingerprint, ...] = ()
    """The files that it changes, as they are now. The approval is for these."""
    is_plan: bool = False
    """The call shows a plan: its approval ends plan mode."""


Decision = Literal["approve", "deny"]
Remember = Literal["once", "session"]


@durable("approval_decided")
class ApprovalDecided(EventData, frozen=True):
    """A reviewer has decided. A decision is final."""

    approval_id: ApprovalId
    decision: Decision
    arguments: str | None = None
    """The arguments as the reviewer edited them; null: as they were requested."""
    note: str = ""
    by: str = ""
    remember: Remember = "once"
    superseded: bool = False
    """The engine denied it, because a new message came first."""


@durable("approval_expired")
class ApprovalExpired(EventData, frozen=True):
    """No reviewer decided in time."""

    approval_id: ApprovalId
    call_id: str


@durable("mode_changed")
class ModeChanged(EventData, frozen=True):
    """The mode of the session has changed. It applies from the next tool call on."""

    mode: ApprovalMode | None = None
    """Null: the approval rules of the agent decide alone."""
    by: str = ""
    """Who changed it; empty: the parent run, which passes it on."""


@durable("clarify_requested")
class ClarifyRequested(EventData, frozen=True):
    """The agent asks the user a question."""

    call_id: str
    question: str
    options: tuple[str, ...] = ()
    expires_at: Instant | None = None
    during: str | None = None
    """The call that is in progress and asks the question, if the question is not a call of its own. The run
    continues with the answer; it does not wait."""


@durable("clarify_answered")
class ClarifyAnswered(EventData, frozen=True):
    """The user has answered the question. An answer is final."""

    call_id: str
    text: str
    by: str = ""


@durable("secret_used")
class SecretUsed(EventData, frozen=True):
    """A tool was given the value of a secret."""

    name: str
    tool: str
    call_id: str


@durable("secret_denied")
class SecretDenied(EventData, frozen=True):
    """A secret was requested that does not exist or is not granted to this agent for this tool."""

    name: str
    tool: str
    call_id: str
    reason: str


@durable("redacted")
class Redacted(EventData, frozen=True):
    """Secrets were removed from a text before it was stored or published."""

    names: tuple[str, ...]
    where: Literal["user_message", "model_reply", "tool_result", "tool_arguments", "error"]
    call_id: str | None = None
