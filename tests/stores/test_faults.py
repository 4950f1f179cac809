"""A disk that fills up, an fsync that fails, a database that others lock or damage, while the engine runs."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.faulty_disk import FaultyDisk, faulty_disk
from tests.stores.processes import HOLD_THE_WRITE_LOCK, discard, holder
from treadle import Agent
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.errors import StoreError, StoreFull, StoreLost
from treadle.stores.sqlite import writer as writing
from treadle.stores.sqlite.connection import SqliteDatabase, open_database, open_reader
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.writer import ThreadWriter
from treadle.testing.conformance.store import OPENING, Recorder, StoreProcess, make_step
from treadle.testing.models import FunctionModel, Silence, say
from treadle.testing.time import CountingIds, FakeClock

AGENT = Agent(name="ada", model="fake/m-1")


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RETRY_SECONDS", 0.01)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "treadle.db")


class ConnectedProcess(StoreProcess):
    """A process, with the connection that its writer commits on."""

    connection: Any


@asynccontextmanager
async def process_on(path: str, ids: CountingIds | None = None) -> AsyncGenerator[ConnectedProcess, None]:
    recorder, clock = Recorder(), FakeClock()
    database = open_database(path)
    writer = ThreadWriter(database, open_reader(path), path, recorder.on_lost)
    journal = SqliteJournal(writer, recorder, clock)
    process = ConnectedProcess(journal, recorder, clock, ids or CountingIds(), "worker")
    process.connection = database
    try:
        yield process
    finally:
        async with asyncio.timeout(HANG_SECONDS):
            await journal.close()


async def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for another thread or process."""
    async with asyncio.timeout(HANG_SECONDS):
        while not condition():  # noqa: ASYNC110 -- there is no event to wait for
            await asyncio.sleep(0.001)


async def stays_open(future: "asyncio.Future[object]", tries: Callable[[], int]) -> None:
    """Check that it is tried again and again and not settled."""
    first = tries()
    await wait_for(lambda: tries() > first + 2)
    assert not future.done()


# ── Full ───────────────────────────────────────────────────────────────────────────────────────────


def fill_up(connection: SqliteDatabase) -> None:
    """Limit the database to its present number of pages."""
    pages = connection.execute("PRAGMA page_count").fetchall()[0][0]
    connection.execute(f"PRAGMA max_page_count = {pages}")


def make_room(connection: SqliteDatabase) -> None:
    connection.execute("PRAGMA max_page_count = 1000000")


async def test_a_full_disk_refuses_new_work_and_delays_work_in_progress(path: str) -> None:
    async with process_on(path) as process:
        claim = await process.claimed()
        run_id, seen = claim.origin.run_id, 2
        fill_up(process.connection)
        with pytest.raises(StoreFull) as raised:
            await asyncio.gather(*(process.submit() for _ in range(500)))  # the last pages have some room
        assert path in str(raised.value)
        assert "\n" not in str(raised.value)

        big = [make_step(number) for number in range(2000)]
        advancing = asyncio.ensure_future(process.advance(claim, seen, big))
        await asyncio.sleep(0)  # so that it is the first: what comes before it might still fit
        with pytest.raises(StoreFull):
            await process.submit()
        with pytest.raises(StoreFull):
            await process.steer(run_id, "x" * 100_000)
        assert not advancing.done()

        assert await process.types(run_id) == OPENING, "reading works"
        assert await process.store.find()

        make_room(process.connection)
        async with asyncio.timeout(HANG_SECONDS):
            assert (await advancing).sequence == 2002
        await process.submit()
        assert process.told.errors == []
        assert len(await process.store.read(run_id, 0, 5000)) == 2002, "once, and not once for every try"


async def test_closing_does_not_wait_for_disk_space(path: str) -> None:
    async with process_on(path) as process:
        claim = await process.claimed()
        fill_up(process.connection)
        advancing = asyncio.ensure_future(process.advance(claim, 2, [make_step(number) for number in range(2000)]))
        with pytest.raises(StoreFull):
            await process.steer(claim.origin.run_id, "x" * 100_000)
        assert not advancing.done()
    with pytest.raises(StoreFull, match="the disk is full"):
        await advancing


async def test_a_full_file_system_is_handled_like_a_full_database(path: str) -> None:
    """The same when it is the file system that says so."""

    with faulty_disk() as disk:
        async with process_on(path) as process:
            claim = await process.claimed()
            disk.full = True
            advancing = asyncio.ensure_future(process.advance(claim, 2, [make_step(1)]))
            with pytest.raises(StoreFull):
                await process.submit()
            assert not advancing.done()
            assert await process.types(claim.origin.run_id) == OPENING
            disk.full = False
            async with asyncio.timeout(HANG_SECONDS):
                assert (await advancing).sequence == 3
            assert await process.types(claim.origin.run_id) == [*OPENING, "step_start"]


async def test_an_engine_opens_for_reading_on_a_full_disk(path: str) -> None:
    with faulty_disk() as disk:
        async with process_on(path) as process:
            run_id = (await process.claimed()).origin.run_id
        disk.full = True
        try:
            async with asyncio.timeout(HANG_SECONDS), engine_on(path) as engine:
                assert (await engine.service.run(run_id)).status == "running"
        finally:
            disk.full = False


