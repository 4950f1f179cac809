"""`treadle serve --processes N` with each process limited to a share of a core: `python -m bench.processes`.

Runs of 10 steps are submitted over HTTP and followed over SSE. Prints runs per second and CPU per run with one and
with two processes, whether the bars are met, and exits with 1 if not."""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from msgspec import Struct

from bench.endpoint import serve_endpoint
from bench.pgserver import open_database, read_cpu_seconds, read_server_cpu
from bench.process_limit import limit_processes
from bench.service import follow, make_environment, make_home, run_concurrently, submit

MIN_SPEEDUP, MAX_EXTRA_CPU = 1.8, 0.10
SHARE = 0.25
"""Of a core, for each process."""


class ServedProcesses(Struct, frozen=True):
    """A running server."""

    url: str
    token: str
    pids: list[int]
    """Of the processes that serve."""
    parent: int


class ProcessCosts(Struct, frozen=True):
    """The result of one measurement."""

    runs_per_second: float
    cpu_per_run: float
    """CPU milliseconds of all processes of the server, with the one that started them."""
    database_per_run: float
    shares: list[float]
    """The share of a core that each process used."""


@contextmanager
def serve_processes(folder: Path, url: str, number: int) -> Generator[ServedProcesses, None, None]:
    """Run a server with this many processes."""
    treadle = str(Path(sys.executable).with_name("treadle"))
    with subprocess.Popen(
        [treadle, "serve", "--json", "--port", "0", "--processes", str(number)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder / "home",
        env=make_environment(folder) | {"TREADLE_DATABASE_URL": url},
    ) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        token_file = folder / "token"
        if told["token"]:
            token_file.write_text(told["token"])
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        pids = [process.pid] if number == 1 else list(map(int, children))
        try:
            yield ServedProcesses(told["url"], token_file.read_text(), pids, process.pid)
        finally:
            process.terminate()


async def measure(served: ServedProcesses, url: str, options: argparse.Namespace) -> ProcessCosts:
    """Submit runs and follow them to their ends."""
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(served.url, headers=headers, connector=connector, timeout=timeout) as client:

        async def one() -> None:
            await follow(client, await submit(client))

        watched = sorted({*served.pids, served.parent})
        await run_concurrently(one, options.concurrency, options.concurrency)  # warm-up
        used, database = {pid: read_cpu_seconds(pid) for pid in watched}, await read_server_cpu(url)
        began = time.perf_counter()
        await run_concurrently(one, options.runs, options.concurrency)
        seconds = time.perf_counter() - began
        cpu = {pid: read_cpu_seconds(pid) - used[pid] for pid in watched}
        return ProcessCosts(
            runs_per_second=options.runs / seconds,
            cpu_per_run=sum(cpu.values()) * 1000 / options.runs,
            database_per_run=(await read_server_cpu(url) - database) * 1000 / options.runs,
            shares=[cpu[pid] / seconds for pid in served.pids],
        )


def measure_processes(folder: Path, url: str, number: int, options: argparse.Namespace) -> ProcessCosts:
    with (
        serve_processes(folder, url, number) as served,
        limit_processes(served.pids, options.share / 100) as how,
    ):
        costs = asyncio.run(measure(served, url, options))
    shares = ", ".join(f"{share:.0%}" for share in costs.shares)
    print(
        f"{number} process{'es' if number > 1 else ''}: {costs.runs_per_second:.1f} runs/s; ms of CPU a run: "
        f"server {costs.cpu_per_run:.1f}, PostgreSQL {costs.database_per_run:.1f}; "
        f"shares of a core {shares} ({how})",
        flush=True,
    )
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.processes", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="Runs of each measurement.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=40, help="Runs in progress.")
    parser.add_argument("--share", type=int, default=int(SHARE * 100), help="Percent of a core for each process.")
    parser.add_argument("--url", help="An empty PostgreSQL database. Default: a server of its own.")
    options = parser.parse_args()
    speedups, extra = list[float](), list[float]()
    with open_database(options.url) as url, serve_endpoint() as model, tempfile.TemporaryDirectory() as name:
        make_home(Path(name), model)
        for _ in range(options.rounds):
            one, two = (measure_processes(Path(name), url, number, options) for number in (1, 2))
            speedups.append(two.runs_per_second / one.runs_per_second)
            extra.append(two.cpu_per_run / one.cpu_per_run - 1)
    speedup, more = statistics.median(speedups), statistics.median(extra)
    print(
        f"two processes: {speedup:.2f} times the runs of one, {more:+.0%} CPU per run "
        f"(medians of {options.rounds} rounds; bars {MIN_SPEEDUP} and {MAX_EXTRA_CPU:+.0%})"
    )
    is_met = speedup >= MIN_SPEEDUP and more <= MAX_EXTRA_CPU
    print("the bars are met" if is_met else "the bars are NOT met")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
