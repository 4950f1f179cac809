"""`python -m bench.postgres`: advances of runs on PostgreSQL, compared with bare inserts of the same rows; and
`python -m bench.postgres throughput`: whole runs by workers, compared with the same.

It uses a real server of its own, which waits for the disk as in production. An advance adds two events, and checks
its epoch, its deliveries, its projections and its usage; the bare insert adds the same two rows and checks
nothing. The store is one process; the inserts use one connection, or two. Whole runs that do nothing show the cost
of jobs."""

import argparse
import asyncio
import itertools
import statistics
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from bench.pgserver import open_database as database
from bench.postgres_throughput import report_throughput
from treadle.dispatch.pgqueuer import PgQueuerDispatcher
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Draft, Origin, make_draft
from treadle.domain.events import RunQueued, StepStart, ToolCallEnd, UserMessage
from treadle.domain.ids import AgentId, EventId, RunId, SessionId
from treadle.domain.messages import user
from treadle.ports.journal import Advance, Release
from treadle.stores.postgres.connection import SCHEMA, connect
from treadle.stores.postgres.database import open_database
from treadle.stores.postgres.journal import PostgresJournal
from treadle.stores.postgres.schema import load_functions
from treadle.stores.postgres.writer import PostgresWriter
from treadle.testing.conformance.store import END, Recorder

RUNS = (1, 10, 100)
CONCURRENT_RUNS = 50
"""Whole runs at a time."""
NO_JOBS = """
CREATE OR REPLACE FUNCTION enqueue(woken TEXT[], heard TEXT[], now_ FLOAT8) RETURNS TEXT[] LANGUAGE sql
AS 'SELECT ARRAY[]::TEXT[]';
CREATE OR REPLACE FUNCTION take_back(claims JSONB[]) RETURNS VOID LANGUAGE sql AS 'SELECT';
"""
BARE = """
CREATE TABLE IF NOT EXISTS bare (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run BIGINT NOT NULL, sequence INTEGER NOT NULL,
    event_id TEXT NOT NULL, timestamp FLOAT8 NOT NULL, type TEXT NOT NULL, version SMALLINT NOT NULL,
    data BYTEA NOT NULL, UNIQUE (run, sequence))
"""
INSERT = """
INSERT INTO bare (run, sequence, event_id, timestamp, type, version, data)
VALUES ($1, $2, $3, $4, $5, 1, $6), ($1, $7, $8, $9, $10, 1, $11)
"""
TEXT = "what a tool has found, of the length of a short page. " * 20


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def make_events() -> tuple[Draft, Draft]:
    """Return the events of one step of a run: its result, and the start of the next step."""
    made = (ToolCallEnd("call", "look", TEXT, duration_ms=5), StepStart(1))
    found, begun = (make_draft(EventId(f"evt_{uuid.uuid4().hex}"), time.time(), data) for data in made)
    return found, begun


