"""Kill a process at random moments while it executes runs, one of which kills its own process.

    python -m bench.isolation [--kills 500] [--runs 50] [--seed 1]

Only the run that kills its own process may be quarantined, and every other run must complete."""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import treadle
from treadle.assembly import observe
from treadle.domain.events import UserMessage
from treadle.domain.identity import RunId
from treadle.home import Home
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

STEPS = 40
"""Steps of each run, so that runs last as long as the kills do."""
LONGEST_LIFE_SECONDS = 2.0
"""A process is killed at a random moment within this time after it has opened its engine."""


@treadle.tool(effect="read", repeatable=True)
async def look(number: int) -> str:
    """Look at something for a moment."""
    await asyncio.sleep(0.05)
    return f"seen {number}"


@treadle.tool(effect="read", repeatable=True)
async def kill() -> str:
    """Kill the process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


async def answer(request: ModelRequest) -> ScriptStep:
    """Look at something new at each step; a run that is told to die kills its process at its third step."""
    await asyncio.sleep(0.05)
    messages = request.conversation.messages
    turns = sum(message.role == "assistant" for message in messages)
    if "die" in messages[0].text and turns == 2:
        return ask(call("kill", "kill"))
    return say("done") if turns == STEPS else ask(call("look", f"c{turns}", number=turns))


def engine_on(folder: Path) -> treadle.Engine:
    engine = treadle.Engine(f"sqlite:///{folder}/runs.db", home=Home(folder / "home"))
    engine.add_model("fake", FunctionModel(answer))
    engine.add_tools(look, kill)
    return engine


async def submit(folder: Path, runs: int) -> None:
    """Submit the runs and stop before any of them has come far."""
    agent = treadle.Agent(name="hero", model="fake/m", tools=["look", "kill"], limits={"max_steps": None},
                          memory={"recall": 0, "remember": False})  # fmt: skip
    async with engine_on(folder) as engine:
        for number in range(runs - 1):
            await engine.submit(agent, f"go {number}")
        await engine.submit(agent, "die")


async def work(folder: Path) -> None:
    """Execute runs until all of them have ended."""
    async with engine_on(folder) as engine:
        print("open", flush=True)
        for record in await engine.service.unfinished():
            await engine.wait(record.origin.run_id)


async def outcomes(folder: Path) -> dict[str, str]:
    """Return the outcome of every run by what it was told; an empty one has not ended."""
    found: dict[str, str] = {}
    async with observe(f"sqlite:///{folder}/runs.db") as service:
        for record in await service.runs(limit=1000):
            events = [event.data async for event in service.stored(RunId(record.origin.run_id))]
            told = next(data.message.text for data in events if isinstance(data, UserMessage))
            found[told] = record.outcome or ""
    return found


def live(folder: Path, seconds: float | None) -> bool:
    """Start a process and kill it after so many seconds, or let it live; return whether it ended by itself."""
    command = [sys.executable, "-m", "bench.isolation", "--work", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        asyncio.run(work(given.work))
        return 0
    chance, began = random.Random(given.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(submit(folder, given.runs))
        kills = 0
        while kills < given.kills and not live(folder, chance.random() * LONGEST_LIFE_SECONDS):
            kills += 1
            if kills % 25 == 0:
                ended = sum(map(bool, asyncio.run(outcomes(folder)).values()))
                print(f"{kills} kills, {ended} of {given.runs} runs have ended, {time.monotonic() - began:.0f} s")
        calm, more = time.monotonic(), 0
        while not live(folder, None):
            more += 1
        found = asyncio.run(outcomes(folder))
    wrong = {told: outcome for told, outcome in found.items() if (told == "die") != (outcome == "quarantined")}
    others = sum(outcome == "completed" for outcome in found.values())
    print(f"{kills} kills and {more} deaths after them, the last {time.monotonic() - calm:.0f} s without kills")
    print(f"{others} runs completed; the run that kills its process: {found['die']}")
    print("wrong:", wrong or "nothing")
    return 1 if wrong or others != given.runs - 1 else 0


if __name__ == "__main__":
    sys.exit(main())
