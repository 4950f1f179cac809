"""`python -m bench.scale`: what limits one PostgreSQL server under Treadle; and `python -m bench.scale simulate`:
what several servers would achieve, with sessions spread over them.

A process writes over one connection, so connections are processes here, each with its runs. The server's CPU time
per advance says how many it could do with other cores; the cost of the disk is in the rates alone."""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bench import postgres
from bench.endpoint import serve_endpoint
from bench.pgserver import open_database, read_server_cpu
from bench.postgres_throughput import run_workers, start_workers, tool
from bench.scale_simulation import simulate
from bench.service import ROOT, make_home
from treadle.api.engine import create_engine
from treadle.backup.event_export import EventExportFile
from treadle.backup.home_backup import open_archiving_retention
from treadle.bootstrap.callers import open_owning_caller
from treadle.bootstrap.stores import WorkerShare
from treadle.config.home import Home
from treadle.operations.retention import RetentionService
from treadle.stores.postgres.connection import connect

PROCESSES, RUNS, LISTENERS = (1, 2, 4), (1, 10, 100), (0, 10, 40, 80)
COPIES = """
WITH model AS (SELECT * FROM runs WHERE id = $1), copies AS (
    INSERT INTO runs (run_id, session_id, agent_id, created_at, status, outcome, sequence, epoch)
    SELECT 'run_' || $3 || number, 'ses_' || $3 || number, agent_id, 1, status, outcome, sequence, epoch
    FROM model, generate_series(1, $2) AS number RETURNING id)
INSERT INTO events (run, sequence, event_id, timestamp, type, version, data)
SELECT copies.id, sequence, 'evt_' || copies.id || '_' || sequence, 1, type, version, data
FROM copies, events WHERE run = $1
"""
"""Runs that ended long ago, each in a session of its own."""
SIZE = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class
WHERE relnamespace = 'treadle'::regnamespace AND relkind = 'r'
"""
DEAD = "SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = 'treadle'"


async def ask(url: str, statement: str) -> float:
    connection = await connect(url)
    try:
        return float(await connection.fetchval(statement) or 0)
    finally:
        await connection.close()


async def measure_advances(url: str, processes: int, runs: int, seconds: float) -> tuple[float, float, float]:
    """Return the advances per second of this many processes with this many runs each, and the ms of server CPU and
    KB of log per advance."""
    command = [sys.executable, "-m", "bench.scale", "write", "--url", url, "--runs", str(runs)]
    command += ["--seconds", str(seconds)]
    begun = [_start_process(command) for _ in range(processes)]
    cpu, log = await read_server_cpu(url), await ask(url, "SELECT pg_current_wal_lsn() - '0/0'")
    for process in begun:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    rates = [json.loads(process.communicate()[0].splitlines()[-1]) for process in begun]
    done = sum(rates) * seconds
    cpu, log = await read_server_cpu(url) - cpu, await ask(url, "SELECT pg_current_wal_lsn() - '0/0'") - log
    return sum(rates), cpu * 1000 / done, log / 1024 / done


def _start_process(command: list[str]) -> "subprocess.Popen[str]":
    """Start a process that has its runs and waits for the start signal."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def wait_for_start() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def _ignore(*_: object) -> None:
    """Ignore a notification."""


@asynccontextmanager
async def start_listeners(url: str, number: int) -> AsyncGenerator[None, None]:
    """Start this many other processes that listen to all notifications, as each server and worker does."""
    opened = [await connect(url) for _ in range(number)]
    for each in opened:
        await each.add_listener("treadle", _ignore)
    try:
        yield
    finally:
        for each in opened:
            await each.close()


