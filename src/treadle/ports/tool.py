"""A tool: something the model may ask for, and that does it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from treadle.domain.identity import RunId, SessionId
from treadle.domain.tools import ToolSpec


class ToolContext(Struct, frozen=True):
    """What a tool may know of the call it serves."""

    run_id: RunId
    session_id: SessionId
    call_id: str
    idempotency_key: str
    """The same each time this call is run: hand it to services that can tell a repeat by it."""
    progress: Callable[[str], None]
    """Show how far it is."""


class InvalidArguments(ValueError):
    """The arguments do not fit; the message is for the model."""


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def parse(self, arguments: str) -> Any:
        """The arguments, decoded and checked. Raises InvalidArguments with words that the model can act on."""
        ...

    async def run(self, arguments: Any, context: ToolContext) -> str:
        """Do it. What is raised becomes an error result; cancelling must stop all that was started."""
        ...


class Toolbox(Protocol):
    def find(self, name: str) -> Tool | None: ...

    def select(self, allowlist: Sequence[str]) -> tuple[Tool, ...]:
        """The tools that an allowlist of names and globs names, in a fixed order.

        Raises UsageError for a plain name that no tool has."""
        ...
