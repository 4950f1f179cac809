"""Many workers on PostgreSQL: one worker with a free slot claims each runnable run."""

import asyncio
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.stores.postgres.harness import opened
from tests.stores.postgres.servers import NAMED, start, stop, tell
from tests.testing.test_conformance import named
from treadle.dispatch import local, pgqueuer
from treadle.dispatch.pgqueuer import PgQueuerDispatcher
from treadle.domain.errors import NotClaimable
from treadle.domain.ids import Instant, RunId
from treadle.ports.journal import LEASE_SECONDS, Release, Wakes
from treadle.stores.postgres.connection import SCHEMA, connect
from treadle.stores.postgres.driver import open_connection
from treadle.testing.conformance import dispatcher as conformance
from treadle.testing.conformance.dispatcher import DispatcherCheck, ListedWakes, ObservedWork
from treadle.testing.conformance.store import Recorder, StoreProcess
from treadle.testing.time import CountingIds, FakeClock

IDS = CountingIds()
"""Of all processes."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps are not waited for."""
    monkeypatch.setattr(local, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(pgqueuer, "LONGEST_PAUSE_SECONDS", 0.2)


class HastyClock:
    """The wall clock, twenty times as fast."""

    def now(self) -> Instant:
        return time.time() * 20

    def monotonic(self) -> float:
        return time.monotonic() * 20


class OnServer:
    """Implements `DispatcherHarness`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._clock = HastyClock()

    def make(self, wakes: Wakes, worker: str, concurrency: int) -> PgQueuerDispatcher:
        return PgQueuerDispatcher(partial(connect, self._url, SCHEMA), wakes, self._clock, worker, concurrency)

    def now(self) -> Instant:
        return self._clock.now()


@pytest.mark.parametrize("check", named(conformance.CHECKS))
async def test_pgqueuer_keeps_the_contract_of_dispatchers(check: DispatcherCheck, url: str) -> None:
    await check(OnServer(url))


# ── Workers over one database ──────────────────────────────────────────────────────────────────────


class Worker(StoreProcess):
    """A process that works on what its dispatcher finds: it claims the run, labours, and ends it."""

    dispatcher: PgQueuerDispatcher
    labour: ObservedWork
    ended: Counter[RunId]
    in_vain: int = 0

    async def work(self, run_id: RunId) -> None:
        try:
            claim = await self.claim(run_id)
        except NotClaimable:
            self.in_vain += 1
            return
        try:
            await self.labour(run_id)
        except asyncio.CancelledError:
            await self.advance(claim, 2, release=Release(wake_at=self.clock.now()))
            raise
        await self.end(claim, 2)
        self.ended[run_id] += 1


@asynccontextmanager
async def worker(
    url: str,
    name: str = "worker",
    clock: FakeClock | None = None,
    wakes: Wakes | None = None,
    concurrency: int = 100,
) -> AsyncGenerator[Worker, None]:
    """Without wakes of its own it sweeps in the store."""
    told, ticking = Recorder(), clock or FakeClock()
    async with opened(url, told, ticking) as (journal, _, _):
        process = Worker(journal, told, ticking, IDS, name)
        process.labour, process.ended = ObservedWork(), Counter()
        process.dispatcher = PgQueuerDispatcher(
            partial(connect, url, SCHEMA), wakes or journal, ticking, name, concurrency
        )
        await process.dispatcher.start(process.work)
        try:
            yield process
        finally:
            await process.dispatcher.stop()


async def eventually(seen: Callable[[], bool]) -> None:
    while not seen():  # noqa: ASYNC110 -- there is nothing to be told by
        await asyncio.sleep(0.01)


async def fetch_value(url: str, question: str) -> Any:
    connection = await open_connection(url, 10, {})
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def test_every_run_is_executed_once_by_a_worker_with_a_free_slot(url: str) -> None:
    """No process sweeps: the jobs start the work."""

    async with worker(url, "one", wakes=ListedWakes()) as one, worker(url, "two", wakes=ListedWakes()) as two:
        runs = await asyncio.gather(*(one.submit(f"session {number % 20}") for number in range(40)))
        await eventually(lambda: one.ended.total() + two.ended.total() == len(runs))
        assert one.ended + two.ended == Counter(runs)


async def test_a_worker_takes_no_second_job_before_the_first_has_its_place(url: str) -> None:
    async with worker(url, "submitting", wakes=ListedWakes(), concurrency=0) as submitting:
        runs = {await submitting.submit() for _ in range(5)}
        async with worker(url, "small", wakes=ListedWakes(), concurrency=1) as small:
            small.labour.may_end.clear()
            await small.labour.until(lambda: small.labour.active.total() == 1)
            count_jobs = partial(fetch_value, url, "SELECT count(*) FROM treadle.pgqueuer")
            while await count_jobs() == len(runs):  # noqa: ASYNC110 -- there is nothing to be told by
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert await count_jobs() == len(runs) - 1
            small.labour.may_end.set()
            await eventually(lambda: set(small.ended) == runs)


async def test_a_worker_that_is_full_leaves_the_jobs_to_others(url: str) -> None:
    async with worker(url, "full", wakes=ListedWakes(), concurrency=1) as full:
        full.labour.may_end.clear()
        first = await full.submit()
        await full.labour.until(lambda: full.labour.active[first] == 1)
        others = [await full.submit() for _ in range(5)]
        async with worker(url, "idle", wakes=ListedWakes()) as idle:
            await eventually(lambda: idle.ended == Counter(others))
        last = await full.submit()
        full.labour.may_end.set()
        await eventually(lambda: full.ended == Counter([first, last]))


async def test_the_sweep_finds_runs_whose_jobs_are_missing(url: str) -> None:
    """Also where it is taken again and again, by hand."""

    async with worker(url) as process:
        process.labour.may_end.clear()
        await tell(url, "CREATE RULE gone AS ON INSERT TO treadle.pgqueuer DO INSTEAD NOTHING")
        runs = [await process.submit("s") for _ in range(3)]
        process.labour.may_end.set()
        await eventually(lambda: process.ended == Counter(runs))


async def test_a_job_that_is_delivered_twice_executes_its_run_once(url: str) -> None:
    async with worker(url, "one", wakes=ListedWakes()) as one, worker(url, "two", wakes=ListedWakes()) as two:
        one.labour.may_end.clear()
        two.labour.may_end.clear()
        run_id = await one.submit()
        await eventually(lambda: one.labour.active[run_id] + two.labour.active[run_id] == 1)
        again = (
            "INSERT INTO treadle.pgqueuer (priority, entrypoint, payload, status) "
            "SELECT 0, 'run', convert_to(run_id, 'UTF8'), 'queued' FROM treadle.runs, generate_series(1, 6)"
        )
        await tell(url, again, again)
        while await fetch_value(url, "SELECT count(*) FROM treadle.pgqueuer"):  # noqa: ASYNC110 -- likewise
            await asyncio.sleep(0.02)
        assert one.labour.active[run_id] + two.labour.active[run_id] == 1
        one.labour.may_end.set()
        two.labour.may_end.set()
        await eventually(lambda: one.ended + two.ended == Counter([run_id]))


async def test_a_timer_fires_for_a_worker_that_started_later(url: str) -> None:
    async with worker(url, "one", wakes=ListedWakes()) as one:
        one.labour.may_end.clear()
        run_id = await one.submit()
        await eventually(lambda: one.labour.active[run_id] == 1)
        await one.dispatcher.stop()
        later = await one.claim(run_id)
        await one.advance(later, 2, release=Release("retry", wake_at=one.clock.now() + 0.5))
        released = time.monotonic()
        async with worker(url, "two", wakes=ListedWakes()) as two:
            await eventually(lambda: two.ended == Counter([run_id]))
            assert time.monotonic() - released >= 0.5


async def test_runs_released_by_a_stopping_worker_are_taken_at_once(url: str) -> None:
    """It is given time, and what has not come to its end by then is handed on."""

    async with worker(url, "two", wakes=ListedWakes(), concurrency=1) as two:
        two.labour.may_end.clear()
        held = await two.submit()
        await two.labour.until(lambda: two.labour.active[held] == 1)
        async with worker(url, "one", wakes=ListedWakes()) as one:
            one.labour.may_end.clear()
            runs = [await one.submit() for _ in range(3)]
            await one.labour.until(lambda: one.labour.active.total() == 3)
            stopping = asyncio.ensure_future(one.dispatcher.stop(grace=0.3))
            await asyncio.sleep(0.05)
            late = await two.submit()
            two.labour.may_end.set()
            await stopping
            assert sorted(one.labour.cancelled) == sorted(runs)
            await eventually(lambda: two.ended == Counter([held, late, *runs]))


async def test_the_runs_of_a_dead_worker_are_taken_over(url: str) -> None:
    """The sweep finds them when the leases have expired: there are no jobs for them."""

    clock = FakeClock()
    async with worker(url, "alive", clock) as alive:
        await alive.dispatcher.stop()
        dead = StoreProcess(alive.store, alive.told, clock, IDS, "dead")
        claims = [await dead.claimed() for _ in range(3)]
        async with worker(url, "other", clock) as other:
            await asyncio.sleep(0.2)
            assert other.ended.total() == 0
            clock.pass_time(LEASE_SECONDS)
            await eventually(lambda: other.ended == Counter(claim.origin.run_id for claim in claims))


# ── Servers that go away ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder() -> Generator[Path, None, None]:
    """Yield a folder whose path is short enough for a socket."""
    made = Path(tempfile.mkdtemp(prefix="queue"))
    yield made
    shutil.rmtree(made)


@pytest.mark.skipif(NAMED in os.environ, reason="the server is stopped")
async def test_workers_continue_after_the_database_restarts(folder: Path) -> None:
    """The queue is heard again without anybody's help; what was in it at a crash is found by the sweep."""
    server = start(folder / "data")

    async def scenario() -> None:
        wakes = ListedWakes()
        async with worker(server.get_uri(), wakes=wakes) as process:
            for how in ("fast", "immediate"):
                before = await process.submit()
                await eventually(lambda run_id=before: process.ended[run_id] == 1)
                await asyncio.to_thread(stop, server, how)
                waiting = asyncio.ensure_future(process.submit())
                await asyncio.sleep(0.3)
                await asyncio.to_thread(server.ensure_postgres_running)
                meanwhile = await waiting
                wakes.due = [meanwhile]
                await eventually(lambda run_id=meanwhile: process.ended[run_id] == 1)
                wakes.due = []
                after = await process.submit()
                await eventually(lambda run_id=after: process.ended[run_id] == 1)
            assert process.ended.total() == 6

    try:
        await scenario()
    finally:
        server.cleanup()
