"""An MCP server that a program starts, trusts and uses. It needs the extra `mcp`.

The server is in the same file for this example: `python mcp_server.py serve` is its program."""

import sys
from pathlib import Path

from mcp.server import MCPServer

import treadle
from treadle.testing import ScriptedModel, ask, call, say

clock = MCPServer("clock")


@clock.tool()
def now(city: str) -> str:
    "Return the time in a city."
    return {"Rome": "12:00", "Tokyo": "19:00"}[city]


def main() -> None:
    this = Path(__file__).resolve()
    server = treadle.McpServer(
        command=sys.executable,
        args=[str(this), "serve"],
        readable=[str(this.parent)],  # the server runs in a sandbox
        approve=True,  # the tools that it offers when it is first used, and no others later
    )
    agent = treadle.Agent(name="assistant", model="scripted/any", mcp_servers={"clock": server})
    with treadle.Engine("sqlite:///:memory:") as engine:
        engine.add_model("scripted", ScriptedModel(ask(call("clock__now", city="Tokyo")), say("It is 19:00.")))
        print(engine.run_sync(agent, "What time is it in Tokyo?").text)
        for found in engine.do_sync(engine.mcp.list()):
            print(found.name, found.state, *found.tools)


if __name__ == "__main__":
    clock.run() if "serve" in sys.argv else main()
