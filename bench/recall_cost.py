"""Measures what memory adds to a run: with and without it, one run after the other and a hundred at once."""

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import treadle
from bench.recall_corpus import make_memories as corpus
from treadle.config.home import Home
from treadle.domain.memories import Memory
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.writer import InlineWriter
from treadle.testing.models import FunctionModel, say

RUNS = 100
TURNS = 3
OFF: dict[str, Any] = {"recall": 0, "remember": False}
BY_WORDS: dict[str, Any] = {"embedder": "none"}


async def report_cost() -> None:
    """Print the CPU milliseconds of this process per run, all threads, and the longest stall of the event loop."""
    print(f"{RUNS} runs on a file; milliseconds of CPU for each, the least of {TURNS} times")
    for at_once in (1, RUNS):
        for count in (0, 1000):
            off, off_gap = await _measure_least(OFF, count, at_once)
            words, gap = await _measure_least(BY_WORDS, count, at_once)
            print(
                f"{at_once:4} at once, {count:5} memories: off {off:5.2f}, by words {words:5.2f}, so memory costs "
                f"{words - off:5.2f}; longest gap {off_gap:.1f} and {gap:.1f} ms"
            )


async def _measure_least(memory: dict[str, Any], count: int, at_once: int) -> tuple[float, float]:
    turns = [await _measure_turn(memory, count, at_once) for _ in range(TURNS)]
    return min(turn[0] for turn in turns), median(turn[1] for turn in turns)


async def _measure_turn(memory: dict[str, Any], count: int, at_once: int) -> tuple[float, float]:
    said, hero = corpus(10 * RUNS, seed=5), treadle.Agent(name="hero", model="scripted/x", memory=memory)
    with tempfile.TemporaryDirectory() as folder:
        home, database = Home(Path(folder) / "home"), f"sqlite:///{folder}/t.db"

        def opened() -> treadle.Engine:
            engine = treadle.Engine(database, home=home)
            engine.add_model("scripted", FunctionModel(lambda _: say(next(said))))
            return engine

        async with opened() as engine:
            await engine.run(hero, "hello")
        if count:
            await _fill(f"{folder}/t.db", count)
        async with opened() as engine:
            await engine.run(hero, f"What do you know of this? {next(said)}")
            return await _measure_runs(engine, hero, [f"Is this so? {next(said)}" for _ in range(RUNS)], at_once)


async def _fill(path: str, count: int) -> None:
    writer = InlineWriter(open_database(path))
    store = SqliteMemories(writer)
    (agent_id,) = (await store.agents()).values()
    texts = [f"{text} ({n})" for n, text in enumerate(corpus(count, seed=11))]
    await store.add([Memory(f"mem_{n}", agent_id, "long_term", text, time.time()) for n, text in enumerate(texts)])
    await writer.close()


async def _measure_runs(
    engine: treadle.Engine, hero: treadle.Agent, messages: list[str], at_once: int
) -> tuple[float, float]:
    gaps: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            gaps.append(time.perf_counter() - before - 0.001)

    watching = asyncio.ensure_future(watch())
    began, width = time.process_time(), asyncio.Semaphore(at_once)

    async def one(message: str) -> None:
        async with width:
            await engine.run(hero, message)

    await asyncio.gather(*map(one, messages))
    spent = time.process_time() - began
    watching.cancel()
    return 1000 * spent / len(messages), 1000 * max(gaps)
