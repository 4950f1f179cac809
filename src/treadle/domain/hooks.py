"""Hooks of an agent that are shell commands."""

from typing import Literal

from msgspec import Struct


class CommandHook(Struct, frozen=True, omit_defaults=True):
    """A shell command that decides about tool calls. It reads the event as JSON from its standard input and writes
    its decision as JSON to its standard output. Without output the call continues; exit code 2 blocks it."""

    command: str
    """The command line. It runs in the sandbox of the agent, in its workspace."""
    tools: str = "*"
    """The tools that it applies to: a name or a glob."""
    on: Literal["before", "after"] = "before"
    """Before a call runs, or after it with its result."""
    timeout: float = 30.0
    """Maximum seconds. A hook that takes longer blocks the call."""

    def __post_init__(self) -> None:
        if not self.command.strip():
            raise ValueError("command must not be empty")
        if not 0 < self.timeout <= 600:
            raise ValueError(f"timeout must be above 0 and at most 600, found {self.timeout}")