class NullPublisher(Recorder):
    """Receives everything and stores nothing."""

    def on_committed(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        pass


async def measure_rate(lives: Sequence[Callable[[], Awaitable[object]]], seconds: float) -> float:
    """Return how often all of them together do this per second."""
    until, done = time.perf_counter() + seconds, itertools.count()

    async def live(once: Callable[[], Awaitable[object]]) -> None:
        while time.perf_counter() < until:
            await once()
            next(done)

    began = time.perf_counter()
    await asyncio.gather(*map(live, lives))
    return next(done) / (time.perf_counter() - began)


async def measure_bare_inserts(url: str, connections: int, seconds: float) -> float:
    """Measure bare inserts, each its own transaction in one round trip."""
    opened = [await connect(url) for _ in range(connections)]
    await opened[0].execute(BARE)

    def inserts(connection: Any, run: int) -> Callable[[], Awaitable[object]]:
        sequences = itertools.count(1)

        async def once() -> None:
            one, two = make_events()
            first, second = next(sequences), next(sequences)
            begun = (first, one.event_id, one.timestamp, one.type, one.raw)
            ended = (second, two.event_id, two.timestamp, two.type, two.raw)
            await connection.execute(INSERT, run, *begun, *ended)

        return once

    try:
        return await measure_rate(
            [inserts(each, time.time_ns() + number) for number, each in enumerate(opened)], seconds
        )
    finally:
        for each in opened:
            await each.close()


@asynccontextmanager
async def open_store(url: str) -> AsyncGenerator[PostgresJournal, None]:
    told = NullPublisher()
    database = await open_database(url)
    journal = PostgresJournal(database, PostgresWriter(database, told.on_lost), told, WallClock())
    try:
        yield journal
    finally:
        await journal.close()


async def measure_advances(url: str, runs: int, seconds: float, ready: Callable[[], None] = lambda: None) -> float:
    """Measure concurrent advances of this many runs in one process. `ready` is called before the first."""
    async with open_store(url) as journal:

        async def owned() -> Callable[[], Awaitable[object]]:
            origin, drafts = make_run()
            claim = await journal.claim(await journal.submit(origin, drafts), "bench")
            seen = claim.events[-1].sequence

            async def once() -> None:
                nonlocal seen
                fact, intent = make_events()
                advanced = await journal.advance(Advance(origin.run_id, claim.epoch, seen, (fact,), (intent,)))
                seen = advanced.sequence

            return once

        lives = [await owned() for _ in range(runs)]
        ready()
        return await measure_rate(lives, seconds)


@asynccontextmanager
async def enable_jobs(url: str, *, written: bool) -> AsyncGenerator[None, None]:
    """Set whether commits write jobs for the queue."""
    connection = await connect(url)
    body = load_functions() if written else NO_JOBS
    try:
        await connection.execute(f"SET check_function_bodies = off;\n{body}")
        yield
    finally:
        await connection.execute(f"SET check_function_bodies = off;\n{load_functions()}")
        await connection.close()


async def measure_runs(url: str, at_a_time: int, seconds: float, dispatched: bool = False) -> float:
    """Measure whole runs that do nothing: submitted, claimed and ended, by the submitting process or by a
    dispatcher."""
    async with open_store(url) as journal:
        ended: dict[RunId, asyncio.Event] = {}

        async def work(run_id: RunId) -> None:
            claim = await journal.claim(run_id, "bench")
            end = make_draft(EventId(f"evt_{uuid.uuid4().hex}"), time.time(), END)
            seen = claim.events[-1].sequence
            await journal.advance(
                Advance(
                    run_id=run_id, epoch=claim.epoch, seen=seen, facts=(), intents=(end,), release=Release(said=())
                )
            )
            ended.pop(run_id, asyncio.Event()).set()

        async def once() -> None:
            origin, opening = make_run()
            done = ended[origin.run_id] = asyncio.Event()
            await journal.submit(origin, opening)
            if not dispatched:
                await work(origin.run_id)
            await done.wait()

        dispatcher = PgQueuerDispatcher(partial(connect, url, SCHEMA), journal, WallClock(), "bench")
        if dispatched:
            await dispatcher.start(work)
        try:
            return await measure_rate([once] * at_a_time, seconds)
        finally:
            await dispatcher.stop()


def make_run() -> tuple[Origin, list[Draft]]:
    """Return a new run with its first events."""
    name = uuid.uuid4().hex
    origin = Origin(RunId(f"run_{name}"), SessionId(f"ses_{name}"), AgentId("agt_bench"))
    opening = (RunQueued(AgentSpec("bench", "none")), UserMessage(user("hello")))
    return origin, [make_draft(EventId(f"evt_{uuid.uuid4().hex}"), time.time(), data) for data in opening]


async def measure_rounds(url: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for connections in (1, 2):
            name = f"bare inserts, {connections} connection{'s' * (connections > 1)}"
            found.setdefault(name, []).append(await measure_bare_inserts(url, connections, seconds))
        for number in RUNS:
            found.setdefault(f"advances, {number} runs", []).append(await measure_advances(url, number, seconds))
        async with enable_jobs(url, written=False):
            found.setdefault("runs without jobs", []).append(await measure_runs(url, CONCURRENT_RUNS, seconds))
        found.setdefault("runs with jobs", []).append(await measure_runs(url, CONCURRENT_RUNS, seconds))
        found.setdefault("runs by PgQueuer", []).append(
            await measure_runs(url, CONCURRENT_RUNS, seconds, dispatched=True)
        )
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.postgres", description=__doc__)
    parser.add_argument("of", nargs="?", choices=("advances", "throughput"), default="advances")
    parser.add_argument("--url", help="an empty database to use, instead of a server of its own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of each part of a round, for advances")
    parser.add_argument(
        "--workers", type=int, default=2, help="worker processes, for throughput (as are the next options)"
    )
    parser.add_argument("--concurrency", type=int, default=50, help="runs that a worker executes at once")
    parser.add_argument("--runs", type=int, default=400, help="runs in each round")
    return parser.parse_args()


def main() -> int:
    options = _options()
    if options.of == "throughput":
        return report_throughput(options)
    with database(options.url) as url:
        found = asyncio.run(measure_rounds(url, options.rounds, options.seconds))
    one, two = (found[name] for name in list(found)[:2])
    for name, rates in found.items():
        ratios = [statistics.median(r / f for r, f in zip(rates, floor, strict=True)) for floor in (one, two)]
        print(
            f"{name:28}{statistics.median(rates):8.0f}/s   {ratios[0]:6.2f} of one connection, "
            f"{ratios[1]:6.2f} of two (medians of {options.rounds} rounds)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
