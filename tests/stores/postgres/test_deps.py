"""Runs with deps of their own execute only in a process that has the deps, or makes them."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import treadle
from tests.patience import HANG_SECONDS
from tests.stores.postgres.harness import opened
from tests.stores.postgres.shop import SELLER, open_bare_engine, open_engine
from treadle.domain.envelope import make_draft
from treadle.domain.errors import NotClaimable, RunUnavailable
from treadle.domain.events import RunEnd, RunQueued, RunWaiting
from treadle.domain.ids import EventId, RunId
from treadle.ports.journal import LEASE_SECONDS, Release
from treadle.stores.postgres.driver import open_connection
from treadle.stores.postgres.journal import PostgresJournal
from treadle.testing import FakeClock
from treadle.testing.conformance.store import Recorder, StoreProcess
from treadle.testing.time import CountingIds


def launch(role: str, url: str, folder: Path) -> "Popen[str]":
    command = [sys.executable, "-m", "tests.stores.postgres.shop", role, url, str(folder)]
    return Popen(command, stdin=PIPE, stdout=PIPE, text=True)


@asynccontextmanager
async def start(role: str, url: str, folder: Path) -> AsyncGenerator[tuple["Popen[str]", str]]:
    """Yield another process, and the first line that it prints."""
    with launch(role, url, folder) as it:
        assert it.stdout is not None
        try:
            yield it, (await asyncio.to_thread(it.stdout.readline)).strip()
        finally:
            it.kill()


def make_deps(context: treadle.RunContext[None]) -> str:
    return "Warp"


async def read_results(engine: treadle.Engine, run_id: str) -> list[str]:
    return [item.result for item in await engine.transcript(run_id) if isinstance(item, treadle.CallItem)]


async def list_waits(engine: treadle.Engine, *run_ids: str) -> list[str]:
    """Return what these runs have ever lacked."""
    return [
        event.data.detail
        for run_id in run_ids
        async for event in engine.events(run_id)
        if isinstance(event.data, RunWaiting) and event.data.reason == "unavailable"
    ]


async def count_claims(url: str, run_id: str) -> int:
    connection = await open_connection(url, 30, {"search_path": "treadle"})
    try:
        return await connection.fetchval("SELECT epoch FROM runs WHERE run_id = $1", run_id)
    finally:
        await connection.close()


@pytest.fixture
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps find nothing here: a wake that is missed is never made good."""
    look = PostgresJournal.runnable

    async def find_nothing(journal: PostgresJournal, limit: int = 100) -> Sequence[RunId]:
        await look(journal, limit)
        return ()

    monkeypatch.setattr(PostgresJournal, "runnable", find_nothing)


@pytest.mark.usefixtures("no_sweeps")
async def test_the_process_that_has_the_deps_executes_the_run(url: str, tmp_path: Path) -> None:
    """Another process takes and delays none: a run, its child, the next run of its session, and one that this other
    process has approved."""
    async with asyncio.timeout(HANG_SECONDS), start("plain", url, tmp_path / "other") as (other, said):
        assert said == "open"
        async with open_engine(url, tmp_path / "home") as engine:
            names = [f"shop {number}" for number in range(8)]
            runs = await asyncio.gather(*[engine.run(SELLER, "show_shop", deps=name) for name in names])
            found = [await read_results(engine, run.run_id) for run in runs]
            assert found == [[name] for name in names]
            first = await engine.submit(SELLER, "clerk", deps="Weft", session=runs[0].session_id)
            second = await engine.submit(
                SELLER, "show_shop", deps="Warp", session=runs[0].session_id, after_current=True
            )
            await engine.wait(first)
            await engine.wait(second)
            [child] = await engine.list_runs(agent="clerk")
            assert await read_results(engine, child.run_id) == ["Weft"]
            assert await read_results(engine, second) == ["Warp"]
            asked = await engine.run(SELLER, "sell", deps="Loom")
            assert other.stdin is not None
            other.stdin.write(f"{asked.approvals[0].approval_id}\n")
            other.stdin.flush()
            assert (await engine.wait(asked.run_id, until="ended")).text == "Done."
            assert await read_results(engine, asked.run_id) == ["sold by Loom"]
            everything = [run.run_id for run in await engine.list_runs()]
            assert len(everything) == 12
            assert await list_waits(engine, *everything) == []


@pytest.mark.usefixtures("no_sweeps")
async def test_a_process_that_lacks_a_tool_hands_the_run_on(url: str, tmp_path: Path) -> None:
    """To one that has it, even if no one waits for the run."""
    async with asyncio.timeout(HANG_SECONDS), start("bare", url, tmp_path / "one") as (_, said):
        assert said == "open"
        async with open_engine(url, tmp_path / "home") as engine:
            run_ids = [await engine.submit(SELLER, "show_sign") for _ in range(20)]
            for run_id in run_ids:
                [*_, end] = [event.data async for event in engine.events(run_id)]
                assert isinstance(end, RunEnd)
                assert end.text == "Done."


