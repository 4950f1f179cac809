"""Measure tools that the client runs: the CPU of a round trip, and what runs that wait for results cost.

    python -m bench.client_tools [--calls 400] [--rounds 5] [--waiting 1000]

A round trip is compared with a call of a tool of the engine, with the same model and the same result, in processes
of their own. The client is in the process of the engine and answers at once: the run gets the result in memory and
commits it with the next step, so that both sides commit equally often. The exit code is 1 if a bar is missed."""

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import treadle
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.events import ClientCallRequested
from treadle.engine.client_wait import LINGER_SECONDS
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

CALLS_PER_RUN = 20
ROUND_TRIP_BAR, MEMORY_BAR_MB, IDLE_SECONDS, IDLE_BAR = 1.2, 100.0, 5.0, 0.01
RESULT = "The weather is sunny, 21 degrees, with a light wind from the west."
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}}
AGENT = treadle.Agent(
    name="hero", model="fake/m", memory={"recall": 0, "remember": False}, limits={"max_steps": None}
)


async def answer(request: ModelRequest) -> ScriptStep:
    """Call the tool at each step, with other arguments."""
    turns = sum(message.role == "assistant" for message in request.conversation.messages)
    return say("done") if turns == CALLS_PER_RUN else ask(call("weather", f"c{turns}", number=turns))


@treadle.tool(effect="external")
async def weather(number: int) -> str:
    return f"{number}: {RESULT}"


def make_engine(folder: str) -> HostedEngine:
    engine = create_engine(f"sqlite:///{folder}/runs.db", home=Home(Path(folder) / "home"))
    engine.add_model("fake", FunctionModel(answer))
    return engine


async def measure_calls(kind: str, runs: int) -> float:
    """Return the milliseconds of CPU of one call, with its model call."""
    with tempfile.TemporaryDirectory() as folder:
        async with make_engine(folder) as engine:
            await run_once(engine, kind)
            began = time.process_time()
            for _ in range(runs):
                await run_once(engine, kind)
            return (time.process_time() - began) / (runs * CALLS_PER_RUN) * 1000


async def run_once(engine: HostedEngine, kind: str) -> None:
    """Run the agent and read its events, and deliver the results of the calls that are the client's."""
    if kind == "local":
        run_id = await engine.submit(AGENT, "go", tools=[weather])
    else:
        run_id = await engine.submit(AGENT, "go", client_tools=[treadle.ClientTool("weather", schema=SCHEMA)])
    async for event in engine.events(run_id):
        if isinstance(event.data, ClientCallRequested):
            call_id = event.data.call_id
            await engine.deliver_result(run_id, call_id, f"{call_id.removeprefix('c')}: {RESULT}")
    assert (await engine.wait(run_id)).text == "done"


async def measure_waiting(count: int) -> tuple[float, float]:
    """Return the MB that this many waiting runs add, and the share of a core that they use."""
    with tempfile.TemporaryDirectory() as folder:
        async with make_engine(folder) as engine:
            declared = treadle.ClientTool("weather", schema=SCHEMA)
            await engine.run(AGENT, "go", client_tools=[declared])
            before = read_memory()
            for _ in range(count):
                waiting = await engine.run(AGENT, "go", client_tools=[declared])
                assert waiting.client_calls
            await asyncio.sleep(LINGER_SECONDS + 1)
            added, began = read_memory() - before, time.process_time()
            await asyncio.sleep(IDLE_SECONDS)
            return added, (time.process_time() - began) / IDLE_SECONDS


def read_memory() -> float:
    """Return the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measure_in_process(kind: str, runs: int) -> float:
    command = [sys.executable, "-m", "bench.client_tools", "--measure", kind, "--calls", str(runs * CALLS_PER_RUN)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--measure", choices=("local", "client"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    runs = max(1, given.calls // CALLS_PER_RUN)
    if given.measure is not None:
        print(asyncio.run(measure_calls(given.measure, runs)))
        return 0
    pairs = [(measure_in_process("local", runs), measure_in_process("client", runs)) for _ in range(given.rounds)]
    local, client = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = statistics.median(client / local for local, client in pairs)
    print(f"CPU of a call with its model call: local {local:.2f} ms, client {client:.2f} ms")
    added, share = asyncio.run(measure_waiting(given.waiting))
    measured = [
        ("a round trip, in calls of a local tool", ratio, ROUND_TRIP_BAR),
        (f"MB that {given.waiting} waiting runs add", added, MEMORY_BAR_MB),
        ("share of a core that they use", share, IDLE_BAR),
    ]
    for what, value, limit in measured:
        print(f"{what}: {value:.3g} (bar: {limit:g}){'' if value <= limit else ' MISSED'}")
    return int(any(value > limit for _, value, limit in measured))


if __name__ == "__main__":
    sys.exit(main())
