"""Whole runs of 10 steps on PostgreSQL, by `treadle worker`, against a plain program that inserts their rows.

The runs are submitted in bulk by a process that does no work itself; the clock stops when the last has ended. The
plain program has one connection, and commits once a step: it inserts the very events of these runs, with a row for
each run, and does nothing else. It calls no model and no tool, reads nothing, and locks nothing."""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.contestants.treadle import tool
from bench.pgserver import cpu_seconds, database, server_cpu
from bench.service import ROOT, endpoint, make_home
from treadle.app import Engine
from treadle.home import Home
from treadle.stores.postgres.connection import connect
from treadle.stores_assembly import Share

LEAST_SHARE = 0.5
AT_ONCE = 100
"""Submissions under way at the same time."""
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


class Done(Struct, frozen=True):
    """What so many runs took."""

    seconds: float
    workers: float
    """Seconds of CPU, all of them together."""
    server: float
    """The same, of PostgreSQL."""
    submitting: float


@contextmanager
def workers(folder: Path, url: str, number: int, concurrency: int) -> Generator[list[int], None, None]:
    """`treadle worker`, so many times; the numbers of their processes."""
    treadle = str(Path(sys.executable).with_name("treadle"))
    command = [treadle, "worker", "--json", "--concurrency", str(concurrency)]
    known = {"TREADLE_HOME": str(folder / "home"), "PYTHONPATH": f"{folder}:{ROOT}", "TREADLE_DATABASE_URL": url}
    quiet, told = subprocess.DEVNULL, subprocess.PIPE
    begun = [
        subprocess.Popen(command, stdout=told, stderr=quiet, cwd=ROOT, env=os.environ | known)
        for _ in range(number)
    ]
    try:
        for process in begun:
            assert process.stdout is not None
            json.loads(process.stdout.readline())  # it is at work
        yield [process.pid for process in begun]
    finally:
        for process in begun:
            process.kill()
            process.wait()


async def worked(engine: Engine, home: Home, url: str, pids: Sequence[int], runs: int) -> Done:
    """Submit so many runs, and wait until the last has ended, well."""
    agent = home.agent("a")
    asked = iter(range(runs))

    async def ask() -> None:
        for _ in asked:
            await engine.submit(agent, "go")

    connection = await connect(url)
    last = await connection.fetchval("SELECT coalesce(max(id), 0) FROM runs")
    used, served, own = sum(map(cpu_seconds, pids)), await server_cpu(url), time.process_time()
    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    while await connection.fetchval(UNFINISHED, last):  # noqa: ASYNC110 -- it is the database that is asked
        await asyncio.sleep(0.02)
    seconds = time.perf_counter() - began
    done = Done(
        seconds,
        sum(map(cpu_seconds, pids)) - used,
        await server_cpu(url) - served,
        time.process_time() - own,
    )
    well = "SELECT count(*) FROM runs WHERE id > $1 AND outcome = 'completed'"
    if (ended := await connection.fetchval(well, last)) != runs:
        raise RuntimeError(f"of {runs} runs only {ended} have ended well")
    await connection.close()
    return done


async def inserted(url: str, after: int) -> tuple[float, int, int]:
    """How long a plain program takes for the rows of the runs after that number; how many and large they are."""
    connection = await connect(url)
    try:
        await connection.execute(BARE)
        steps = _steps(await connection.fetch(WRITTEN, after))
        statements = {len(step): INSERT + _places(len(step)) for step in steps}
        began = time.perf_counter()
        for step in steps:
            fields = [field for row in step for field in row]
            if step[0][1] == 1:
                async with connection.transaction():
                    await connection.execute(BEGIN_RUN, step[0][0], f"run_{step[0][2]}")
                    await connection.execute(statements[len(step)], *fields)
            else:  # one round trip, which is its own transaction
                await connection.execute(statements[len(step)], *fields)
        seconds = time.perf_counter() - began
        return seconds, sum(map(len, steps)), sum(len(row[-1]) for step in steps for row in step)
    finally:
        await connection.close()


def _steps(rows: Sequence[Any]) -> list[list[tuple[Any, ...]]]:
    """The rows as a plain program would commit them: what came before its first step goes with that."""
    steps: list[list[tuple[Any, ...]]] = []
    for row in map(tuple, rows):
        _, sequence, _, _, kind, _, _ = row
        if sequence == 1 or (kind == "step_start" and kind in (before[4] for before in steps[-1])):
            steps.append([])
        steps[-1].append(row)
    return steps


def _places(rows: int) -> str:
    return ", ".join(f"({', '.join(f'${row * 7 + field}' for field in range(1, 8))})" for row in range(rows))


async def measured(url: str, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Runs in a second, of Treadle and of the plain program, in each round."""
    ours, plain = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as name, endpoint() as model_url:
        home = Home(make_home(Path(name), model_url))
        async with Engine(url, home=home, share=Share(0)) as engine:
            engine.add_tools(tool)
            with workers(Path(name), url, options.workers, options.concurrency) as pids:
                await worked(engine, home, url, pids, options.workers * options.concurrency)  # to warm up
                for number in range(options.rounds):
                    last = await _last(url)
                    done = await worked(engine, home, url, pids, options.runs)
                    seconds, rows, size = await inserted(url, last)
                    ours.append(options.runs / done.seconds)
                    plain.append(options.runs / seconds)
                    print(f"round {number + 1}: {ours[-1]:.1f} runs/s, bare inserts {plain[-1]:.1f}/s")
                    print(f"  {rows / options.runs:.0f} rows and {size / options.runs / 1024:.0f} KB a run")
                    print(f"  {_costs(done, options.runs)}")
    return ours, plain


def _costs(done: Done, runs: int) -> str:
    theirs, server, submitting = (
        f"{used * 1000 / runs:.1f}" for used in (done.workers, done.server, done.submitting)
    )
    return f"ms of CPU a run: workers {theirs}, PostgreSQL {server}, submitting {submitting}"


async def _last(url: str) -> int:
    connection = await connect(url)
    try:
        return await connection.fetchval("SELECT coalesce(max(id), 0) FROM runs")
    finally:
        await connection.close()


def throughput(options: argparse.Namespace) -> int:
    with database(options.url) as url:
        ours, plain = asyncio.run(measured(url, options))
    share = statistics.median(one / other for one, other in zip(ours, plain, strict=True))
    print(
        f"{statistics.median(ours):.1f} runs/s by {options.workers} workers, bare inserts of their rows "
        f"{statistics.median(plain):.1f}: {share:.0%} of those (medians of {options.rounds} rounds)"
    )
    print("the bar is met" if share >= LEAST_SHARE else "the bar is NOT met")
    return 0 if share >= LEAST_SHARE else 1
