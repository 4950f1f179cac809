"""Kill a process that executes 200 runs, from outside and by runs that kill their own process.

    python -m bench.recovery [--runs 200] [--seed 1] [--only kills|one|two|postgres]

Model calls take 3 s. Each part prints what it measured and its bar; the exit code is 1 if a bar is missed. A
process is started again as soon as it has died."""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import treadle
from bench.isolation import DEADLY, is_deadly, kill, look
from bench.pgserver import open_database
from treadle.api.engine import HostedEngine, create_engine
from treadle.bootstrap.offline_service import open_service_readonly
from treadle.config.home import Home
from treadle.domain import events as e
from treadle.ports.journal import RunRecord
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

CALL_SECONDS = 3.0
CALLS = 4
"""Model calls of each run."""
PROBE = "ses_probe_"
"""Sessions of runs that are submitted after a start begin with this."""
PROBE_DELAY_SECONDS = 0.5
START_LIMIT_SECONDS = 2.0
KILLS = 3
WORKERS = 3
TAKEOVER_LIMIT, DELAY_LIMIT = 12, 2


async def make_answer(request: ModelRequest) -> ScriptStep:
    """Return a new call at each step. A run that is told to die kills its process in the call after its first
    reply."""
    await asyncio.sleep(CALL_SECONDS)
    messages = request.conversation.messages
    turns = sum(message.role == "assistant" for message in messages)
    if "die" in messages[0].text:
        return ask(call("kill", f"k{turns}"))
    return say("done") if turns == CALLS - 1 else ask(call("look", f"c{turns}", number=turns))


Answer = Callable[[ModelRequest], Awaitable[ScriptStep]]
AGENT = treadle.Agent(
    name="hero",
    model="fake/m",
    tools=["look", "kill"],
    limits={"max_steps": None},
    memory={"recall": 0, "remember": False},
)


async def wait_for_ever(request: ModelRequest) -> ScriptStep:
    """Never answer: the process that submits the runs executes none of their calls."""
    await asyncio.Event().wait()
    return say("")


def make_engine(url: str, home: Path, answer: Answer = make_answer) -> HostedEngine:
    engine = create_engine(url, home=Home(home))
    engine.add_model("fake", FunctionModel(answer))
    engine.add_tools(look, kill)
    return engine


async def run_process(url: str, home: Path, probe: bool) -> None:
    """Execute runs until all have ended. Submit a new run shortly after the start."""
    async with make_engine(url, home) as engine:
        print("open", flush=True)
        if probe:
            await asyncio.sleep(PROBE_DELAY_SECONDS)
            await engine.submit(AGENT, "go", session=f"{PROBE}{uuid4().hex}")
        while unfinished := await engine.service.list_unfinished():
            for record in unfinished:
                await engine.wait(record.origin.run_id)


async def submit_runs(url: str, home: Path, runs: int, deadly: int) -> None:
    async with make_engine(url, home, wait_for_ever) as engine:
        places = set(random.sample(range(runs), deadly))
        for number in range(runs):
            session = f"{DEADLY}{uuid4().hex}" if number in places else None
            await engine.submit(AGENT, "die" if number in places else "go", session=session)


