"""Sandboxed shell commands: the request and its result."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.permissions import SandboxPolicy

EndedBy = Literal["timeout", "cancelled", "output", "memory", "processes", "disk"]
"""Why a command was stopped before it ended."""


class GitUse(Struct, frozen=True):
    """How a command line uses git. Decides which settings of a repository are overridden."""

    reads_only: bool
    """Every git call only reads, so hooks and filters of the repository are disabled."""
    folders: tuple[str, ...] = (".",)
    """Where git runs, relative to the workspace."""


class Command(Struct, frozen=True):
    """A command line for `bash -lc`, with empty standard input."""

    text: str
    workspace: Path
    """The folder in which the command starts and may write. It exists."""
    policy: SandboxPolicy = SandboxPolicy()
    environment: Mapping[str, str] = {}
    """Additional variables. They cannot replace the variables that every command gets."""
    timeout: float = 60.0
    """In seconds."""
    git: GitUse | None = None
    """How the command line itself calls git, if it does."""


class Finished(Struct, frozen=True):
    """The result of a command. No process that it started is alive, not even in the background or in another
    session."""

    exit_code: int | None
    """128 plus the signal number if a signal ended it; None if the engine stopped it."""
    output: str
    """Standard output and error in the order they were written. If it was too long, the middle is left out."""
    output_length: int
    """Bytes written, including those left out."""
    ended_by: EndedBy | None = None
    killed_processes: int = 0
    """How many processes were still alive and were killed. They are not counted on systems without a subreaper
    (macOS), nor inside a sandbox that ended normally."""
    advice: str = ""
    """The setting that gives the command access to what it could not reach; empty if nothing is known to be
    missing."""


class Confinement(Struct, frozen=True):
    """What kind of sandbox this machine offers."""

    sandbox: bool
    """Read-only system, hidden homes and secrets, and no network unless the policy allows it."""
    reason: str = ""
    """Why there is no sandbox, and what to do about it."""
    unfiltered: str = ""
    """Why the system calls of sandboxed commands are not filtered; empty if they are."""


class CommandError(Exception):
    """The command could not be run, and no process of it is alive. The message says why and what to do."""


class SandboxMissing(CommandError):
    """The policy requires a sandbox and this machine has none. The command was not run."""


class Commands(Protocol):
    async def run(self, command: Command, show: Callable[[str], None]) -> Finished:
        """Run a command until it ends, times out or exceeds a limit of this machine.

        `show` receives the output as it arrives, up to the limit that is kept. On cancellation it kills everything
        that the command started and returns with `cancelled`; the caller then continues the cancellation. Raise
        SandboxMissing or CommandError."""
        ...

    async def confinement(self) -> Confinement:
        """Return what this machine offers, determined once. Without a sandbox, `run` logs a warning once."""
        ...
