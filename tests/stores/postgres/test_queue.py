"""Commits write the jobs for the runs that they make runnable, and no others."""

import asyncio
from typing import Any

import pytest

from tests.stores.postgres.harness import OnServer, opened
from tests.stores.postgres.servers import tell
from treadle.ports.journal import Release
from treadle.stores.postgres.database import open_database
from treadle.stores.postgres.driver import open_connection
from treadle.testing.conformance.store import Recorder, StoreProcess, open_in_one_process, open_in_two_processes
from treadle.testing.time import CountingIds, FakeClock


async def fetch_rows(url: str, question: str) -> list[Any]:
    connection = await open_connection(url, 10, {"search_path": "treadle"})
    try:
        return [tuple(row) for row in await connection.fetch(question)]
    finally:
        await connection.close()


async def jobs(url: str) -> dict[str, float]:
    """Return the runs with a job, and the seconds until each is due."""
    found = await fetch_rows(
        url,
        "SELECT convert_from(payload, 'UTF8'), greatest(extract(epoch FROM execute_after - now()), 0)::FLOAT8 "
        "FROM pgqueuer WHERE status = 'queued'",
    )
    assert len({run_id for run_id, _ in found}) == len(found), "one at most for each"
    return dict(found)


async def test_a_submitted_run_has_a_job_until_it_is_claimed(url: str) -> None:
    async with open_in_one_process(OnServer(url)) as process:
        first, second = await process.submit("s"), await process.submit("s")
        assert await jobs(url) == {first: 0}, "the other one's turn has not come"
        claim = await process.claim(first)
        assert await jobs(url) == {}, "who has it need not look again"
        await process.end(claim, 2)
        assert await jobs(url) == {second: 0}


async def test_a_message_to_an_owned_run_needs_no_job(url: str) -> None:
    async with open_in_one_process(OnServer(url)) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        await process.steer(run_id, "its owner hears of it")
        assert await jobs(url) == {}
        await process.advance(claim, 3, release=Release("interrupted"))
        assert await jobs(url) == {}, "it waits for a person"
        await process.steer(run_id, "go on")
        await process.steer(run_id, "and on")
        assert await jobs(url) == {run_id: 0}


async def test_a_near_timer_has_a_job_and_an_earlier_wake_replaces_it(url: str) -> None:
    async with open_in_one_process(OnServer(url)) as process:
        near, far = await process.claimed(), await process.claimed()
        await process.advance(near, 2, release=Release("retry", process.clock.now() + 30))
        await process.advance(far, 2, release=Release("approval", process.clock.now() + 86400))
        found = await jobs(url)
        assert list(found) == [near.origin.run_id], "a far one is left to the sweep"
        assert 25 < found[near.origin.run_id] <= 30
        await process.steer(near.origin.run_id)
        assert await jobs(url) == {near.origin.run_id: 0}
        await process.claim(near.origin.run_id)
        assert await jobs(url) == {}


async def test_child_runs_and_runs_with_messages_have_jobs(url: str) -> None:
    async with open_in_one_process(OnServer(url)) as process:
        parent, parked = await process.claimed(), await process.claimed()
        await process.advance(parked, 2, release=Release("interrupted"))
        child = process.child(parent)
        tell_it = process.tell(parked.origin.run_id, "enough")
        await process.advance(parent, 2, begin=[child], tell=[tell_it])
        assert await jobs(url) == {child.origin.run_id: 0, parked.origin.run_id: 0}


async def test_a_run_behind_another_gets_a_job_when_a_message_arrives(url: str) -> None:
    """It may have been cancelled: then it need not wait for its turn."""

    async with open_in_one_process(OnServer(url)) as process:
        claim = await process.claimed("s")
        behind = await process.submit("s")
        await process.advance(claim, 2, tell=[process.tell(behind, "not any more")])
        assert await jobs(url) == {behind: 0}
        await process.end(await process.claim(behind), 3)


async def test_a_job_of_the_previous_epoch_blocks_nothing(url: str) -> None:
    """A worker has taken it, and has not yet said that it is done."""

    async with open_in_one_process(OnServer(url)) as process:
        run_id = await process.submit()
        await tell(url, "UPDATE treadle.pgqueuer SET status = 'picked'")
        claim = await process.claim(run_id)
        await process.advance(claim, 2, release=Release("interrupted"))
        await process.steer(run_id)
        assert await jobs(url) == {run_id: 0}


async def test_the_queue_is_created_again_for_another_version_of_pgqueuer(url: str) -> None:
    clock, told = FakeClock(), Recorder()
    async with opened(url, told, clock) as (journal, _, _):
        process = StoreProcess(journal, told, clock, CountingIds(), "worker")
        first = await process.submit()
        await tell(url, "ALTER TABLE treadle.pgqueuer DROP COLUMN slot")
        await tell(url, "COMMENT ON TABLE treadle.pgqueuer IS 'pgqueuer 0.9'")
        database = await open_database(url)
        await database.close()
        assert await fetch_rows(url, "SELECT slot FROM pgqueuer") == []
        second = await process.submit()
        assert await jobs(url) == {second: 0}
        assert list(await process.store.runnable()) == [first, second], "the sweep finds what was in it"


@pytest.mark.parametrize("name", ["CHANNEL", "QUEUE_TABLE", "PGQUEUER_PREFIX", "PGQUEUER_SCHEMA", "DURABILITY"])
async def test_environment_variables_of_pgqueuer_have_no_effect(
    name: str, bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "durable")

    async with open_in_one_process(OnServer(bare)) as process:
        run_id = await process.submit()
        assert await jobs(bare) == {run_id: 0}
        [(kept,)] = await fetch_rows(bare, "SELECT relpersistence::TEXT FROM pg_class WHERE relname = 'pgqueuer'")
        assert kept == "u"
        [(source,)] = await fetch_rows(bare, "SELECT prosrc FROM pg_proc WHERE proname = 'fn_pgqueuer_changed'")
        assert "'treadle_queue'" in source


async def test_a_run_without_a_slot_gets_a_job_when_a_slot_is_free(url: str) -> None:
    async with open_in_one_process(OnServer(url)) as process:
        first, second, third = [await process.submit(places=1) for _ in range(3)]
        assert await jobs(url) == {first: 0}
        claim = await process.claim(first)
        assert await jobs(url) == {}
        await process.advance(claim, 2, release=Release("retry", process.clock.now() + 30))
        found = await jobs(url)
        assert set(found) == {first, second}, "it waits for its timer, and the place is free"
        await process.end(await process.claim(second), 2)
        assert set(await jobs(url)) == {first, third}


async def test_every_run_with_a_slot_has_a_job_after_concurrent_changes(url: str) -> None:
    """Two processes release and submit runs at the same time: every run with a slot then has a job."""

    async with open_in_two_processes(OnServer(url)) as (one, two):
        claims = [await process.claim(await one.submit(places=2)) for process in (one, two)]
        waiting = [await one.submit(places=2) for _ in range(2)]
        for _ in range(15):
            ends = [process.end(claim, 2) for process, claim in zip((one, two), claims, strict=True)]
            *_, late = await asyncio.gather(*ends, two.submit(places=2))
            assert isinstance(late, str)
            waiting.append(late)
            assert set(waiting[:2]) <= set(await jobs(url))
            claims = [await process.claim(waiting.pop(0)) for process in (one, two)]
            waiting.append(await one.submit(places=2))
