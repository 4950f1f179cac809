"""Group commit: appends that are ready are committed together, and no append waits for a reader."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.faulty_disk import faulty_disk
from tests.stores.test_faults import process_on
from treadle.domain.events import StepStart
from treadle.engine.event_hub import EventHub
from treadle.stores.sqlite import writer as writing
from treadle.stores.sqlite.connection import open_database, open_reader
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.writer import ThreadWriter
from treadle.testing.conformance.store import Recorder, StoreProcess, make_step
from treadle.testing.time import CountingIds, FakeClock

RUNS = 100
ROUNDS = 5


async def test_many_runs_share_a_commit_and_its_fsync(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        with faulty_disk() as disk:
            async with process_on(str(tmp_path / "treadle.db")) as process:
                claims = await asyncio.gather(*(process.claimed() for _ in range(RUNS)))
                commits, syncs = 0, disk.syncs

                def count() -> bool:
                    nonlocal commits
                    commits += 1
                    return False

                process.connection.set_commit_hook(count)
                for turn in range(ROUNDS):
                    advances = (process.advance(claim, 2 + turn, [make_step(turn)]) for claim in claims)
                    assert all(advanced.accepted for advanced in await asyncio.gather(*advances))
                process.connection.set_commit_hook(None)
                return commits, disk.syncs - syncs

    commits, syncs = await run()
    assert ROUNDS <= commits <= RUNS * ROUNDS / 10
    assert ROUNDS <= syncs <= 2 * commits


async def test_every_commit_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        async with process_on(str(tmp_path / "treadle.db")) as process:
            claim = await process.claimed()
            for turn in range(5):
                before = disk.syncs
                await process.advance(claim, 2 + turn, [make_step(turn)])
                assert disk.syncs > before


async def test_a_reader_that_never_reads_does_not_block_others(tmp_path: Path) -> None:
    path, clock, ids = str(tmp_path / "treadle.db"), FakeClock(), CountingIds()
    hub = EventHub(clock, ids, lambda run_id, at: None)
    journal = SqliteJournal(ThreadWriter(open_database(path), open_reader(path), path, hub.on_lost), hub, clock)
    process = StoreProcess(journal, Recorder(), clock, ids, "worker")
    claim = await process.claimed()
    run_id = claim.origin.run_id
    with hub.subscribe(run_id, backlog=5) as slow, hub.subscribe(run_id) as quick:
        async with asyncio.timeout(HANG_SECONDS):
            for turn in range(200):
                await process.advance(claim, 2 + turn, [make_step(turn)])
        assert await slow.take() is None, "cut off, and told so"
        sequences: list[int] = []
        while len(sequences) < 200:
            events = await quick.take()
            assert events is not None
            assert all(isinstance(event.data, StepStart) for event in events)
            sequences += [event.sequence for event in events]
        assert sequences == list(range(3, 203))
    await journal.close()


async def test_a_commit_does_not_wait_for_a_long_read(tmp_path: Path) -> None:
    """Another program may read for as long as it likes."""

    path = str(tmp_path / "treadle.db")
    async with process_on(path) as process:
        claim = await process.claimed()
        other = open_reader(path)
        reading = iter(other.execute("SELECT * FROM events"))
        next(reading)
        async with asyncio.timeout(HANG_SECONDS):
            assert (await process.advance(claim, 2, [make_step(1)])).accepted
        del reading
        other.close()


async def test_an_item_that_was_committed_alone_is_not_repeated_when_the_rest_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group falls apart because one piece of work is unfit; then the disk is full for the last one. What came
    before is settled and stays as it is."""
    monkeypatch.setattr(writing, "RETRY_SECONDS", 0.01)
    path = str(tmp_path / "treadle.db")

    recorder, clock, database = Recorder(), FakeClock(), open_database(path)
    writer = ThreadWriter(database, open_reader(path), path, recorder.on_lost)
    journal = SqliteJournal(writer, recorder, clock)
    process = StoreProcess(journal, recorder, clock, CountingIds(), "w")
    one, two, three = await process.claimed(), await process.claimed(), await process.submit()
    pages = database.execute("PRAGMA page_count").fetchall()[0][0]
    database.execute(f"PRAGMA max_page_count = {pages}")
    gate = threading.Event()
    writer.write(lambda _: gate.wait(), lambda _: None, patient=True)  # what follows is one group
    advancing = asyncio.ensure_future(process.advance(one, 2, [make_step(1)]))
    claiming = asyncio.ensure_future(process.claim(three))
    unfit = asyncio.ensure_future(process.steer(one.origin.run_id, "hello", "\ud800"))
    large = asyncio.ensure_future(process.advance(two, 2, [make_step(number) for number in range(2000)]))
    await asyncio.sleep(0.05)
    gate.set()
    advanced = await advancing
    assert (advanced.accepted, advanced.sequence, (await claiming).epoch) == (True, 3, 1)
    assert not large.done(), "it waits for room"
    database.execute("PRAGMA max_page_count = 1000000")
    assert (await large).sequence == 2002
    with pytest.raises(UnicodeEncodeError):
        await unfit
    events = await journal.read(one.origin.run_id)
    assert len({event.event_id for event in events}) == len(events) == 3
    await journal.close()


async def test_voided_leases_do_not_count_in_memory(tmp_path: Path) -> None:
    async with process_on(str(tmp_path / "treadle.db")) as process:
        run_id = (await process.claimed()).origin.run_id
        assert isinstance(process.store, SqliteJournal)
        await process.store.void_leases()
        assert (await process.claim(run_id)).epoch == 2
