"""The settings for approvals and for the sandbox of commands."""

from typing import Literal

from msgspec import Struct

from treadle.domain.durations import parse_duration
from treadle.domain.inert_text import make_inert
from treadle.domain.limits import PositiveFloat
from treadle.domain.workspaces import WorkspaceId

Verdict = Literal["auto", "ask", "deny"]
ConcernKind = Literal["private", "executed", "unconfined"]
"""What a tool finds on this machine that needs a reviewer: a private place, a file that another program executes
later, or that no sandbox confines it."""
SandboxMode = Literal["auto", "required", "off"]
WorkspaceAccess = Literal["none", "read", "write"]
"""What a program may do with the files of a workspace."""
EXACT_PREFIX = "exactly: "
"""How a pattern begins that matches one command line and no other."""
Asker = Literal["terminal", "channel", "command", "editor", "dashboard", "api"]
"""Who sent a message and can be asked back."""


class SandboxPolicy(Struct, frozen=True, omit_defaults=True):
    """What the commands of an agent may access besides its workspace."""

    mode: SandboxMode = "auto"
    """`auto`: use bubblewrap where it works; elsewhere commands need an approval. `required`: reject commands where
    it does not work. `off`: run commands without a sandbox."""
    network: bool = False
    """Give commands access to the network."""
    readable: tuple[str, ...] = ()
    """Additional folders that commands can read."""
    writable: tuple[str, ...] = ()
    """Additional folders that commands can write."""
    read_only: tuple[str, ...] = ()
    """Files and folders in the workspace that neither commands nor file tools can change."""


class Examples(Struct, frozen=True, omit_defaults=True):
    """Examples that are checked when the rule is read. A rule that contradicts them is rejected."""

    match: tuple[str, ...] = ()
    """Texts that the rule must match."""
    no_match: tuple[str, ...] = ()
    """Texts that the rule must not match."""


class ApprovalRule(Struct, frozen=True, omit_defaults=True):
    """A rule that allows, asks for or denies calls of a tool."""

    tool: str
    """The name of a tool, or a glob."""
    do: Verdict
    """`auto`: run the call. `ask`: wait for a reviewer. `deny`: reject the call."""
    match: str | None = None
    """A glob. For `bash` it is compared with each command of the parsed line, for file tools with the path, for
    other tools with their text arguments. `exactly: LINE` matches one command line as a whole, and is not a glob.
    With `auto`, `*` stays inside a word of a command, and a final ` *` covers further words except options and
    operands that execute, write, delete, send, or read another file or address. Null: every call."""
    options: Literal["any"] | None = None
    """`any`: with `auto`, a final ` *` covers all further words of a command, whatever they do."""
    examples: Examples = Examples()
    """Examples that are checked when the rule is read."""
    workspace: WorkspaceId | None = None
    """The only workspace in which the rule applies: its git common directory, or else its real path. Null: every
    workspace."""

    def __post_init__(self) -> None:
        if self.options is None:
            return
        if self.do != "auto":
            raise ValueError(
                f"`options: any` widens a rule that allows commands, but this rule says `{self.do}`, which matches "
                "every option already. Leave `options` out"
            )
        if self.match is None or is_exact_pattern(self.match):
            raise ValueError(
                "`options: any` needs a `match` that ends with ` *`, such as `find *`. Leave `options` out: a rule "
                "without a glob has nothing to widen"
            )


class ApprovalRules(Struct, frozen=True, omit_defaults=True):
    """Approvals. The strictest rule that matches a call decides; if none matches, `default`."""

    default: Verdict = "auto"
    """What happens to a call that no rule matches."""
    via: Literal["api"] | None = None
    """`api`: a reviewer answers over the API, so a run without a terminal waits for approvals instead of
    denying them."""
    expires: PositiveFloat | str | None = "7d"
    """How long a run waits for a decision: seconds, or text such as `7d`. Null: without limit."""
    on_expiry: Literal["deny", "end"] = "deny"
    """What happens then: the call is denied, or the run ends as `approval_expired`."""
    rules: tuple[ApprovalRule, ...] = ()
    """The rules."""

    def __post_init__(self) -> None:
        if self.expires is not None and parse_duration(self.expires) <= 0:
            raise ValueError(f"expires must be above 0, found {self.expires}")

    @property
    def expires_seconds(self) -> float | None:
        return None if self.expires is None else parse_duration(self.expires)


def make_exact_pattern(line: str) -> str:
    """Return the pattern that matches this command line and no other."""
    return f"{EXACT_PREFIX}{line}"


def read_exact_pattern(pattern: str) -> str | None:
    """Return the only command line that a pattern matches, or None if the pattern is a glob."""
    return pattern.removeprefix(EXACT_PREFIX) if pattern.startswith(EXACT_PREFIX) else None


def is_exact_pattern(pattern: str | None) -> bool:
    """Return whether a pattern matches one command line and no other."""
    return pattern is not None and read_exact_pattern(pattern) is not None


def describe_destruction(destructive: str) -> str:
    """Return the warning that every surface shows before a destructive call is decided."""
    return f"Warning: {make_inert(destructive)}. This cannot be undone, and it can be approved only once."


def make_sandbox_policy(given: SandboxMode | SandboxPolicy) -> SandboxPolicy:
    return given if isinstance(given, SandboxPolicy) else SandboxPolicy(given)