async def report_appends(url: str, seconds: float) -> None:
    print("advances by processes and runs of each: in a second; ms of the server's CPU, KB of its log for one")
    for processes in PROCESSES:
        for runs in RUNS:
            rate, cpu, log = await measure_advances(url, processes, runs, seconds)
            print(f"  {processes} x {runs:3}  {rate:7.0f}/s  {cpu:5.2f} ms  {log:4.1f} KB", flush=True)
    print("the same by 2 processes with 10 runs each, with others that listen")
    for number in LISTENERS:
        async with start_listeners(url, number):
            rate, cpu, _ = await measure_advances(url, 2, 10, seconds)
        print(f"  {number:3} listeners  {rate:7.0f}/s  {cpu:5.2f} ms", flush=True)
    rate = await postgres.measure_runs(url, postgres.CONCURRENT_RUNS, seconds)
    print(f"runs that are begun, claimed and ended, by one process: {rate:.0f}/s", flush=True)


async def report_storage(url: str, copies: int) -> None:
    """Print the disk space of a run of 10 steps, and the cost of deleting many."""
    with tempfile.TemporaryDirectory() as name, serve_endpoint() as model_url:
        home = Home(make_home(Path(name), model_url), url)
        async with create_engine(home=home, share=WorkerShare(0)) as engine:
            engine.add_tools(tool)
            with start_workers(Path(name), url, 1, 50) as pids:
                before = await ask(url, SIZE)
                await run_workers(engine, home, url, pids, 200)
                run = (await ask(url, SIZE) - before) / 200 / 1024
        print(f"a run of 10 steps with 20 KB of results: {run:.0f} KB on disk")
        archived = open_archiving_retention(home, EventExportFile(Path(name, "past.jsonl.gz")))
        for way, house in (("deleted", _delete_runs(home)), ("archived and deleted", archived)):
            size = await _copy_runs(url, copies, way)
            began = time.perf_counter()
            async with house as keeper:
                done = await keeper.prune(86400, None, "bench")
            seconds = time.perf_counter() - began
            left, dead = await ask(url, SIZE), await ask(url, DEAD)
            print(
                f"{done.runs} runs ({done.events} events, {size / 2**20:.0f} MB) {way}: {seconds:.1f} s; "
                f"{dead:.0f} dead rows, {left / 2**20:.0f} MB after it",
                flush=True,
            )


@asynccontextmanager
async def _delete_runs(home: Home) -> AsyncGenerator[RetentionService, None]:
    async with open_owning_caller(home, "Nothing was deleted.") as caller:
        yield caller.context.retention


async def _copy_runs(url: str, copies: int, name: str) -> float:
    connection = await connect(url)
    try:
        await connection.execute("SET statement_timeout = 0")
        model = await connection.fetchval("SELECT max(id) FROM runs WHERE outcome = 'completed'")
        await connection.execute(COPIES, model, copies, name)
        return await ask(url, SIZE)
    finally:
        await connection.close()


async def measure(options: argparse.Namespace) -> None:
    with open_database(options.url) as url:
        async with postgres.open_store(url):  # this creates the tables
            pass
        await report_appends(url, options.seconds or 3.0)
    with open_database(options.url) as url:  # without the runs that were left
        await report_storage(url, options.copies)


async def run_writer(options: argparse.Namespace) -> None:
    """Run one of the processes that `measure_advances` starts."""
    rate = await postgres.measure_advances(options.url, options.runs, options.seconds, wait_for_start)
    print(json.dumps(rate))


async def run_simulation(options: argparse.Namespace) -> None:
    simulate(options.service_ms / 1000, options.latency_ms / 1000, options.seconds or 20.0, options.runs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("do", nargs="?", choices=("measure", "simulate", "write"), default="measure")
    parser.add_argument("--url", help="an empty database to use, instead of a server of its own")
    parser.add_argument(
        "--seconds", type=float, help="seconds of each measurement (3), or of the simulated load (20)"
    )
    parser.add_argument("--copies", type=int, default=10_000, help="runs to delete")
    parser.add_argument(
        "--runs", type=int, default=40, help="for simulate: runs that arrive per second for each server"
    )
    parser.add_argument("--service-ms", type=float, default=0.25, help="time of a loaded server for an advance")
    parser.add_argument("--latency-ms", type=float, default=1.5, help="network latency of an advance")
    options = parser.parse_args()
    asyncio.run({"measure": measure, "simulate": run_simulation, "write": run_writer}[options.do](options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
