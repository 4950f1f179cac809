"""Calls of tools that the sender of the message runs itself: what it is asked, and what becomes of its results."""

from typing import Any, cast

import msgspec

from treadle.core.tools.ledger import Call
from treadle.domain.events import ClientCallRequested, ToolCallStart
from treadle.domain.tools import ToolSpec
from treadle.engine.owned_run import OwnedRun
from treadle.ports.tool import InvalidArguments, Subjects, Tool, ToolContext


class ClientSideTool:
    """Implements `ports.tool.Tool` for hooks and rules. The client runs it, and checks the arguments itself."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    def parse(self, arguments: str) -> dict[str, Any]:
        try:
            decoded: Any = msgspec.json.decode(arguments or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidArguments(f"the arguments are not valid JSON: {error}.") from None
        if not isinstance(decoded, dict):
            raise InvalidArguments("the arguments must be a JSON object.")
        return cast("dict[str, Any]", decoded)

    def subjects(self, arguments: Any) -> Subjects:
        texts = [value for value in arguments.values() if isinstance(value, str)]
        return Subjects(tuple(texts), pattern="*")

    async def run(self, arguments: Any, context: ToolContext) -> str:
        raise RuntimeError(f"{self.spec.name} is run by the client")


def find_client_tool(call: Call, run: OwnedRun) -> Tool | None:
    """Return the tool of a call if the client runs it."""
    spec = run.state.tools.get(call.name)
    return None if spec is None or spec.client is None else ClientSideTool(spec)


def make_client_request(start: ToolCallStart, tool: Tool, run: OwnedRun) -> ClientCallRequested:
    """Return the request to run a call, with the arguments as hooks and reviewers left them."""
    lifetime = run.state.agent.limits.client_tool_wait_seconds
    expires_at = None if lifetime is None else run.worker.clock.now() + lifetime
    assert tool.spec.client is not None, "a tool of the client has its name"
    return ClientCallRequested(start.call_id, tool.spec.client, start.arguments, expires_at)
