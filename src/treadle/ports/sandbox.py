"""Commands of a shell, run confined: what is asked for, and what came of it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.permissions import SandboxPolicy

EndedBy = Literal["timeout", "cancelled", "output", "memory", "processes", "disk"]
"""Why a command was stopped before its own end."""


class GitUse(Struct, frozen=True):
    """How a line uses git: decides which settings of a repository are overridden."""

    reads_only: bool
    """Every call only looks, so the hooks and filters of the repository are off."""
    folders: tuple[str, ...] = (".",)
    """Where it runs, relative to the workspace."""


class Command(Struct, frozen=True):
    """A line for `bash -lc`. Its standard input is empty."""

    text: str
    workspace: Path
    """The folder that it starts in and may write to. It is there."""
    policy: SandboxPolicy = SandboxPolicy()
    environment: Mapping[str, str] = {}
    """Variables beside those that every command gets; they cannot replace these."""
    timeout: float = 60.0
    """Seconds."""
    git: GitUse | None = None
    """How the line itself calls git, if it does."""


class Finished(Struct, frozen=True):
    """Nothing that the command started is alive any more, in the background or in a session of its own."""

    exit_code: int | None
    """128 and the signal where a signal ended it; None where we stopped it."""
    output: str
    """What it wrote, standard output and error as they came. Where it was too much, the middle is left out."""
    output_length: int
    """Bytes that it wrote, with those left out."""
    ended_by: EndedBy | None = None
    killed_processes: int = 0
    """How many were alive and had to be ended. Without a keeper of them (macOS) or inside a sandbox that ended
    by itself they are not counted."""
    advice: str = ""
    """Which setting shows the command what it could not reach; empty where nothing is known to be out of reach."""


class Confinement(Struct, frozen=True):
    """What this machine can give to commands."""

    sandbox: bool
    """The system read-only, homes and secrets out of sight, the network off unless the policy has it on."""
    reason: str = ""
    """Why there is no sandbox, and what to do about it."""
    unfiltered: str = ""
    """Why the system calls of confined commands are not filtered; empty where they are."""


class CommandError(Exception):
    """The command could not be run, and nothing of it is alive; the message says why and what to do."""


class SandboxMissing(CommandError):
    """The policy requires a sandbox and this machine has none. The command was not run."""


class Commands(Protocol):
    async def run(self, command: Command, show: Callable[[str], None]) -> Finished:
        """Run it to its end, to its timeout, or until it is too much for this machine.

        `show` gets the output as it comes, up to what is kept of it. Where it is cancelled, it ends everything
        that the command started and then returns with `cancelled`: the caller goes on with the cancelling.
        Raises SandboxMissing or CommandError."""
        ...

    async def confinement(self) -> Confinement:
        """Found out once. Where there is no sandbox, `run` says so once, in the log."""
        ...
