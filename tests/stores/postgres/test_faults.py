"""Broken connections, servers that go away and locks: nothing is lost or done twice."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.postgres.harness import opened
from tests.stores.postgres.servers import NAMED, start, stop, tell
from tests.stores.postgres.wire import Wire, wire
from treadle.domain.envelope import Draft, Origin
from treadle.domain.errors import StoreAway, StoreError, StoreFull, StoreLocked, StoreLost
from treadle.domain.ids import AgentId, EventId, RunId, SessionId
from treadle.ports.journal import Advance, Claim, Release
from treadle.stores.postgres import connection, database
from treadle.stores.postgres import writer as batching
from treadle.stores.postgres.driver import open_connection
from treadle.stores.postgres.writer import PostgresWriter
from treadle.testing.conformance.store import OPENING, Recorder, StoreProcess, make_step
from treadle.testing.time import CountingIds, FakeClock

pytestmark = pytest.mark.skipif(NAMED in os.environ, reason="these tests stand between the store and its server")


@pytest.fixture
def folder() -> Generator[Path, None, None]:
    """Yield a folder whose path is short enough for a socket."""
    made = Path(tempfile.mkdtemp(prefix="wire"))
    yield made
    shutil.rmtree(made)


@contextmanager
def impatient() -> Generator[None, None, None]:
    """Shorten the wait of callers. Only while no answer can arrive: a busy machine needs more time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (batching, database):
            patch.setattr(module, "MAX_WAIT_SECONDS", 0.05)
        yield


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits between attempts."""
    monkeypatch.setattr(batching, "TIMEOUT_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(batching, "MAX_BACKOFF_SECONDS", 0.1)
    monkeypatch.setattr(database, "MAX_BACKOFF_SECONDS", 0.1)


class ProcessOverWire(StoreProcess):
    wire: Wire
    writer: PostgresWriter
    url: str
    """Of the database itself, past the wire."""


@asynccontextmanager
async def open_process_over_wire(url: str, folder: Path) -> AsyncGenerator[ProcessOverWire, None]:
    async with wire(url, folder) as (address, between), process_on(address) as process:
        process.wire, process.url = between, url
        yield process


@asynccontextmanager
async def process_on(url: str) -> AsyncGenerator[ProcessOverWire, None]:
    clock, told = FakeClock(), Recorder()
    async with opened(url, told, clock) as (journal, _, writer):
        process = ProcessOverWire(journal, told, clock, CountingIds(), "worker")
        process.writer, process.url = writer, url
        yield process


def once(word: bytes, then: Callable[[], None] = lambda: None) -> Callable[[bytes], bool]:
    """Cut the connection that first says this."""
    left = [1]

    def cuts(data: bytes) -> bool:
        if left and word in data:
            left.pop()
            then()
            return True
        return False

    return cuts


def run(scenario: Awaitable[object]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_SECONDS):
            await scenario

    asyncio.run(bounded())


async def eventually(seen: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not seen():  # noqa: ASYNC110 -- there is nothing to be told by
            await asyncio.sleep(0.01)


def trigger(statement: str) -> str:
    """What makes each append do this first."""
    return (
        "CREATE FUNCTION treadle.fails() RETURNS TRIGGER LANGUAGE plpgsql AS $$ "
        f"BEGIN {statement}; RETURN NULL; END $$; "
        "CREATE TRIGGER fails BEFORE INSERT ON treadle.events EXECUTE FUNCTION treadle.fails()"
    )


async def events_of(url: str) -> Any:
    asking = await open_connection(url, 10, {"search_path": "treadle"})
    try:
        return await asking.fetchval("SELECT count(*) FROM events")
    finally:
        await asking.close()


# ── In doubt ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_commit_whose_answer_is_lost_is_not_made_again(url: str, folder: Path) -> None:
    """The server has committed when the connection breaks: the batch is sent again, and answered as it was."""

    async with open_process_over_wire(url, folder) as process:
        claim = await process.claimed("s")
        later = await process.submit("s")
        process.told.events.clear()
        process.wire.on_reply = once(b'"accepted"')
        advanced = await process.advance(claim, 2, [make_step(1)], [make_step(2)])
        assert (advanced.accepted, advanced.sequence) == (True, 4)
        assert [sequence for sequence, _, _ in process.told.list_published(claim.origin.run_id)] == [3, 4], (
            "told once"
        )
        process.wire.on_reply = once(b'"accepted"')
        assert (await process.end(claim, 4)).accepted, "an end is not taken for one by another"
        assert await process.types(claim.origin.run_id) == [*OPENING, "step_start", "step_start", "run_end"]
        process.wire.on_reply = once(b'"lost"')
        again = await process.claim(later)
        assert (again.epoch, again.death) == (1, None), "it is ours, and was claimed once"
        process.wire.on_reply = once(b'"accepted"')
        released = await process.advance(again, 2, release=Release("interrupted"))
        assert released.accepted, "a release without any event either"


async def test_a_commit_that_did_not_reach_the_server_is_repeated(url: str, folder: Path) -> None:
    async with open_process_over_wire(url, folder) as process:
        claim = await process.claimed()
        process.wire.on_request = once(b'"advance"')
        assert (await process.advance(claim, 2, [make_step(1)])).sequence == 3
        process.wire.on_request = once(b'"submit"')
        run_id = await process.submit()
        process.wire.on_reply = once(b'"new"')
        assert await process.steer(run_id) == 3
        assert await process.types(run_id) == [*OPENING, "message_steered"]
        assert process.told.deliveries == [run_id]


async def test_a_late_batch_is_not_applied_twice(url: str) -> None:
    """The copy that was on the wire when the connection broke gets there after the one that was sent for it."""

    async with process_on(url) as process:
        claim = await process.claimed()
        sent: list[tuple[str, tuple[Any, ...]]] = []
        asking = process.writer._connection  # pyright: ignore[reportPrivateUsage] -- to hear what it is told
        assert asking is not None
        fetchval = asking.fetchval

        class Overheard:
            async def fetchval(self, query: str, *args: Any, **more: Any) -> Any:
                sent.append((query, args))
                return await fetchval(query, *args, **more)

            def __getattr__(self, name: str) -> Any:
                return getattr(asking, name)

        process.writer._connection = Overheard()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue] -- likewise
        await process.advance(claim, 2, [make_step(1)])
        other = await open_connection(url, 10, {"search_path": "treadle"})
        query, args = sent[0]
        assert await other.fetchval(query, *args) == "[true]", "answered as it was"
        await process.advance(claim, 3, [make_step(2)])
        with pytest.raises(Exception, match="is the last one here"):
            await other.fetchval(query, *args)
        await other.close()
        assert await process.types(claim.origin.run_id) == [*OPENING, "step_start", "step_start"]


@pytest.mark.usefixtures("quick")
def test_cut_connections_cause_no_gaps_or_duplicates(url: str, folder: Path) -> None:
    """Many runs go on while connections are cut again and again."""

    async def scenario() -> None:
        async with open_process_over_wire(url, folder) as process:
            claims = [await process.claimed() for _ in range(10)]

            async def live(claim: Claim) -> None:
                seen = 2
                for number in range(15):
                    advanced = await process.advance(claim, seen, [make_step(number)], [make_step(number + 100)])
                    assert advanced.accepted
                    seen = advanced.sequence
                assert (await process.end(claim, seen)).accepted

            async def cut() -> None:
                while True:
                    await asyncio.sleep(0.1)
                    process.wire.cut()

            cutting = asyncio.ensure_future(cut())
            await asyncio.gather(*map(live, claims))
            cutting.cancel()
            for claim in claims:
                events = await process.gapless(claim.origin.run_id)
                assert len(events) == 2 + 30 + 1
                assert len({event.event_id for event in events}) == len(events)
                assert [entry[0] for entry in process.told.list_published(claim.origin.run_id)] == list(
                    range(1, 34)
                )

    run(scenario())


# ── Away ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("quick")
def test_readers_get_an_error_while_the_server_is_down_and_workers_wait(
    url: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with open_process_over_wire(url, folder) as process:
            claim = await process.claimed()
            process.wire.down = True
            process.wire.cut()
            advancing = asyncio.ensure_future(process.advance(claim, 2, [make_step(1)]))
            await eventually(lambda: "cannot be reached" in caplog.text)
            for attempt in (process.submit(), process.steer(claim.origin.run_id), process.store.find()):
                with impatient(), pytest.raises(StoreAway, match="cannot be reached"):
                    await attempt
            claiming = asyncio.ensure_future(process.store.renew("worker"))
            before = process.wire.refused
            await eventually(lambda: process.wire.refused > before + 3)
            assert not advancing.done()
            assert not claiming.done()
            process.wire.down = False
            assert (await advancing).sequence == 3
            assert await claiming == [claim.origin.run_id]
            assert await process.types(claim.origin.run_id) == [*OPENING, "step_start"], "written once"
            assert len(await process.store.find()) == 1
            assert await process.steer(await process.submit()) == 3
            assert process.told.errors == []

    run(scenario())


@pytest.mark.usefixtures("quick")
def test_readers_do_not_wait_for_a_server_that_does_not_answer(url: str, folder: Path) -> None:
    async def scenario() -> None:
        async with open_process_over_wire(url, folder) as process:
            claim = await process.claimed()
            process.wire.holding = True
            advancing = asyncio.ensure_future(process.advance(claim, 2, [make_step(1)]))
            with impatient(), pytest.raises(StoreError, match="Try again later"):
                await process.submit()
            process.wire.holding = False
            assert (await advancing).sequence == 3

    run(scenario())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("silent", [False, True])
def test_a_store_can_be_closed_while_the_server_is_unreachable(url: str, folder: Path, silent: bool) -> None:
    async def scenario() -> None:
        with ExitStack() as leaving:
            async with open_process_over_wire(url, folder) as process:
                claim = await process.claimed()
                process.wire.holding = silent
                if not silent:
                    process.wire.down = True
                    process.wire.cut()
                advancing = asyncio.ensure_future(process.advance(claim, 2, [make_step(1)]))
                await eventually(lambda: process.wire.held + process.wire.refused > 0)
                leaving.enter_context(impatient())
        with pytest.raises(StoreError):
            await advancing
        with pytest.raises(StoreError, match="has been closed"):
            await process.submit()

    run(scenario())


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_work_in_progress_survives_a_restart_of_the_database_server(how: str, folder: Path) -> None:
    """A real one: what was acknowledged is there, what was on its way gets there, once."""
    server = start(folder / "data")

    async def scenario() -> None:
        url = server.get_uri()
        async with process_on(url) as process:
            claims = [await process.claimed() for _ in range(5)]
            acknowledged: dict[str, int] = {}

            async def live(claim: Claim) -> None:
                seen = 2
                for number in range(40):
                    seen = (await process.advance(claim, seen, [make_step(number)])).sequence
                    acknowledged[claim.origin.run_id] = seen
                    await asyncio.sleep(0.005)

            living = asyncio.gather(*map(live, claims))
            await eventually(lambda: sum(acknowledged.values()) > 40)
            await asyncio.to_thread(stop, server, how)
            before = dict(acknowledged)
            await asyncio.to_thread(server.ensure_postgres_running)
            await living
            for claim in claims:
                events = await process.gapless(claim.origin.run_id)
                assert len(events) == 42 > before[claim.origin.run_id]

    try:
        await scenario()
    finally:
        server.cleanup()


# ── In the way ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("quick")
def test_a_lock_of_another_program_is_waited_for(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(connection.SETTINGS, "lock_timeout", "50ms")

    async def scenario() -> None:
        async with process_on(url) as process:
            claim = await process.claimed()
            other = await open_connection(url, 10, {"search_path": "treadle"})
            await other.execute("BEGIN")
            await other.execute("SELECT 1 FROM runs FOR UPDATE")
            advancing = asyncio.ensure_future(process.advance(claim, 2, [make_step(1)]))
            await eventually(lambda: "timed out" in caplog.text)
            with impatient(), pytest.raises(StoreLocked, match="pg_stat_activity"):
                await process.steer(claim.origin.run_id)
            assert not advancing.done()
            await other.execute("ROLLBACK")
            await other.close()
            assert (await advancing).sequence == 3
            assert await process.types(claim.origin.run_id) == [*OPENING, "step_start"], "written once"

    run(scenario())


@pytest.mark.usefixtures("quick")
def test_a_statement_that_takes_too_long_is_tried_again(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(connection.SETTINGS, "statement_timeout", "500ms")

    async def scenario() -> None:
        async with process_on(url) as process:
            claim = await process.claimed()
            await tell(url, trigger(f"PERFORM pg_sleep({HANG_SECONDS})"))
            advancing = asyncio.ensure_future(process.advance(claim, 2, [make_step(1)]))
            await eventually(lambda: "timed out" in caplog.text)
            with impatient(), pytest.raises(StoreLocked):
                await process.submit()
            assert not advancing.done()
            await tell(url, "DROP TRIGGER fails ON treadle.events")
            assert (await advancing).sequence == 3

    run(scenario())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("state", ["40P01", "40001"])
def test_a_transaction_that_lost_to_another_is_retried(url: str, state: str) -> None:
    async def scenario() -> None:
        async with process_on(url) as process:
            claim = await process.claimed()
            once_more = (
                f"IF nextval('treadle.tries') < 4 THEN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END IF"
            )
            await tell(url, "CREATE SEQUENCE treadle.tries", trigger(once_more))
            advanced = await process.advance(claim, 2, [make_step(1)])
            assert advanced.sequence == 3
            assert await process.types(claim.origin.run_id) == [*OPENING, "step_start"]
            assert process.told.errors == []

    run(scenario())


@pytest.mark.usefixtures("quick")
def test_a_full_disk_refuses_new_work_and_keeps_work_in_progress(url: str) -> None:
    async def scenario() -> None:
        async with process_on(url) as process:
            claim = await process.claimed()
            await tell(url, trigger("RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'"))
            advancing = asyncio.ensure_future(process.advance(claim, 2, [make_step(1)]))
            with pytest.raises(StoreFull, match="out of space"):
                await process.submit()
            assert await process.types(claim.origin.run_id) == OPENING, "reads go on"
            await tell(url, "DROP TRIGGER fails ON treadle.events")
            assert (await advancing).sequence == 3
            assert len(await process.store.find()) == 1

    run(scenario())


async def test_two_processes_with_overlapping_batches_do_not_deadlock(url: str) -> None:
    """Runs of both, told of each other in both orders, in batches that overlap."""

    async with process_on(url) as one, process_on(url) as two:
        claims = [await one.claimed() for _ in range(12)]
        runs = [claim.origin.run_id for claim in claims]

        async def steer(process: StoreProcess, turn: int) -> None:
            order = runs if process is one else runs[::-1]
            await asyncio.gather(*(process.steer(run_id, f"{id(process)} {turn}") for run_id in order))

        for turn in range(10):
            await asyncio.gather(steer(one, turn), steer(two, turn))
        for run_id in runs:
            assert len(await one.gapless(run_id)) == 22


# ── Beyond repair ──────────────────────────────────────────────────────────────────────────────────


async def test_a_database_that_lost_acknowledged_data_stops_the_store(url: str) -> None:
    """As after a failover to a standby that was behind, or a restored backup."""

    async with process_on(url) as process:
        claim = await process.claimed()
        await process.advance(claim, 2, [make_step(1)])
        await tell(url, "UPDATE treadle.writers SET batch = batch - 1")
        with pytest.raises(StoreLost, match="Start it again"):
            await process.advance(claim, 3, [make_step(2)])
        with pytest.raises(StoreLost):
            await process.submit()
        [error] = process.told.errors
        assert isinstance(error, StoreLost)


async def test_an_expired_writer_registers_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "WRITER_EXPIRY_SECONDS", 0.0)

    async with process_on(url) as process:
        claim = await process.claimed()
        await tell(url, "UPDATE treadle.writers SET at = 0")
        async with process_on(url) as other:
            await other.store.submit(Origin(RunId("run_x"), SessionId("x"), AgentId("a")), other.opening())
        assert (await process.advance(claim, 2, [make_step(1)])).sequence == 3
        assert (await process.advance(claim, 3, [make_step(2)])).sequence == 4


async def test_an_append_that_cannot_be_stored_fails_alone_and_is_named(url: str) -> None:
    async with process_on(url) as process:
        good, bad = await process.claimed(), await process.claimed()
        odd = Draft(EventId("evt_\x00"), process.clock.now(), "step_start", make_step(1), b"{}")
        attempts = (
            process.store.advance(Advance(bad.origin.run_id, bad.epoch, 2, (odd,))),
            process.advance(good, 2, [make_step(1)]),
            process.store.submit(good.origin, process.opening()),
        )
        first, fine, twice = await asyncio.gather(*attempts, return_exceptions=True)
        assert isinstance(first, StoreError)
        assert isinstance(twice, StoreError)
        assert "runs_run_id_key" in str(twice)
        assert not isinstance(fine, BaseException)
        assert await events_of(url) == 5
        assert (await process.advance(bad, 2, [make_step(1)])).sequence == 3
