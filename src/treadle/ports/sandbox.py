"""Sandboxed shell commands: the request and its result."""

from asyncio import StreamReader
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.permissions import SandboxPolicy, WorkspaceAccess
from treadle.domain.writable_places import WritablePlaces

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


class Program(Struct, frozen=True):
    """A program that runs until it is stopped, with pipes for its input, its output and its errors."""

    argv: tuple[str, ...]
    workspace: Path
    """The folder of the agent. It exists."""
    policy: SandboxPolicy = SandboxPolicy()
    environment: Mapping[str, str] = {}
    """Additional variables. They cannot replace the variables that every command gets."""
    folder: Path | Literal["workspace", "private"] = "workspace"
    """The folder in which it starts. `private`: an empty one that no other program uses, removed at its end."""
    access: WorkspaceAccess = "write"
    """What it may do with the workspace, if the machine has a sandbox."""
    avoided: WritablePlaces = WritablePlaces()
    """Places that are left out of its search path."""
    copies: Mapping[str, str] = {}
    """Copies that it sees instead of places, by place. They are read-only, and need a sandbox."""


class WritableCode(Struct, frozen=True):
    """Code of a program in a place that a run can write."""

    role: str
    """What names it, for example `argument 1`."""
    path: str
    unit: str | None = None
    """The file or folder to pin: the smallest one that contains everything that belongs to it. None if nothing
    smaller than the whole writable folder does."""


class RunningProgram(Protocol):
    """A program in progress. It never outlives the engine."""

    @property
    def output(self) -> StreamReader:
        """What it writes to its standard output."""
        ...

    @property
    def errors(self) -> str:
        """The end of what it wrote to its standard error."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its standard input. Raise OSError if it has closed it."""
        ...

    def close_input(self) -> None:
        """Close its standard input, after what was written."""
        ...

    async def wait(self) -> int | None:
        """Wait until none of its processes is left. Return its exit code, or None if it is unknown."""
        ...

    async def stop(self, grace_seconds: float) -> None:
        """Close its input, wait this many seconds for it to end, then kill it with everything that it
        started."""
        ...


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
    findings: tuple[str, ...] = ()
    """Sentences about what the command left behind that other programs would execute, and what was removed."""
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
        """Return what this machine offers, determined once. Raise CommandError if it cannot be determined now.
        Without a sandbox, `run` logs a warning once."""
        ...


class Programs(Protocol):
    async def start(self, program: Program, max_line: int) -> RunningProgram:
        """Start a program. Its output can be read line by line, up to this many bytes each. Raise SandboxMissing or
        CommandError."""
        ...

    async def find_writable_code(self, program: Program) -> tuple[WritableCode, ...]:
        """Return the code in places that the program avoids and would load nevertheless. Raise CommandError if the
        program is missing, or if it cannot be known what it would load."""
        ...

    async def confinement(self) -> Confinement:
        """Return what this machine offers, determined once. Raise CommandError if it cannot be determined now."""
        ...


class Contents(Protocol):
    """Private copies of files and folders, by the hash of their content. No run can change them."""

    async def measure(self, place: str) -> str:
        """Return the hash of a file or folder as it is now. Raise CommandError if it is too large, or has links to
        elsewhere that a run could change."""
        ...

    async def keep(self, place: str) -> str:
        """Copy a file or folder, and return the hash of the copy. Raise CommandError."""
        ...

    def find(self, digest: str) -> str | None:
        """Return the copy with this hash, or None."""
        ...
