"""Whole runs of 10 steps on PostgreSQL, by `treadle worker`, compared with a plain program that inserts their
rows.

A process that does no work itself submits the runs in bulk; the clock stops when the last has ended. The plain
program has one connection. It inserts the same events, with a row for each run, and does nothing else: it calls no
model and no tool, reads nothing, and locks nothing. It is as careful as Treadle: what is about to happen (a model
call, a tool call) is committed first. For comparison, the result with one commit per step, which loses the work of
the last step, is shown too."""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.contestants.treadle import tool
from bench.endpoint import serve_endpoint
from bench.pgserver import open_database, read_cpu_seconds, read_server_cpu
from bench.service import make_environment, make_home
from treadle.api.engine import HostedEngine, create_engine
from treadle.bootstrap.stores import WorkerShare
from treadle.config.home import Home
from treadle.stores.postgres.connection import connect

Commits = list[list[tuple[Any, ...]]]
"""Rows that are committed together."""
SplitRows = Callable[[Sequence[Any]], Commits]

MIN_SHARE = 0.5
CONCURRENT_SUBMISSIONS = 100
"""Submissions in progress at the same time."""
BARE = """
CREATE TABLE IF NOT EXISTS bare_runs (id BIGINT PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, status TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS bare_events (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run BIGINT NOT NULL, sequence INTEGER NOT NULL,
    event_id TEXT NOT NULL, timestamp FLOAT8 NOT NULL, type TEXT NOT NULL, version SMALLINT NOT NULL,
    data BYTEA NOT NULL, UNIQUE (run, sequence));
TRUNCATE bare_runs, bare_events
"""
BEGIN_RUN = "INSERT INTO bare_runs (id, run_id, status) VALUES ($1, $2, 'running')"
INSERT = "INSERT INTO bare_events (run, sequence, event_id, timestamp, type, version, data) VALUES "
WRITTEN = """
SELECT run, sequence, event_id, timestamp, type, version, data FROM events
WHERE run > $1 ORDER BY run, sequence
"""
UNFINISHED = "SELECT count(*) FROM runs WHERE id > $1 AND outcome IS NULL"


class WorkerCosts(Struct, frozen=True):
    """The cost of a number of runs."""

    seconds: float
    workers: float
    """CPU seconds of all workers together."""
    server: float
    """The same of PostgreSQL."""
    submitting: float


@contextmanager
def start_workers(folder: Path, url: str, number: int, concurrency: int) -> Generator[list[int], None, None]:
    """Start `treadle worker` this many times, and yield the process ids."""
    treadle = str(Path(sys.executable).with_name("treadle"))
    command = [treadle, "worker", "--json", "--concurrency", str(concurrency)]
    environment = make_environment(folder) | {"TREADLE_DATABASE_URL": url}
    quiet, told = subprocess.DEVNULL, subprocess.PIPE
    begun = [
        subprocess.Popen(command, stdout=told, stderr=quiet, cwd=folder / "home", env=environment)
        for _ in range(number)
    ]
    try:
        for process in begun:
            assert process.stdout is not None
            json.loads(process.stdout.readline())  # it is working
        yield [process.pid for process in begun]
    finally:
        for process in begun:
            process.kill()
            process.wait()


async def run_workers(engine: HostedEngine, home: Home, url: str, pids: Sequence[int], runs: int) -> WorkerCosts:
    """Submit this many runs, and wait until the last has completed."""
    agent = home.agent("a")
    asked = iter(range(runs))

    async def ask() -> None:
        for _ in asked:
            await engine.submit(agent, "go")

    connection = await connect(url)
    last = await connection.fetchval("SELECT coalesce(max(id), 0) FROM runs")
    used, served, own = sum(map(read_cpu_seconds, pids)), await read_server_cpu(url), time.process_time()
    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(CONCURRENT_SUBMISSIONS)))
    while await connection.fetchval(UNFINISHED, last):  # noqa: ASYNC110 -- it polls the database
        await asyncio.sleep(0.02)
    seconds = time.perf_counter() - began
    done = WorkerCosts(
        seconds,
        sum(map(read_cpu_seconds, pids)) - used,
        await read_server_cpu(url) - served,
        time.process_time() - own,
    )
    well = "SELECT count(*) FROM runs WHERE id > $1 AND outcome = 'completed'"
    if (ended := await connection.fetchval(well, last)) != runs:
        raise RuntimeError(f"of {runs} runs only {ended} have ended well")
    await connection.close()
    return done


