"""An MCP server that a program starts, trusts and uses."""

import sys
from pathlib import Path

import treadle
from treadle.testing import ScriptedModel, ask, call, say

FOLDER = Path(__file__).resolve().parent
CLOCK = treadle.McpServer(
    command=sys.executable,
    args=[str(FOLDER / "mcp_clock.py")],
    readable=[str(FOLDER)],  # it runs in a sandbox
    approve=True,  # the tools that it offers when it is first used, and no others later
)


def main() -> None:
    agent = treadle.Agent(name="assistant", model="scripted/any", mcp_servers={"clock": CLOCK})
    with treadle.Engine("sqlite:///:memory:") as engine:
        engine.add_model("scripted", ScriptedModel(ask(call("clock__now", city="Tokyo")), say("It is 19:00.")))
        print(engine.run_sync(agent, "What time is it in Tokyo?").text)
        for found in engine.do_sync(engine.mcp.list()):
            print(found.name, found.state, *found.tools)


if __name__ == "__main__":
    main()