# ── fsync ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_failed_fsync_stops_the_store(path: str) -> None:
    with faulty_disk() as disk:
        async with process_on(path) as process:
            claim = await process.claimed()
            acknowledged = await process.advance(claim, 2, [make_step(1)])
            disk.sync_fails = True
            attempts = (
                process.advance(claim, 3, [make_step(2)]),
                process.submit(),
                process.steer(claim.origin.run_id),
            )
            answers = await asyncio.gather(*attempts, return_exceptions=True)
            assert all(isinstance(answer, StoreLost) for answer in answers), answers
            assert path in str(answers[0])
            await wait_for(lambda: len(process.told.errors) == 1)
            disk.sync_fails = False
            with pytest.raises(StoreLost):  # never again as if nothing had happened
                await process.submit()
            told = process.told.list_published(claim.origin.run_id)
            assert [sequence for sequence, _, _ in told] == [1, 2, 3], "what was lost was not published"
    async with process_on(path) as process:
        types = await process.types(claim.origin.run_id)
        assert types[: acknowledged.sequence] == [*OPENING, "step_start"]
        process.clock.pass_time(60)
        assert (await process.claim(claim.origin.run_id)).death


@asynccontextmanager
async def engine_on(path: str, *, text: str | None = None) -> AsyncGenerator[HostedEngine, None]:
    """Yield an engine whose model gives this answer, or never answers."""
    engine = create_engine(f"sqlite:///{path}", home=Home(Path(path).parent))
    engine.add_model("fake", FunctionModel(lambda _: Silence("so") if text is None else say(text)))
    async with engine:
        yield engine


async def wait_for_type(engine: HostedEngine, run_id: str, type_: str) -> None:
    """Wait until the run has come to this."""
    async for event in engine.events(run_id):
        if event.type == type_:
            return


async def lose_store(engine: HostedEngine, disk: FaultyDisk) -> None:
    """Make a write of the engine fail."""
    disk.sync_fails = True
    with pytest.raises(StoreLost):
        await engine.submit(AGENT, "one too many")
    disk.sync_fails = False


async def test_waiting_callers_get_an_error_when_the_store_is_lost(path: str) -> None:
    async def run() -> str:
        with faulty_disk() as disk:
            async with engine_on(path) as engine:
                run_id = await engine.submit(AGENT, "hello")
                following = engine.events(run_id)
                await anext(following)
                waiting = asyncio.ensure_future(engine.wait(run_id))
                await wait_for_type(engine, run_id, "llm_request")
                await lose_store(engine, disk)
                async with asyncio.timeout(HANG_SECONDS):
                    with pytest.raises(StoreLost):
                        await waiting
                    with pytest.raises(StoreLost):
                        [event async for event in following]
        async with engine_on(path, text="done") as engine, asyncio.timeout(HANG_SECONDS):
            return (await engine.wait(run_id)).text

    assert await run() == "done"


async def test_later_callers_get_an_error_after_the_store_is_lost(path: str) -> None:
    async def told(attempt: Awaitable[object]) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            with pytest.raises(StoreLost):
                await attempt

    with faulty_disk() as disk:
        async with engine_on(path) as engine:
            run_id = await engine.submit(AGENT, "hello")
            early = asyncio.ensure_future(engine.wait(run_id))
            await wait_for_type(engine, run_id, "llm_request")
            await lose_store(engine, disk)
            await told(early)
            await told(engine.wait(run_id))


# ── Locked ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_lock_of_another_program_is_waited_for(path: str) -> None:
    async with process_on(path) as process:
        process.connection.set_busy_timeout(1)
        tries = 0

        def count(*_: object) -> bool:
            nonlocal tries
            tries += 1
            return True

        claim = await process.claimed()
        process.connection.exec_trace = count
        with holder(HOLD_THE_WRITE_LOCK, path) as other:
            advancing = asyncio.ensure_future(process.advance(claim, 2, [make_step(1)]))
            submitting = asyncio.ensure_future(process.submit())
            await stays_open(cast("asyncio.Future[object]", advancing), lambda: tries)
            assert await process.types(claim.origin.run_id) == OPENING
            discard(other)
            async with asyncio.timeout(HANG_SECONDS):
                assert (await advancing).sequence == 3
                await submitting
        assert await process.types(claim.origin.run_id) == [*OPENING, "step_start"]
        assert process.told.errors == []


# ── Damaged ────────────────────────────────────────────────────────────────────────────────────────


async def test_damage_found_while_reading_is_reported(path: str) -> None:
    async with process_on(path) as process:
        runs = [await process.submit() for _ in range(300)]
    async with process_on(path) as process:
        damage_most_of(path)
        with pytest.raises(StoreError, match="damaged"):
            await asyncio.gather(*(process.store.read(run_id) for run_id in runs))


def damage_most_of(path: str) -> None:
    with open(path, "r+b") as file:
        size = file.seek(0, 2)
        file.seek(4096 * 4)
        file.write(b"\xa5" * (size - 4096 * 5))


# ── Newer events ───────────────────────────────────────────────────────────────────────────────────


async def test_events_of_a_newer_version_are_kept_and_ignored(path: str) -> None:
    """A known type whose data a later version has changed beyond what this one can read."""

    async with process_on(path) as process:
        run_id = await process.submit()
        raw = b'{"message": {"entirely":"different"}, "mode":7}'
        process.connection.execute(
            "INSERT INTO events (run, sequence, event_id, timestamp, type, version, data) "
            "VALUES (1, 3, 'evt_new', 0.0, 'message_steered', 9, ?)",
            (raw,),
        )
        event = (await process.gapless(run_id))[2]
        assert (event.raw, event.version, event.type) == (raw, 9, "message_steered")
        assert type(event.data).__name__ == "UnknownEvent"
        assert (await process.advance(await process.claim(run_id), 3, [make_step(1)])).sequence == 4
