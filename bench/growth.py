"""`python -m bench.growth [--runs 100000] [--store sqlite|postgres]`: what becomes slower as a home grows.

Fills a database in steps, up to the given number of runs with about 50 events each, and measures the same
operations after each step. A bar is the ratio between the last step and the first. What is looked for is constant:
the same ten runs match, whatever the size. Ends with status 1 if a bar is missed."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.growth_home import (
    AGENTS,
    DAY,
    NEEDLE,
    NEEDLE_COST,
    NEEDLE_USER,
    NEEDLES,
    RUNS_PER_SESSION,
    GrowingHome,
    record_pattern,
)
from bench.pgserver import open_database
from treadle.api.agent import Agent
from treadle.api.engine import HostedEngine, create_engine
from treadle.domain.ids import RunId, SessionId
from treadle.operations import agents, approvals, memories, runs, search, sessions, usage_report
from treadle.operations.operation import NoParameters, Operation
from treadle.testing import ScriptedModel, say

BAR, SEARCH_BAR = 1.3, 2.0
STEPS_OF_A_RUN = 10
ROUNDS = 9
DAYS_OF_A_STAGE = 10
NOISE_MS = 0.2
"""A difference that another measurement of the same may have."""
RUNS_WITH_NEEDLES = NEEDLES * RUNS_PER_SESSION
Measure = Callable[[HostedEngine], Awaitable[object]]


def list_measures(home: "MeasuredHome") -> dict[str, Measure]:
    """Return what is measured, by name."""
    since = datetime.now(UTC) - timedelta(days=DAYS_OF_A_STAGE / 2)
    lists: dict[str, dict[str, Any]] = {
        "": {},
        "agent": {"agent": "agent-3"},
        "session": {"session_id": home.session_id},
        "user": {"user": NEEDLE_USER},
        "status": {"status": "failed"},
        "rare outcome": {"outcome": "stuck"},
        "unfinished": {"unfinished": True},
        "since": {"since": since},
        "until": {"until": home.first_day},
        "text": {"text": NEEDLE},
        "least cost": {"min_cost": NEEDLE_COST},
        "agent, status and text": {"agent": "agent-3", "status": "failed", "text": NEEDLE},
    }
    found: dict[str, Measure] = {
        f"runs list{f': {name}' if name else ''}": _perform(runs.LIST, runs.ListRuns(**wanted))
        for name, wanted in lists.items()
    }
    return found | {
        "sessions list": _perform(sessions.LIST, sessions.ListSessions()),
        "sessions list: next page": _perform(sessions.LIST, sessions.ListSessions(cursor=home.latest_session)),
        "session": _perform(sessions.SHOW, sessions.ShowSession(home.session_id)),
        "usage": _perform(usage_report.SHOW, usage_report.ShowUsage(since=since.date().isoformat())),
        "usage by day": _perform(usage_report.SERIES, usage_report.ShowSeries(since=since.date().isoformat())),
        "search": _search_all,
        "feed from the end": _read_end_of_feed,
        "journal of an old run": home.read_journal,
        "transcript of an old run": home.read_transcript,
        "recall": _perform(memories.LIST, memories.ListMemories(agent="agent-3", query="the printer is slow")),
        "first page of the dashboard": _load_first_page,
        "a new run": _start_run,
    }


class MeasuredHome:
    """The database under measurement, and old things in it."""

    def __init__(self, database: str, begin: float) -> None:
        self.database = database
        self.first_day = datetime.fromtimestamp(begin, UTC) + timedelta(minutes=10)
        self.run_id, self.session_id = RunId(""), SessionId("")
        self.latest_session = ""

    async def read_journal(self, engine: HostedEngine) -> object:
        return [event async for event in engine.events(self.run_id)]

    async def read_transcript(self, engine: HostedEngine) -> object:
        return await engine.transcript(self.run_id)

    async def look_up(self) -> None:
        """Find the run, the session and the page that are measured."""
        async with create_engine(self.database) as engine:
            [oldest, *_] = (await engine.call(runs.LIST, runs.ListRuns(outcome="stuck"))).items[::-1]
            self.run_id, self.session_id = oldest.run_id, oldest.session_id
            self.latest_session = (await engine.call(sessions.LIST, sessions.ListSessions(limit=20))).next or ""


def _perform(operation: Operation[Any, Any], request: Any) -> Measure:
    return lambda engine: engine.call(operation, request)


async def _search_all(engine: HostedEngine) -> object:
    hits: list[search.SearchHit] = []
    cursor: str | None = None
    while True:
        page = await engine.call(search.FIND, search.FindText(NEEDLE, cursor=cursor))
        hits += page.items
        if (cursor := page.next) is None:
            break
    assert len(hits) >= NEEDLES, f"{len(hits)} hits"
    return hits


async def _read_end_of_feed(engine: HostedEngine) -> object:
    position = await engine.service.position()
    async with aclosing(engine.service.feed(position - 100)) as feed:
        async for placed in feed:
            if placed.position == position:
                break
    return position


async def _load_first_page(engine: HostedEngine) -> object:
    """Perform the operations of the list of runs, which the dashboard opens with."""
    await engine.call(agents.LIST, NoParameters())
    await engine.call(approvals.LIST, approvals.ListApprovals())
    return await engine.call(runs.LIST, runs.ListRuns(limit=50))


async def _start_run(engine: HostedEngine) -> object:
    return await engine.run(Agent("agent-0", model="scripted/any"), "Hello.")


async def measure_opening(database: str) -> float:
    """Return the fewest milliseconds that opening an engine takes."""
    taken: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        async with create_engine(database):
            taken.append(time.perf_counter() - began)
    return min(taken) * 1000


async def measure(home: MeasuredHome) -> dict[str, float]:
    """Return the fewest milliseconds that each operation takes."""
    await home.look_up()
    found = {"opening": await measure_opening(home.database)}
    async with create_engine(home.database) as engine:
        engine.add_model("scripted", ScriptedModel(*[say("Hello.")] * (ROUNDS + 1)))
        engine.add_agents(*(Agent(f"agent-{number}", model="scripted/any") for number in range(AGENTS)))
        while await engine.context.overview.index_texts():  # which `treadle serve` does in the background
            pass
        for name, perform in list_measures(home).items():
            await perform(engine)
            found[name] = await _time_calls(engine, perform)
    return found


async def _time_calls(engine: HostedEngine, perform: Measure) -> float:
    taken: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await perform(engine)
        taken.append(time.perf_counter() - began)
    return min(taken) * 1000


async def report(database: str, sizes: list[int]) -> int:
    """Fill and measure, and print a table. Return the number of missed bars."""
    begin = time.time() - DAYS_OF_A_STAGE * DAY * len(sizes)
    with tempfile.TemporaryDirectory() as folder:
        pattern = await record_pattern(f"sqlite:///{folder}/pattern.db", STEPS_OF_A_RUN)
    home, measured = GrowingHome(database, pattern, begin), MeasuredHome(database, begin)
    stages: list[dict[str, float]] = []
    for size in sizes:
        seconds = await home.grow(size, DAYS_OF_A_STAGE)
        print(f"{size:,} runs, {size * len(pattern.events):,} events: filled in {seconds:.0f} s", flush=True)
        stages.append(await measure(measured))
    print(f"\n{'milliseconds at':32}" + "".join(f"{size:>10,}" for size in sizes) + "     ratio   bar")
    missed = 0
    for name, first in stages[0].items():
        values = [stage[name] for stage in stages]
        ratio, bar = values[-1] / first, SEARCH_BAR if name == "search" else BAR
        is_met = values[-1] - first < NOISE_MS or ratio <= bar
        missed += not is_met
        figures = "".join(f"{value:10.2f}" for value in values)
        print(f"{name:32}{figures}{ratio:10.2f}{bar:6g}  {'met' if is_met else 'MISSED'}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    options = parser.parse_args()
    sizes = [size for size in (options.runs // 100, options.runs // 10, options.runs) if size >= RUNS_WITH_NEEDLES]
    missed = 0
    for store in ("sqlite", "postgres"):
        if options.store in (store, "both"):
            print(f"── {store} ──")
            with open_home(store) as database:
                missed += asyncio.run(report(database, sizes))
    return 1 if missed else 0


@contextmanager
def open_home(store: str) -> Generator[str, None, None]:
    """Yield the URL of an empty database, with an empty home."""
    with tempfile.TemporaryDirectory(prefix="growth") as folder:
        os.environ["TREADLE_HOME"] = folder
        with open_database() if store == "postgres" else nullcontext(f"sqlite:///{folder}/growth.db") as database:
            yield database


if __name__ == "__main__":
    sys.exit(main())
