"""Tool hooks: code of the operator that inspects every call before it runs, and its result afterwards."""

from typing import Any

from msgspec import Struct

from treadle.domain.ids import RunId, SessionId
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Observation

HOOK_TIMEOUT_SECONDS = 30.0


class HookedCall(Struct, frozen=True):
    """A tool call as a hook receives it.

    For example:

        class Log(treadle.Hook):
            async def before(self, call: treadle.HookedCall) -> None:
                print(call.agent, call.tool.name, call.arguments)


        engine = treadle.Engine("sqlite:///helper.db")
        engine.add_hooks(Log())
        print(engine.run_sync(treadle.Agent(name="helper", model="provider/model-id"), "Hello.").text)
    """

    run_id: RunId
    session_id: SessionId
    agent: str
    call_id: str
    tool: ToolSpec
    arguments: dict[str, Any]
    deps: Any = None
    """What the program provides to the run, as `ToolContext.deps`."""


class Block(Struct, frozen=True):
    """The call does not run. The model sees the reason.

    For example:

        class OnlyDocs(treadle.Hook):
            tools = "write_file"

            async def before(self, call: treadle.HookedCall) -> treadle.Block | None:
                is_docs = call.arguments["path"].startswith("docs/")
                return None if is_docs else treadle.Block("Write to docs/ only.")


        engine = treadle.Engine("sqlite:///helper.db")
        engine.add_hooks(OnlyDocs())
    """

    reason: str


class Rewrite(Struct, frozen=True):
    """The call runs with other arguments.

    For example:

        class Polite(treadle.Hook):
            tools = "bash"

            async def before(self, call: treadle.HookedCall) -> treadle.Rewrite:
                return treadle.Rewrite({**call.arguments, "command": "nice " + call.arguments["command"]})


        engine = treadle.Engine("sqlite:///helper.db")
        engine.add_hooks(Polite())
    """

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
