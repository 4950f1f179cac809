"""Events of tool calls, from the intent to the result."""

from typing import Literal

from msgspec import Struct

from treadle.domain.events.definitions import EventData, durable, live
from treadle.domain.excerpts import Excerpt
from treadle.domain.file_fingerprints import FileFingerprint
from treadle.domain.ids import Instant
from treadle.domain.messages import Image
from treadle.domain.permissions import ConcernKind
from treadle.domain.tools import ToolChoice


class Truncation(Struct, frozen=True, gc=False):
    """How a result was truncated. Counts are characters."""

    length: int
    """Of the full text."""
    head: int
    """Shown from its beginning."""
    tail: int
    """Shown from its end."""


@durable("tool_call_start")
class ToolCallStart(EventData, frozen=True):
    """The intent to run a tool call, committed before the tool runs."""

    call_id: str
    name: str
    arguments: str
    idempotency_key: str
    attempt: int = 1
    files: tuple[FileFingerprint, ...] = ()
    """The files that it changes, as they were when the call was shown."""


@live("tool_call_progress")
class ToolCallProgress(EventData, frozen=True):
    """Progress of a tool call."""

    start: int
    """The sequence of its `tool_call_start`."""
    call_id: str
    offset: int
    text: str


@durable("tool_call_end")
class ToolCallEnd(EventData, frozen=True):
    """A tool call has ended."""

    call_id: str
    name: str
    content: str
    duration_ms: int
    exit_code: int | None = None
    truncated: bool = False
    """The middle is left out. The full text can be recalled by the ID of the call."""
    truncation: Truncation | None = None
    excerpt: Excerpt | None = None
    """The part of `content` that the tool returned, if the engine added something to it."""
    images: tuple[Image, ...] = ()
    """Images that the tool returned."""
    plain: bool = False
    """The model reads `content` alone, without a line that says how the call ended."""


CallErrorKind = Literal[
    "unknown_tool",
    "invalid_arguments",
    "failed",
    "timeout",
    "interrupted",
    "cancelled",
    "skipped",
    "denied",
    "too_many",
]


CallErrorCause = Literal[
    "raised",
    "tool_error",
    "fault",
    "tool_missing",
    "outcome_unknown",
    "rule",
    "reviewer",
    "no_reviewer",
    "no_user",
    "superseded",
    "expired",
    "raw_secret",
    "secret_refused",
    "vault_unavailable",
    "not_started",
    "tree_full",
    "child",
    "not_recorded",
]
"""raised: the tool raised an exception. tool_error: the tool failed and explained why. fault: the tool found,
before an approval was requested, that the call could not succeed. tool_missing: the tool no longer exists.
outcome_unknown: the worker died during the call. rule, reviewer: denied by a rule or a reviewer.
no_reviewer: it needs an approval, and there is no one to ask. no_user: it asks a question, and there is no one to
answer. superseded: a new message came first. expired: no one decided or answered in time. raw_secret: its arguments
hold the value of a secret. secret_refused: it asks for a secret that it may not use. vault_unavailable: the vault
cannot be opened. not_started: the child run could not be started. tree_full: the tree has its maximum number of
runs. child: the child run failed or was stopped. not_recorded: an evaluated run called a tool without a recorded
result."""


@durable("tool_call_error")
class ToolCallError(EventData, frozen=True):
    """A tool call failed. `content` is what the model is told."""

    call_id: str
    name: str
    kind: CallErrorKind
    content: str
    duration_ms: int = 0
    exit_code: int | None = None
    truncated: bool = False
    truncation: Truncation | None = None
    excerpt: Excerpt | None = None
    """The part of `content` that comes from the tool, from an exception or from whatever refused the call, without
    the engine's words around it."""
    cause: CallErrorCause | None = None
    """The cause, if `kind` does not give it."""
    exception: str = ""
    """The class of the exception; the excerpt is its message."""
    limit: float | None = None
    """The limit that was reached: seconds for a timeout, calls for `too_many`, runs for `tree_full`."""
    subject: str = ""
    """The agent or tool that is unknown, for `not_started`."""
    concern: ConcernKind | None = None
    """What the tool found on this machine that needs a reviewer, for `no_reviewer`."""


GuardName = Literal["loop", "stuck"]


@durable("tool_call_blocked")
class ToolCallBlocked(EventData, frozen=True):
    """A guard rejected the call. `content` is what the model is told."""

    call_id: str
    name: str
    guard: GuardName
    content: str


@durable("result_truncated")
class ResultTruncated(EventData, frozen=True):
    """A result was too long for the free context. The full text is stored and can be recalled."""

    call_id: str
    length: int
    """Characters of the full text."""
    shown: int


HookStage = Literal["before", "after"]
HookCause = Literal["blocked", "timeout", "failed", "invalid", "secret"]
"""blocked: the hook rejected the call. timeout: it did not answer in time. failed: it raised an exception. invalid:
its answer is of the wrong type. secret: it put the value of a secret into the arguments."""


@durable("hook_blocked")
class HookBlocked(EventData, frozen=True):
    """A hook rejected the call or withheld its result. `content` is what the model is told."""

    call_id: str
    name: str
    hook: str
    content: str
    stage: HookStage = "before"
    """Whether the hook ran before or after the tool."""
    cause: HookCause = "blocked"
    excerpt: Excerpt | None = None
    """The part of `content` that gives the hook's reason."""


@durable("process_killed")
class ProcessKilled(EventData, frozen=True):
    """A command was killed with all processes that it had started."""

    call_id: str
    command: str
    why: Literal["timeout", "cancelled", "output", "memory", "processes", "disk"]
    processes: int = 1


@durable("sandbox_denied")
class SandboxDenied(EventData, frozen=True):
    """A command was not run: the agent requires a sandbox, and this machine has none."""

    call_id: str
    reason: str


@durable("client_call_requested")
class ClientCallRequested(EventData, frozen=True):
    """The model has called a tool of the client. The run waits for the result."""

    call_id: str
    name: str
    """The tool, as the client calls it."""
    arguments: str
    expires_at: Instant | None = None


@durable("client_result")
class ClientResult(EventData, frozen=True):
    """The client has delivered the result of a call. A result is final."""

    call_id: str
    content: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    tool_choice: ToolChoice | None = None
    """Whether the model may, must or must not call tools in the next step. Null: as the message says."""
