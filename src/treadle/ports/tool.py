"""A tool: something the model may ask for, and that does it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from treadle.domain.events import EventData
from treadle.domain.ids import RunId, SessionId
from treadle.domain.memories import MemoryId
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.tools import ToolSpec
from treadle.domain.users import LOCAL_USER, UserId
from treadle.ports.memory import Recall


class Observation(Struct, frozen=True):
    """What came of a call, where it is more than text."""

    content: str
    exit_code: int | None = None
    is_error: bool = False


class Subjects(Struct, frozen=True):
    """What the rules for approvals look at in one call."""

    texts: tuple[str, ...]
    """Each is held against the globs of the rules: the commands of a shell line, the text arguments of others."""
    opaque: str | None = None
    """Why nobody can tell what it would do: then no rule can wave it through, only the default."""
    caution: str | None = None
    """Why it is asked for whatever the rules say."""
    pattern: str | None = None
    """The glob to offer to a person who does not want to be asked about such calls again."""
    only_by_path: tuple[str, ...] = ()
    """Programs named by a path, where nothing else makes the call opaque. A rule that names such a path without a
    glob allows it."""
    concern: "Concern | None" = None
    """What a tool found on this machine that needs a reviewer."""


PRIVATE_PREFIX, UNCONFINED_PREFIX = "private place: ", "no sandbox: "
"""How the reason of a concern begins. Journals keep it, and a replay tells by it what the tool found."""


class CallEnvironment(Struct, frozen=True):
    """Where a call would run: what a tool may look at before the call is allowed."""

    call_id: str
    workspace: Path
    sandbox: SandboxPolicy = SandboxPolicy()
    hidden: tuple[Path, ...] = ()


class Concern(Struct, frozen=True):
    """Why a call needs a reviewer on this machine, whatever its arguments look like."""

    kind: Literal["private", "unconfined"]
    """private: it reads a private place, and is asked for whatever the rules say. unconfined: no sandbox confines
    it, and it is asked for where no rule says otherwise."""
    reason: str
    places: tuple[str, ...] = ()
    """The private places, without links: an approval is for these alone."""


class Assessed(Protocol):
    """A tool that looks at the machine before a call is allowed. Optional: most tools have no reason to."""

    async def assess(self, arguments: Any, scene: CallEnvironment) -> Concern | None: ...


async def _no_stored_result(call_id: str) -> str | None:
    return None


async def _no_memory(text: str, limit: int) -> Recall:
    return Recall()


def _no_skill(name: str, file: str | None) -> str:
    raise LookupError("There are no skills.")


class ToolContext(Struct, frozen=True):
    """What a tool may know of the call it serves, and what it may use."""

    run_id: RunId
    session_id: SessionId
    call_id: str
    idempotency_key: str
    """The same each time this call is run: hand it to services that can tell a repeat by it."""
    progress: Callable[[str], None]
    """Show how far it is. May be called from a thread."""
    agent: str = ""
    workspace: Path = Path()
    """The folder that the run works in. It is there."""
    sandbox: SandboxPolicy = SandboxPolicy()
    secrets: Mapping[str, str] = {}
    """The values of the secrets that this tool was granted for this agent, by name; for tools that need secrets."""
    hidden: tuple[Path, ...] = ()
    """Folders that no tool may show or change, wherever the workspace is: the engine's own home."""
    approved: tuple[str, ...] = ()
    """Private places, without links, that a reviewer has approved for this call."""
    hide: Callable[[str], str] = lambda text: text
    """The text without secrets: for tools that cut what they give back, which must not cut a secret in two."""
    report: Callable[[EventData], None] = lambda event: None
    """Put on record what happened beside the result. Not from a thread."""
    recall: Callable[[str], Awaitable[str | None]] = _no_stored_result
    """The whole text of an earlier result of this session that was cut, by the id of its call."""
    search_memory: Callable[[str, int], Awaitable[Recall]] = _no_memory
    """What this agent remembers that fits a text, at most so many."""
    new_memory_id: Callable[[], MemoryId] = lambda: "mem_0"
    """For what is put on record with `report` as saved."""
    user: UserId = LOCAL_USER
    """The user that the run is for."""
    load_skill: Callable[[str, str | None], str] = _no_skill
    """The instructions of a skill that this agent may use, or one of its files. Raises LookupError. May be called
    from a thread."""


class InvalidArguments(ValueError):
    """The arguments do not fit; the message is for the model."""


class ToolError(Exception):
    """The call failed in a way that the tool explains; the message is for the model, as it is."""


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def parse(self, arguments: str) -> Any:
        """The arguments, decoded and checked. Raises InvalidArguments with words that the model can act on."""
        ...

    def subjects(self, arguments: Any) -> Subjects:
        """What the rules for approvals look at, of arguments that `parse` has made."""
        ...

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        """Do it. What is raised becomes an error result; cancelling must stop all that was started."""
        ...


class Toolbox(Protocol):
    def find(self, name: str) -> Tool | None: ...

    def select(self, allowlist: Sequence[str]) -> tuple[Tool, ...]:
        """The tools that an allowlist of names and globs names, in a fixed order.

        Raises UsageError for a plain name that no tool has."""
        ...
