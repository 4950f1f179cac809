"""What an agent may do without asking, whom it asks, and what its commands may touch."""

from typing import Literal

from msgspec import Struct

from treadle.domain.durations import seconds

Verdict = Literal["auto", "ask", "deny"]
SandboxMode = Literal["auto", "required", "off"]
Asker = Literal["terminal", "channel", "command"]
"""Who sent a message and can be asked something back."""


class SandboxPolicy(Struct, frozen=True, omit_defaults=True):
    """What the commands of an agent may touch beside its workspace."""

    mode: SandboxMode = "auto"
    """auto: confined where the machine can, and said once where it cannot; required: not run where it cannot."""
    network: bool = False
    readable: tuple[str, ...] = ()
    """Folders beside the system's own that may be read."""
    writable: tuple[str, ...] = ()


class Examples(Struct, frozen=True, omit_defaults=True):
    """Checked when the rule is read: a rule that does not do what its author thinks is refused."""

    match: tuple[str, ...] = ()
    no_match: tuple[str, ...] = ()


class ApprovalRule(Struct, frozen=True, omit_defaults=True):
    """Which calls go ahead, are asked for, or are refused."""

    tool: str
    """A name, or a glob."""
    do: Verdict
    match: str | None = None
    """A glob: for `bash` over each command of the parsed line, for other tools over their text arguments."""
    examples: Examples = Examples()


class ApprovalRules(Struct, frozen=True, omit_defaults=True):
    """Of the rules that match a call the strictest decides; where none does, `default`."""

    default: Verdict = "auto"
    via: Literal["api"] | None = None
    """Somebody answers over the API, also when the message came without a terminal or a channel."""
    expires: float | str | None = "7d"
    on_expiry: Literal["deny", "end"] = "deny"
    rules: tuple[ApprovalRule, ...] = ()

    def __post_init__(self) -> None:
        if self.expires is not None and seconds(self.expires) <= 0:
            raise ValueError(f"expires must be above 0, found {self.expires}")

    @property
    def expires_seconds(self) -> float | None:
        return None if self.expires is None else seconds(self.expires)


def sandbox_policy(given: SandboxMode | SandboxPolicy) -> SandboxPolicy:
    return given if isinstance(given, SandboxPolicy) else SandboxPolicy(given)