class Worker:
    """A process that executes runs."""

    def __init__(self, url: str, home: Path, *, probe: bool = False) -> None:
        command = [sys.executable, "-m", "bench.recovery", "--work", url, "--home", str(home)]
        self.process = subprocess.Popen(
            [*command, "--probe"] if probe else command,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("VERBOSE") else subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def wait(self, seconds: float | None = None) -> bool | None:
        """Return whether the process ended normally, or None if it still runs after this many seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(seconds) == 0
        return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Report:
    def __init__(self) -> None:
        self.failures = 0

    def check(self, what: str, measured: float, limit: float) -> None:
        is_met = measured <= limit
        self.failures += not is_met
        print(f"  {what}: {measured:.1f} (bar: {limit:.1f}){'' if is_met else ' MISSED'}", flush=True)

    def require(self, what: str, is_met: bool) -> None:
        self.failures += not is_met
        print(f"  {what}: {'yes' if is_met else 'NO'}", flush=True)


async def read_runs(url: str) -> list[tuple[RunRecord, Sequence[e.EventData], float]]:
    """Return each run with its events, and the seconds until it started."""
    found: list[tuple[RunRecord, Sequence[e.EventData], float]] = []
    async with open_service_readonly(url) as service:
        for record in await service.runs(limit=100_000):
            events = [event async for event in service.events(record.origin.run_id)]
            starts = [event.timestamp for event in events if isinstance(event.data, e.RunStart)]
            delay = starts[0] - events[0].timestamp if starts else float("inf")
            found.append((record, [event.data for event in events], delay))
    return found


def check_outcomes(url: str, report: Report) -> None:
    runs = asyncio.run(read_runs(url))
    wrong = [each for each, _, _ in runs if each.outcome != ("quarantined" if is_deadly(each) else "completed")]
    report.require("every other run completed, every deadly run was quarantined", not wrong)
    for record in wrong[:5]:
        print(f"    {record.origin.run_id} {record.origin.session_id}: {record.outcome}")
    delays = [delay for record, _, delay in runs if record.origin.session_id.startswith(PROBE)]
    if delays:
        report.check("seconds until a new run starts", max(delays), START_LIMIT_SECONDS)


class SqliteTrial:
    """A measurement with one process on SQLite."""

    def __init__(self, runs: int, deadly: int, seed: int) -> None:
        self._runs, self._deadly, self._chance = runs, deadly, random.Random(seed)

    def measure(self, kills: int, report: Report, *, probe: bool = False) -> float:
        """Return the seconds until all runs have ended."""
        with tempfile.TemporaryDirectory() as name:
            url, home = f"sqlite:///{name}/runs.db", Path(name) / "home"
            asyncio.run(submit_runs(url, home, self._runs, self._deadly))
            began, deaths = time.monotonic(), 0
            for _ in range(kills):
                worker = Worker(url, home)
                worker.wait(self._chance.random() * CALL_SECONDS * 1.2)
                worker.kill()
            while Worker(url, home, probe=probe).wait() is False:
                deaths += 1
            seconds = time.monotonic() - began
            print(f"  {kills} kills and {deaths} deaths, {seconds:.1f} s", flush=True)
            check_outcomes(url, report)
            return seconds


def measure_sqlite(part: str, given: argparse.Namespace, report: Report) -> None:
    undisturbed = SqliteTrial(given.runs, 0, given.seed).measure(0, report)
    if part == "kills":
        seconds = SqliteTrial(given.runs, 0, given.seed).measure(KILLS, report, probe=True)
        report.check("seconds", seconds, 1.5 * undisturbed + 20)
    else:
        deadly, beyond = (1, 60) if part == "one" else (2, 120)
        seconds = SqliteTrial(given.runs, deadly, given.seed).measure(0, report)
        report.check("seconds beyond the undisturbed time", seconds - undisturbed, beyond)


def measure_postgres(given: argparse.Namespace, report: Report) -> None:
    """Three workers, one of the runs is deadly. A worker that has died is started again."""
    with tempfile.TemporaryDirectory() as name, open_database() as url:
        home = Path(name) / "home"
        asyncio.run(submit_runs(url, home, given.runs, 1))
        began = time.monotonic()
        workers = [Worker(url, home) for _ in range(WORKERS)]
        deaths = 0
        while workers:
            for worker in tuple(workers):
                ended = worker.wait(0.1)
                if ended is not None:
                    workers.remove(worker)
                if ended is False:
                    deaths += 1
                    workers.append(Worker(url, home))
        print(f"  {deaths} deaths, {time.monotonic() - began:.1f} s", flush=True)
        check_outcomes(url, report)
        takeovers = {
            record.origin.run_id: sum(isinstance(event, e.RunRecovered) for event in events)
            for record, events, _ in asyncio.run(read_runs(url))
        }
        report.check("takeovers of the deadly run", max(takeovers.values()), TAKEOVER_LIMIT)
        others = sorted(takeovers.values())[:-1]
        report.check("takeovers of any other run", max(others), DELAY_LIMIT)
        print(f"  {sum(count > 0 for count in others)} of {len(others)} others were taken over")


PARTS = ("kills", "one", "two", "postgres")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        asyncio.run(run_process(given.work, given.home, given.probe))
        return 0
    random.seed(given.seed)
    report = Report()
    for part in (given.only,) if given.only else PARTS:
        print(f"{part}:", flush=True)
        if part == "postgres":
            measure_postgres(given, report)
        else:
            measure_sqlite(part, given, report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
