"""Leases and timers go by the database's clock: those of the machines may be hours apart."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.stores.postgres.servers import tell
from treadle.domain.errors import NotClaimable
from treadle.ports.journal import Release
from treadle.stores.postgres.accounts import PostgresAccounts
from treadle.stores.postgres.database import open_database
from treadle.stores.postgres.journal import PostgresJournal
from treadle.stores.postgres.writer import PostgresWriter
from treadle.testing.conformance.store import Recorder, StoreProcess, check_fenced, make_step
from treadle.testing.time import CountingIds, FakeClock


@asynccontextmanager
async def machine(url: str, ids: CountingIds, name: str, now: float) -> AsyncGenerator[StoreProcess, None]:
    """Yield a process whose own clock shows this time."""
    clock, told, database = FakeClock(now), Recorder(), await open_database(url)
    journal = PostgresJournal(database, PostgresWriter(database, told.on_lost), told, clock)
    yield StoreProcess(journal, told, clock, ids, name)
    assert await PostgresAccounts(database).find_shortage(()) is None
    await journal.close()


async def test_a_machine_with_a_wrong_clock_does_not_take_over_runs(url: str) -> None:
    ids = CountingIds()
    async with machine(url, ids, "early", 1e9) as early, machine(url, ids, "late", 3e9) as late:
        claim = await early.claimed()
        run_id = claim.origin.run_id
        with pytest.raises(NotClaimable, match="is owned by early"):
            await late.claim(run_id)
        assert list(await late.store.runnable()) == []
        assert list(await early.store.renew("early")) == [run_id]
        await tell(url, "UPDATE treadle.runs SET lease_until = extract(epoch FROM clock_timestamp()) - 0.1")
        assert list(await early.store.runnable()) == [run_id]
        assert (await late.claim(run_id)).death
        await check_fenced(early.advance(claim, 2, [make_step(1)]))


async def test_a_timer_is_due_by_the_databases_clock(url: str) -> None:
    async with machine(url, CountingIds(), "late", 3e9) as process:
        claims = [await process.claimed() for _ in range(2)]
        for claim, wake_at in zip(claims, (1.5e9, 2.9e9), strict=True):
            await process.advance(claim, 2, release=Release("retry", wake_at))
        assert list(await process.store.runnable()) == [claims[0].origin.run_id]
