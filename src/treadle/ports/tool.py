"""Tools: the actions that a model can call."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol

from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.command_patterns import CommandWords
from treadle.domain.events import EventData
from treadle.domain.file_fingerprints import FileFingerprint
from treadle.domain.ids import RunId, SessionId
from treadle.domain.memories import MemoryId
from treadle.domain.messages import Image
from treadle.domain.permissions import ConcernKind, SandboxPolicy
from treadle.domain.tools import ToolSpec
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.writable_places import EnginePlaces
from treadle.ports.memory import Recall
from treadle.ports.run_context import Deps


class Observation(Struct, frozen=True):
    """A tool result with more than its text.

    For example:

        @treadle.tool
        def check() -> treadle.Observation:
            return treadle.Observation("2 tests failed", exit_code=1, is_error=True)
    """

    content: str
    exit_code: int | None = None
    is_error: bool = False
    images: tuple[Image, ...] = ()
    """Images, for models that accept them in results. The text says what they are."""
    timed_out: bool = False
    """The call ran longer than its timeout. It is an error of the kind `timeout`."""


class Subjects(Struct, frozen=True):
    """The parts of a call that approval rules match."""

    texts: tuple[str, ...]
    """Each is matched against the globs of the rules: the commands of a shell line, or the text arguments of other
    tools."""
    opaque: str | None = None
    """Why the effect of the call cannot be determined. Then no glob can allow it; only the default decides."""
    caution: str | None = None
    """Why the call needs approval whatever the rules say."""
    pattern: str | None = None
    """The pattern to offer to a reviewer who wants to allow such calls from now on: a glob, or an exact line."""
    only_by_path: tuple[str, ...] = ()
    """Programs named by a path, if nothing else makes the call opaque. A rule that names such a path without a glob
    allows it."""
    concern: "Concern | None" = None
    """What the tool found on this machine that needs a reviewer."""
    whole: str | None = None
    """The whole command line. A pattern that names exactly this line allows all of it, also if it is opaque."""
    commands: tuple[CommandWords, ...] = ()
    """For a tool that runs commands, the words of each text. Rules that allow are compared with these."""
    only_by_options: bool = False
    """Only options of its commands make the call opaque. A rule with `options: any` allows such a command."""
    acts_as: tuple[str, ...] = ()
    """For a tool that does the work of others, the tool whose rules and grants apply to each text, in addition to
    its own."""
    removed: tuple[str, ...] = ()
    """Those of the texts that name files which the call deletes. Rules and grants for a path do not allow that."""
    destructive: str | None = None
    """What the call would destroy. A reviewer is warned, and can approve no more than this call; no grant allows
    it."""
    reads_only: bool = False
    """The call changes nothing, although its tool may: every command of its line only reads."""


PRIVATE_PREFIX, EXECUTED_PREFIX, UNCONFINED_PREFIX = "private place: ", "executed later: ", "no sandbox: "
"""How the reason of a concern begins, for the reviewer. `Concern.kind` is the fact."""


class CallEnvironment(Struct, frozen=True):
    """Where a call would run: what a tool may inspect before the call is allowed."""

    call_id: str
    workspace: Path
    sandbox: SandboxPolicy = SandboxPolicy()
    hidden: tuple[Path, ...] = ()
    engine: EnginePlaces = EnginePlaces()
    may_read: bool = False
    """The rules let the agent read what the call names without an approval."""


class Concern(Struct, frozen=True):
    """Why a call needs a reviewer on this machine, whatever its arguments are."""

    kind: ConcernKind
    """private: it reads a private path. executed: it writes a file that another program executes later. Both need
    an approval whatever the rules say. unconfined: no sandbox confines it, and it needs approval unless a rule
    allows it."""
    reason: str
    places: tuple[str, ...] = ()
    """The paths that it is about, with links resolved. An approval covers only these."""
    is_recorded: bool = False
    """It is read from a recorded approval: the reason is the whole reason of that approval."""

    @property
    def overrides_rules(self) -> bool:
        """Return whether no rule and no grant can allow the call."""
        return self.kind != "unconfined"


class Assessed(Protocol):
    """A tool that inspects the machine before a call is allowed. Optional: most tools do not need it."""

    async def assess(self, arguments: Any, scene: CallEnvironment) -> Concern | None: ...


class Checked(Protocol):
    """A tool that can tell before an approval that a call could not succeed. Optional."""

    async def find_fault(self, arguments: Any, scene: CallEnvironment) -> str | None:
        """Return the error for the model, or None. Must change nothing, and reveal nothing that needs an
        approval."""
        ...


async def _no_stored_result(call_id: str) -> str | None:
    return None


async def _no_memory(text: str, limit: int) -> Recall:
    return Recall()


def _no_skill(name: str, file: str | None) -> str:
    raise LookupError("There are no skills.")


async def _no_answer(question: str, options: tuple[str, ...]) -> str | None:
    return None


class Fingerprinted(Protocol):
    """A tool that changes files, and can tell what they contain before the call is shown. Optional."""

    async def take_fingerprints(self, arguments: Any, scene: CallEnvironment) -> tuple[FileFingerprint, ...]:
        """Return what the files that the call would change contain now. Must change nothing."""
        ...


class FileRecorder(Protocol):
    """Records the changes of one call. Its methods block and are called from a thread, before the change."""

    def record_write(self, path: str, descriptor: int | None, data: bytes | None, mode: int) -> None:
        """Store what a file contains before it is replaced by data, or removed if there is none.

        `descriptor` is the open file; None: there is none yet. `mode` is that of the new file."""
        ...

    def record_folder(self, path: str) -> None:
        """Record that a folder is created."""
        ...


class NoRecorder:
    """Implements `FileRecorder` where nothing is recorded."""

    def record_write(self, path: str, descriptor: int | None, data: bytes | None, mode: int) -> None:
        """Record nothing."""

    def record_folder(self, path: str) -> None:
        """Record nothing."""


class ToolContext(Struct, Generic[Deps], frozen=True):
    """What a tool knows about its call, and the services that it can use.

    For example:

        @treadle.tool
        def pay(amount: float, context: treadle.ToolContext) -> str:
            context.progress("paying")
            return f"paid {amount} with the key {context.idempotency_key}"
    """

    run_id: RunId
    session_id: SessionId
    call_id: str
    idempotency_key: str
    """The same for every attempt of this call. Pass it to services that detect repeated requests by it."""
    progress: Callable[[str], None]
    """Report progress. May be called from a thread."""
    agent: str = ""
    workspace: Path = Path()
    """The folder in which the run works. It exists."""
    sandbox: SandboxPolicy = SandboxPolicy()
    secrets: Mapping[str, str] = {}
    """Secrets that are granted to this tool for this agent, by name. Only for tools that need secrets."""
    hidden: tuple[Path, ...] = ()
    """Folders that no tool may show or change, wherever the workspace is: the engine's own home."""
    engine: EnginePlaces = EnginePlaces()
    """The places from which the engine loads code. No tool may change them."""
    approved: tuple[str, ...] = ()
    """Private paths, and files that other programs execute, that a reviewer has approved for this call. Links are
    resolved."""
    files: tuple[FileFingerprint, ...] = ()
    """The files that the call changes, as they were when it was shown. If one changed since, the call fails."""
    hide: Callable[[str], str] = lambda text: text
    """Return the text without secrets. For tools that truncate their results, so that no secret is cut in two."""
    report: Callable[[EventData], None] = lambda event: None
    """Record an event in addition to the result. Must not be called from a thread."""
    recall: Callable[[str], Awaitable[str | None]] = _no_stored_result
    """Return the full text of an earlier truncated result of this session, by its call id."""
    search_memory: Callable[[str, int], Awaitable[Recall]] = _no_memory
    """Return this agent's memories that match a text, up to a limit."""
    new_memory_id: Callable[[], MemoryId] = lambda: "mem_0"
    """Return an id for a memory that is saved with `report`."""
    user: UserId = LOCAL_USER
    """The user of the run."""
    load_skill: Callable[[str, str | None], str] = _no_skill
    """Return the instructions of a skill that this agent may use, or one of its files. Raises LookupError. May be
    called from a thread."""
    recorder: FileRecorder = NoRecorder()
    """Records what the call changes, before it does. For tools that write files of the workspace themselves."""
    deps: Deps = None  # pyright: ignore[reportAssignmentType] -- a program that provides nothing reads nothing
    """What the program provides to the run: clients, connection pools, or doubles of them in a test. Annotate the
    parameter as `ToolContext[Shop]` to give it a type."""
    ask: Callable[[str, tuple[str, ...]], Awaitable[str | None]] = _no_answer
    """Ask the user a question, with options to choose from, and return the answer; None if no one answers. The
    timeout of the call does not run meanwhile."""
    find_tools: Callable[[str, int], Sequence[ToolSpec]] = lambda query, limit: ()
    """Return the tools of this run that the model was not shown and that match a query, the best first."""