async def test_processes_that_all_lack_a_tool_try_once_each(url: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as opened_here, asyncio.timeout(HANG_SECONDS):
        async with open_engine(url, tmp_path / "home") as engine:
            asked = await engine.run(SELLER, "sell", deps=None)
        for name in ("one", "two"):
            await opened_here.enter_async_context(start("bare", url, tmp_path / name))
        engine = await opened_here.enter_async_context(open_bare_engine(url, tmp_path / "none"))
        await engine.decide(asked.approvals[0].approval_id, "approve")
        with pytest.raises(RunUnavailable, match="sell"):
            await engine.wait(asked.run_id)
        for _ in range(5):  # a run that they pass to each other would be claimed all the time
            await engine.run(treadle.Agent("idle", model="scripted/any"), "Hello.")
        assert await count_claims(url, asked.run_id) <= 8


async def test_after_kill_9_a_process_that_makes_deps_executes_the_run(url: str, tmp_path: Path) -> None:
    """A process that does not make them leaves it alone."""
    async with AsyncExitStack() as opened_here, asyncio.timeout(HANG_SECONDS):
        it, run_id = await opened_here.enter_async_context(start("submitter", url, tmp_path / "one"))
        assert it.stdout is not None
        assert await asyncio.to_thread(it.stdout.readline) == "counting\n"
        for name in ("two", "three"):
            await opened_here.enter_async_context(start("plain", url, tmp_path / name))
        engine = await opened_here.enter_async_context(open_engine(url, tmp_path / "home", make_deps))
        it.kill()
        assert (await engine.wait(run_id)).text == "Done."
        assert await read_results(engine, run_id) == ["counted by Warp"]
        assert await list_waits(engine, run_id) == []


async def test_after_kill_9_the_run_waits_for_a_process_that_makes_deps(url: str, tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_SECONDS), start("submitter", url, tmp_path / "one") as (it, run_id):
        assert it.stdout is not None
        assert await asyncio.to_thread(it.stdout.readline) == "counting\n"
        it.kill()
        async with open_engine(url, tmp_path / "plain") as plain:
            with pytest.raises(RunUnavailable, match="submitted with deps of its own"):
                await plain.wait(run_id)
            async with open_engine(url, tmp_path / "home", make_deps) as engine:
                assert (await engine.wait(run_id)).text == "Done."
                assert await read_results(engine, run_id) == ["counted by Warp"]


class Provider:
    """Implements `ports.journal.DepsProvider`."""

    def __init__(self, *, makes_deps: bool = False) -> None:
        self.makes_deps = makes_deps
        self.begun: set[RunId] = set()

    def holds(self, run_id: RunId) -> bool:
        return run_id in self.begun


async def test_who_may_claim_a_run_with_deps_of_its_own(url: str) -> None:
    """The process that has them while it lives, then one that makes them, then any."""
    clock, ids = FakeClock(), CountingIds()
    async with AsyncExitStack() as stack:

        async def join(name: str, provider: Provider) -> StoreProcess:
            journal, _, _ = await stack.enter_async_context(opened(url, Recorder(), clock))
            journal.provide_deps(name, provider)
            return StoreProcess(journal, Recorder(), clock, ids, name)

        has, makes = Provider(), Provider(makes_deps=True)
        here, plain = await join("here", has), await join("plain", Provider())

        async def submit(process: StoreProcess) -> RunId:
            origin = process.origin()
            has.begun.add(origin.run_id)
            queued = RunQueued(treadle.Agent("seller", model="a/b").spec, own_deps=True)
            draft = make_draft(EventId(ids("evt")), clock.now(), queued)
            return await process.store.submit(origin, (draft,))

        one, two, three = [await submit(here) for _ in range(3)]
        assert await plain.store.runnable() == []
        assert await here.store.runnable() == [one, two, three]
        with pytest.raises(NotClaimable, match="deps of its own"):
            await plain.claim(one)
        await here.claim(one)
        clock.pass_time(LEASE_SECONDS + 1)  # it has died
        assert await plain.store.runnable() == [one, two, three]
        await plain.claim(one)
        maker = await join("maker", makes)
        assert await maker.store.runnable() == [two, three]
        assert await plain.store.runnable() == []
        with pytest.raises(NotClaimable, match="deps of its own"):
            await plain.claim(two)
        claim = await maker.claim(two)
        await maker.advance(claim, claim.events[-1].sequence, release=Release(wake_at=clock.now()))
        await here.store.runnable()  # it was only slow
        with pytest.raises(NotClaimable, match="deps of its own"):
            await here.claim(two)  # its deps were made anew
        with pytest.raises(NotClaimable, match="deps of its own"):
            await maker.claim(three)
        await here.claim(three)
