"""What MCP costs: the first step of a run with configured servers that it does not use, and a call through MCP.

    python -m bench.mcp

Bars: the first step with five unused servers takes at most 1.05 times the time without them. A call costs at most
1.5 ms of CPU time in our process beyond what the SDK's own client takes for the same call."""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mcp.homes import PYTHON, SERVERS, make_home, make_server, write_home

from mcp import Client, StdioServerParameters
from treadle.api.engine import HOME_TASKS, HostedEngine, create_engine
from treadle.bootstrap.engine_setup import configure_engine
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.ids import RunId, SessionId
from treadle.ports.model import ModelRequest
from treadle.ports.tool import ToolContext
from treadle.testing.models import FunctionModel, ScriptedReply, say

RUNS, CALLS = 400, 1000
TOOLS = ("read_file", "bash")


async def measure_first_steps(folder: Path) -> dict[str, float]:
    """Return the median CPU milliseconds from the submission to the first request, without and with servers. They
    take turns, so that all see the same machine."""
    tools = {"without": TOOLS, "with": TOOLS, "offered": (*TOOLS, "s0__e*", "s1__e*", "s2__e*", "s3__e*", "s4__e*")}
    times: dict[str, list[float]] = {name: [] for name in tools}
    workspace = folder / "w"
    workspace.mkdir()
    engines: dict[str, HostedEngine] = {}
    asked = 0.0

    def answer(request: ModelRequest) -> ScriptedReply:
        nonlocal asked
        asked = time.process_time()
        return say("Done.")

    homes = {
        "without": write_home(folder / "without"),
        "with": make_home(folder / "with", **{f"s{number}": make_server() for number in range(5)}),
        "offered": make_home(folder / "offered", **{f"s{number}": make_server() for number in range(5)}),
    }
    for name, home in homes.items():
        engines[name] = await create_engine(home=Home(home)).__aenter__()
        engines[name].add_model("function", FunctionModel(answer))
    for number in range(RUNS):
        for name in times if number % 2 else reversed(list(times)):
            agent = AgentSpec("hero", "function/x", tools=tools[name], workspace=str(workspace))
            began = time.process_time()
            await engines[name].run(agent, "Go.")
            times[name].append((asked - began) * 1000)
    for engine in engines.values():
        await engine.__aexit__(None, None, None)
    return {name: statistics.median(found) for name, found in times.items()}


async def measure_calls(folder: Path) -> dict[str, float]:
    """Return the CPU milliseconds of one call: with the SDK's own client and transport, and through our tool."""
    found: dict[str, float] = {}
    parameters = StdioServerParameters(command=PYTHON, args=[str(SERVERS / "plain.py")])
    async with Client(parameters, mode="legacy") as client:
        await client.list_tools()
        found["sdk"] = await _time(lambda: client.call_tool("echo", {"text": "hello"}))
    config = configure_engine(home=Home(make_home(folder / "calls", s=make_server())), home_tasks=HOME_TASKS)
    tool = config.tools.find("s__echo")
    assert tool is not None
    context = ToolContext(RunId("run_1"), SessionId("ses_1"), "c", "k", lambda text: None, workspace=folder)
    arguments = json.dumps({"text": "hello"})
    found["treadle"] = await _time(lambda: tool.run(tool.parse(arguments), context))
    await config.close()
    return found


async def _time(call: Callable[[], Awaitable[object]]) -> float:
    """Return the CPU milliseconds of a call: the least of five rounds."""
    for _ in range(20):
        await call()
    rounds: list[float] = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(CALLS // 5):
            await call()
        rounds.append((time.process_time() - began) * 1000 / (CALLS // 5))
    return min(rounds)


async def main() -> int:
    with TemporaryDirectory() as name:
        steps = await measure_first_steps(Path(name))
        ratio = steps["with"] / steps["without"]
        print(f"first step without servers      {steps['without']:8.3f} ms CPU")
        print(f"first step with 5 unused        {steps['with']:8.3f} ms CPU   ratio {ratio:.3f} (bar 1.05)")
        offered = steps["offered"] / steps["without"]
        print(f"first step, 10 tools of 5 offered {steps['offered']:6.3f} ms CPU   ratio {offered:.3f}")
        calls = await measure_calls(Path(name))
        extra = calls["treadle"] - calls["sdk"]
        print(f"call with the SDK's own client  {calls['sdk']:8.3f} ms CPU")
        print(f"call through our tool           {calls['treadle']:8.3f} ms CPU   beyond {extra:.3f} ms (bar 1.5)")
    return 0 if ratio <= 1.05 and extra <= 1.5 else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
