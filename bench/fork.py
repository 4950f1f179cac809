"""`python -m bench.fork`: how long a fork and a replay of a long run take, without a model.

A scripted model writes a run of 200 steps once, each with a call whose result has a few kilobytes. The run is then
forked from its last step and replayed repeatedly. A fork is timed to its end: the model answers at once."""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import treadle
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.ids import RunId
from treadle.ports.model import Completed, Failed, ModelRequest, Show
from treadle.testing.models import ask, call, perform, say

STEPS = 200
BAR = 2.0
"""Seconds, for each of the two."""
ROUNDS = 5


@treadle.tool(effect="read", repeatable=True)
async def read_page(number: int) -> str:
    """Read a page."""
    return f"page {number}: " + "some words of a page that somebody has to read. " * 40


class PageReader:
    """Reads page after page. A fork of it stops reading. Implements `Model`."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.asked = 0

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        self.asked += 1
        if self.asked < self._steps:
            return await perform(ask(call("read_page", f"c{self.asked}", number=self.asked)), show)
        return await perform(say("It is read."), show)


async def measure(
    folder: Path, steps: int = STEPS, rounds: int = ROUNDS, clock: Callable[[], float] = time.perf_counter
) -> tuple[list[float], list[float]]:
    """Return the seconds that forks and replays took, by this clock."""
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"))
    engine.add_model("scripted", PageReader(steps))
    agent = treadle.Agent(
        name="reader", model="scripted/x", tools=[read_page], limits={"max_steps": steps + 1},
        memory={"recall": 0, "remember": False},
    )  # fmt: skip
    async with engine:
        run = await engine.run(agent, "Read all of it.")
        if (run.outcome, run.metrics.steps) != ("completed", steps):
            raise AssertionError(f"the run ended {run.outcome} after {run.metrics.steps} steps")

        async def fork() -> None:
            await engine.wait(await engine.fork(run.run_id))

        async def replay() -> None:
            found = await engine.service.replay(RunId(run.run_id))
            if not found.is_same:
                raise AssertionError(f"the replay differs: {found}")

        forks = [await _measure_seconds(fork, clock) for _ in range(rounds)]
        return forks, [await _measure_seconds(replay, clock) for _ in range(rounds)]


async def _measure_seconds(work: Callable[[], Awaitable[Any]], clock: Callable[[], float]) -> float:
    began = clock()
    await work()
    return clock() - began


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fork", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        forks, replays = asyncio.run(measure(Path(folder), options.steps, options.rounds))
    missed = False
    for name, seconds in (("fork", forks), ("replay", replays)):
        missed = missed or max(seconds) > BAR
        print(
            f"{name:<7} of {options.steps} steps: {statistics.median(seconds):.3f} s median, "
            f"{max(seconds):.3f} s at most of {len(seconds)} (bar: {BAR:g} s)"
        )
    print("missed" if missed else "met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