async def insert_rows(url: str, after: int, divided: SplitRows) -> tuple[float, int, int]:
    """Return how long a plain program takes for the rows of the runs after that number, and how many and large
    they are."""
    connection = await connect(url)
    try:
        await connection.execute(BARE)
        steps = divided(await connection.fetch(WRITTEN, after))
        statements = {len(step): INSERT + _step_positions(len(step)) for step in steps}
        began = time.perf_counter()
        for step in steps:
            fields = [field for row in step for field in row]
            if step[0][1] == 1:
                async with connection.transaction():
                    await connection.execute(BEGIN_RUN, step[0][0], f"run_{step[0][2]}")
                    await connection.execute(statements[len(step)], *fields)
            else:  # one round trip, which is one transaction
                await connection.execute(statements[len(step)], *fields)
        seconds = time.perf_counter() - began
        return seconds, sum(map(len, steps)), sum(len(row[-1]) for step in steps for row in step)
    finally:
        await connection.close()


def split_before_effects(rows: Sequence[Any]) -> Commits:
    """Split the rows as a program commits them that records what it is about to do."""
    commits: Commits = []
    begins = True
    for row in map(tuple, rows):
        _, sequence, _, _, kind, _, _ = row
        begins = begins and kind != "tool_call_start"  # the calls of one turn start together
        if sequence == 1 or begins:
            commits.append([])
        commits[-1].append(row)
        begins = kind in ("llm_request", "tool_call_start")
    return commits


def split_by_steps(rows: Sequence[Any]) -> Commits:
    """Split the rows as a program commits them that does not. What precedes the first step is committed with
    it."""
    steps: Commits = []
    for row in map(tuple, rows):
        _, sequence, _, _, kind, _, _ = row
        if sequence == 1 or (kind == "step_start" and kind in (before[4] for before in steps[-1])):
            steps.append([])
        steps[-1].append(row)
    return steps


def _step_positions(rows: int) -> str:
    return ", ".join(f"({', '.join(f'${row * 7 + field}' for field in range(1, 8))})" for row in range(rows))


async def measure_rounds(url: str, options: argparse.Namespace) -> tuple[list[float], list[float], list[float]]:
    """Return the runs per second of Treadle, of the plain program and of the careless one, in each round."""
    ours, plain, careless = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as name, serve_endpoint() as model_url:
        home = Home(make_home(Path(name), model_url))
        async with create_engine(url, home=home, share=WorkerShare(0)) as engine:
            engine.add_tools(tool)
            with start_workers(Path(name), url, options.workers, options.concurrency) as pids:
                await run_workers(engine, home, url, pids, options.workers * options.concurrency)  # warm-up
                for number in range(options.rounds):
                    last = await _last_position(url)
                    done = await run_workers(engine, home, url, pids, options.runs)
                    seconds, rows, size = await insert_rows(url, last, split_before_effects)
                    ours.append(options.runs / done.seconds)
                    plain.append(options.runs / seconds)
                    careless.append(options.runs / (await insert_rows(url, last, split_by_steps))[0])
                    print(f"round {number + 1}: {ours[-1]:.1f} runs/s, bare inserts {plain[-1]:.1f}/s")
                    print(f"  with one commit for each step {careless[-1]:.1f}/s")
                    print(f"  {rows / options.runs:.0f} rows and {size / options.runs / 1024:.0f} KB a run")
                    print(f"  {_format_costs(done, options.runs)}")
    return ours, plain, careless


def _format_costs(done: WorkerCosts, runs: int) -> str:
    theirs, server, submitting = (
        f"{used * 1000 / runs:.1f}" for used in (done.workers, done.server, done.submitting)
    )
    return f"ms of CPU a run: workers {theirs}, PostgreSQL {server}, submitting {submitting}"


async def _last_position(url: str) -> int:
    connection = await connect(url)
    try:
        return await connection.fetchval("SELECT coalesce(max(id), 0) FROM runs")
    finally:
        await connection.close()


def report_throughput(options: argparse.Namespace) -> int:
    with open_database(options.url) as url:
        ours, plain, careless = asyncio.run(measure_rounds(url, options))
    share = statistics.median(one / other for one, other in zip(ours, plain, strict=True))
    of_careless = statistics.median(one / other for one, other in zip(ours, careless, strict=True))
    print(
        f"{statistics.median(ours):.1f} runs/s by {options.workers} workers, bare inserts of their rows "
        f"{statistics.median(plain):.1f}: {share:.0%} of those (medians of {options.rounds} rounds)"
    )
    print(f"{of_careless:.0%} of those with one commit for each step ({statistics.median(careless):.1f})")
    print("the bar is met" if share >= MIN_SHARE else "the bar is NOT met")
    return 0 if share >= MIN_SHARE else 1