class InvalidArguments(ValueError):
    """The arguments do not match the schema. The message is for the model."""


class ToolError(Exception):
    """The call failed for a reason that the tool explains. The model receives the message unchanged.

    For example:

        @treadle.tool
        def divide(a: float, b: float) -> float:
            if b == 0:
                raise treadle.ToolError("b is 0: pass another number.")
            return a / b
    """


class ToolTimeout(ToolError):
    """What the tool called did not answer in time."""


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def parse(self, arguments: str) -> Any:
        """Return the decoded and validated arguments. Raise InvalidArguments with a message that the model can act
        on."""
        ...

    def subjects(self, arguments: Any) -> Subjects:
        """Return the parts of the parsed arguments that approval rules match."""
        ...

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        """Execute the call. An exception becomes an error result. Cancellation must stop everything that was
        started."""
        ...


class ToolSource(Protocol):
    """Tools that are looked up when they are needed, such as those of MCP servers. Some belong to one agent."""

    def find(self, name: str, agent: AgentSpec | None = None) -> Tool | None: ...

    def names(self, glob: str, agent: AgentSpec | None = None) -> Iterable[str]:
        """Return the names of the tools that match a glob."""
        ...

    def explain(self, name: str, agent: AgentSpec | None = None) -> str | None:
        """Return why a tool of this source cannot be used now, or None if the name is not one of its own."""
        ...


class Toolbox(Protocol):
    """`agent` is the agent of the run. Without it, only tools that every agent may use are found."""

    def find(self, name: str, agent: AgentSpec | None = None) -> Tool | None: ...

    def select(self, allowlist: Sequence[str], agent: AgentSpec | None = None) -> tuple[Tool, ...]:
        """Return the tools that match an allowlist of names and globs, in a fixed order.

        Raise UsageError for a name that no tool has."""
        ...
