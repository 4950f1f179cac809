"""Kill a process at random moments while it executes runs, one of which kills its own process.

    python -m bench.isolation [--kills 500] [--runs 50] [--seed 1]

Whenever a run has ended another one is submitted, so that as many are in progress at every kill. Only runs that
kill their own process may be quarantined, and every other run must complete."""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import treadle
from treadle.api.engine import HostedEngine, create_engine
from treadle.bootstrap.offline_service import open_service_readonly
from treadle.config.home import Home
from treadle.ports.journal import RunRecord
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

STEPS = 10
DEADLY = "ses_deadly_"
"""Sessions of runs that kill their process start with this."""
FILL_SECONDS = 0.2
"""How often a process submits new runs for those that have ended, so that the same number is in progress at every
kill."""
MAX_LIFE_SECONDS = 2.0
"""A process is killed at a random time within this limit after it has opened its engine."""


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


async def make_answer(request: ModelRequest) -> ScriptStep:
    """Return a new call at each step. A run that is told to die kills its process at its third step."""
    await asyncio.sleep(0.05)
    messages = request.conversation.messages
    turns = sum(message.role == "assistant" for message in messages)
    if "die" in messages[0].text and turns == 2:
        return ask(call("kill", "kill"))
    return say("done") if turns == STEPS else ask(call("look", f"c{turns}", number=turns))


def make_engine(folder: Path) -> HostedEngine:
    engine = create_engine(f"sqlite:///{folder}/runs.db", home=Home(folder / "home"))
    engine.add_model("fake", FunctionModel(make_answer))
    engine.add_tools(look, kill)
    return engine


AGENT = treadle.Agent(
    name="hero",
    model="fake/m",
    tools=["look", "kill"],
    limits={"max_steps": None},
    memory={"recall": 0, "remember": False},
)


async def keep_running(engine: HostedEngine, runs: int) -> None:
    """Keep this many runs in progress, one of which kills its own process."""
    while True:
        unfinished = await engine.service.list_unfinished()
        deadly = [record for record in unfinished if is_deadly(record)]
        for _ in range(runs - 1 - (len(unfinished) - len(deadly))):
            await engine.submit(AGENT, "go")
        if not deadly:
            await engine.submit(AGENT, "die", session=f"{DEADLY}{uuid4().hex}")
        await asyncio.sleep(FILL_SECONDS)


def is_deadly(record: RunRecord) -> bool:
    return record.origin.session_id.startswith(DEADLY)


async def run_process(folder: Path, runs: int) -> None:
    """Execute runs: forever with new ones, or until all of them have ended."""
    async with make_engine(folder) as engine:
        print("open", flush=True)
        if runs:
            await keep_running(engine, runs)
        for record in await engine.service.list_unfinished():
            await engine.wait(record.origin.run_id)


async def count_outcomes(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Count the outcomes of the runs that kill their process, and of the others. An empty outcome has not
    ended."""
    deadly, others = Counter[str](), Counter[str]()
    async with open_service_readonly(f"sqlite:///{folder}/runs.db") as service:
        for record in await service.runs(limit=100_000):
            (deadly if is_deadly(record) else others)[record.outcome or ""] += 1
    return deadly, others


def run_and_kill(folder: Path, runs: int, seconds: float | None = None) -> bool:
    """Start a process and kill it after this many seconds, or let it live. Return whether it ended on its own."""
    command = [sys.executable, "-m", "bench.isolation", "--work", str(folder), "--runs", str(runs)]
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
        asyncio.run(run_process(given.work, given.runs))
        return 0
    chance, began = random.Random(given.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kill_number in range(1, given.kills + 1):
            run_and_kill(folder, given.runs, chance.random() * MAX_LIFE_SECONDS)
            if kill_number % 25 == 0:
                print(
                    f"{kill_number} kills, {time.monotonic() - began:.0f} s",
                    *map(dict, asyncio.run(count_outcomes(folder))),
                )
        calm, more = time.monotonic(), 0
        while not run_and_kill(folder, 0):
            more += 1
        deadly, others = asyncio.run(count_outcomes(folder))
    print(
        f"{given.kills} kills and {more} deaths after them, the last {time.monotonic() - calm:.0f} s without kills"
    )
    print(f"runs that kill their process: {dict(deadly)}; others: {dict(others)}")
    return 1 if set(deadly) != {"quarantined"} or set(others) != {"completed"} else 0


if __name__ == "__main__":
    sys.exit(main())
