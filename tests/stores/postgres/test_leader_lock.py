"""The leader lock: one process holds it, and another takes over when that process ends."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.postgres.servers import CUT, tell
from treadle.stores.postgres import leader_lock
from treadle.stores.postgres.database import open_database
from treadle.stores.postgres.leader_lock import LeaderLock


@asynccontextmanager
async def take_lock(url: str, name: str, holders: list[str], begun: asyncio.Event) -> AsyncGenerator[None, None]:
    """Run a process that competes for the leader lock."""
    database = await open_database(url)

    async def work() -> None:
        holders.append(name)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            holders.remove(name)

    task = asyncio.create_task(LeaderLock(database).take("webhooks", work))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        await database.close()


async def test_one_process_holds_the_lock_and_the_next_takes_over(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_lock, "POLL_INTERVAL_SECONDS", 0.02)

    holders, begun = list[str](), asyncio.Event()
    async with asyncio.timeout(HANG_SECONDS), AsyncExitStack() as opened:
        async with take_lock(url, "first", holders, begun):
            await begun.wait()
            await opened.enter_async_context(take_lock(url, "second", holders, begun))
            await asyncio.sleep(0.1)
            assert holders == ["first"]
            begun.clear()
        await begun.wait()
        assert holders == ["second"]
        begun.clear()
        await tell(url, CUT + "locktype = 'advisory'")
        await begun.wait()
        assert holders == ["second"], "it has stopped, and begun anew with another connection"
