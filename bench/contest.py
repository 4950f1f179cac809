"""What all contestants share: the tool, the work, and the measurement. Standard library only, because it runs in
the environment of every peer."""

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

INSTRUCTIONS = "You are a careful assistant. Use the tool to look up what you need, then answer."
MESSAGE = "Look up the keys one after another, then answer."
RESULT_BYTES = 2048
MAX_STEPS = 200
WARM_UP_STEPS = 2
WARM_UP_TOKENS = 4

RunOnce = Callable[[str], Awaitable[str]]
"""Carries out one whole run on a message and returns the final text."""
AgentFor = Callable[[str], RunOnce]
"""Returns the agent on a named model, ready to run."""
OpenContestant = Callable[[str], AbstractAsyncContextManager[AgentFor]]
"""Opens what the contestant keeps for all its runs, given the base URL of the endpoint."""


async def lookup(key: str) -> str:
    """Look up the value of a key."""
    return f"{key}: ".ljust(RESULT_BYTES, key[-1])


def compete(version: str, open_contestant: OpenContestant) -> None:
    """Do the work that the command line names, and print its cost as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--model", required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    work = parser.parse_args()
    measured = asyncio.run(_measure(open_contestant, work.url, work.model, work.runs, work.concurrency))
    print(json.dumps(measured | {"version": version}))


async def _measure(
    open_contestant: OpenContestant, url: str, model: str, runs: int, concurrency: int
) -> dict[str, float | int]:
    async with open_contestant(url) as agent_for:
        warm_up = agent_for(f"steps-{WARM_UP_STEPS}-tokens-{WARM_UP_TOKENS}")
        await perform(warm_up, concurrency, concurrency, WARM_UP_TOKENS)
        run_once = agent_for(model)
        cpu, wall = time.process_time(), time.perf_counter()
        await perform(run_once, runs, concurrency, int(model.rpartition("-")[2]))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"cpu": cpu, "wall": wall, "rss": peak // 1024 if sys.platform == "darwin" else peak}


async def perform(run_once: RunOnce, runs: int, concurrency: int, tokens: int) -> None:
    """Carry out `runs` runs, `concurrency` at a time, and check every answer."""
    waiting = iter(range(runs))

    async def one_after_another() -> None:
        for _ in waiting:
            text = await run_once(MESSAGE)
            if text.split() != ["tok"] * tokens:
                raise RuntimeError(f"the final text should be {tokens} tokens, not {text[:200]!r}")

    async with asyncio.TaskGroup() as group:
        for _ in range(min(runs, concurrency)):
            group.create_task(one_after_another())
