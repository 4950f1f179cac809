"""Whatever is ready is committed together, and nobody waits for a reader."""

import asyncio
from pathlib import Path

from tests.stores.faulty_disk import faulty_disk
from tests.stores.test_faults import process_on
from treadle.domain.events import StepStart
from treadle.engine.hub import Hub
from treadle.stores.sqlite.connection import open_database, open_reader
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.writer import ThreadWriter
from treadle.testing.conformance.store import Process, Recorder, step
from treadle.testing.time import CountingIds, FakeClock

RUNS = 100
ROUNDS = 5


def test_many_runs_share_a_commit_and_its_fsync(tmp_path: Path) -> None:
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
                    advances = (process.advance(claim, 2 + turn, [step(turn)]) for claim in claims)
                    assert all(advanced.accepted for advanced in await asyncio.gather(*advances))
                process.connection.set_commit_hook(None)
                return commits, disk.syncs - syncs

    commits, syncs = asyncio.run(run())
    assert ROUNDS <= commits <= RUNS * ROUNDS / 10
    assert ROUNDS <= syncs <= 2 * commits


def test_every_commit_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    async def run() -> None:
        with faulty_disk() as disk:
            async with process_on(str(tmp_path / "treadle.db")) as process:
                claim = await process.claimed()
                for turn in range(5):
                    before = disk.syncs
                    await process.advance(claim, 2 + turn, [step(turn)])
                    assert disk.syncs > before

    asyncio.run(run())


def test_a_reader_that_never_reads_holds_nobody_up(tmp_path: Path) -> None:
    async def run() -> None:
        path, clock, ids = str(tmp_path / "treadle.db"), FakeClock(), CountingIds()
        hub = Hub(clock, ids, lambda run_id, at: None)
        journal = SqliteJournal(ThreadWriter(open_database(path), open_reader(path), path, hub.lost), hub, clock)
        process = Process(journal, Recorder(), clock, ids, "worker")
        claim = await process.claimed()
        run_id = claim.origin.run_id
        with hub.subscribe(run_id, backlog=5) as slow, hub.subscribe(run_id) as quick:
            async with asyncio.timeout(30):
                for turn in range(200):
                    await process.advance(claim, 2 + turn, [step(turn)])
            seen = [event async for event in slow]
            assert seen == [None], "cut off, and told so"
            sequences: list[int] = []
            async for event in quick:
                assert event is not None
                assert isinstance(event.data, StepStart)
                sequences.append(event.sequence)
                if len(sequences) == 200:
                    break
            assert sequences == list(range(3, 203))
        await journal.close()

    asyncio.run(run())


def test_a_commit_does_not_wait_for_a_long_read(tmp_path: Path) -> None:
    """Another program may read for as long as it likes."""

    async def run() -> None:
        path = str(tmp_path / "treadle.db")
        async with process_on(path) as process:
            claim = await process.claimed()
            other = open_reader(path)
            reading = iter(other.execute("SELECT * FROM events"))
            next(reading)
            async with asyncio.timeout(10):
                assert (await process.advance(claim, 2, [step(1)])).accepted
            del reading
            other.close()

    asyncio.run(run())
