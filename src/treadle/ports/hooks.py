"""Hooks: code of the people who run the engine that looks at every call before it runs, and at what came of it."""

from typing import Any

from msgspec import Struct

from treadle.domain.ids import RunId, SessionId
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Observation


class HookedCall(Struct, frozen=True):
    """A call as a hook sees it."""

    run_id: RunId
    session_id: SessionId
    agent: str
    call_id: str
    tool: ToolSpec
    arguments: dict[str, Any]


class Block(Struct, frozen=True):
    """The call does not run. The reason is for the model."""

    reason: str


class Rewrite(Struct, frozen=True):
    """The call runs with other arguments."""

    arguments: dict[str, Any]


class Hook:
    """Subclass it and override what you need. Hooks run in the order in which they were added.

    A hook that fails blocks the call: one that guards something must not be passed by breaking it. Before a call
    runs, its hooks may be asked more than once about it."""

    tools: str = "*"
    """The tools that it looks at: a name or a glob."""

    @property
    def name(self) -> str:
        return type(self).__name__

    async def before(self, call: HookedCall) -> Block | Rewrite | None:
        """Let it be, block it, or change its arguments."""
        return None

    async def after(self, call: HookedCall, result: Observation) -> Observation | None:
        """Let the result be, or put another in its place."""
        return None
