"""Tool hooks: code of the operator that inspects every call before it runs, and its result afterwards."""

from typing import Any

from msgspec import Struct

from treadle.domain.ids import RunId, SessionId
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Observation

HOOK_TIMEOUT_SECONDS = 30.0


class HookedCall(Struct, frozen=True):
    """A tool call as a hook receives it."""

    run_id: RunId
    session_id: SessionId
    agent: str
    call_id: str
    tool: ToolSpec
    arguments: dict[str, Any]
    deps: Any = None
    """What the program provides to the run, as `ToolContext.deps`."""


class Block(Struct, frozen=True):
    """The call does not run. The model sees the reason."""

    reason: str


class Rewrite(Struct, frozen=True):
    """The call runs with other arguments."""

    arguments: dict[str, Any]


class Hook:
    """Base class of tool hooks. Override what you need. Hooks run in the order in which they were added.

    A hook that raises blocks the call, because a safeguard must not be bypassed by breaking it. A hook may be
    called more than once before its call runs.

        class NoForce(treadle.Hook):
            tools = "bash"

            async def before(self, call):
                if "--force" in call.arguments["command"]:
                    return treadle.Block("Do not use --force.")
                return treadle.Rewrite({"command": "nice " + call.arguments["command"]})


        engine = treadle.Engine("sqlite:///helper.db")
        engine.add_hooks(NoForce())
    """

    tools: str = "*"
    """The tools that the hook applies to: a name or a glob."""
    timeout: float = HOOK_TIMEOUT_SECONDS
    """Maximum seconds of one call of the hook. A hook that takes longer blocks the call."""

    @property
    def name(self) -> str:
        return type(self).__name__

    async def before(self, call: HookedCall) -> Block | Rewrite | None:
        """Return None to allow the call, or block it, or rewrite its arguments."""
        return None

    async def after(self, call: HookedCall, result: Observation) -> Observation | None:
        """Return None to leave the result unchanged, or another result."""
        return None
