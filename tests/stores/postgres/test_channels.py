"""Channels on PostgreSQL: the store, and two servers of which one holds the connection."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.channels.fake_telegram import TOKEN, FakeTelegram, serve_fake_telegram
from tests.channels.home import telegram_settings, write_home
from tests.channels.store_checks import check_settled, check_states, check_store
from tests.channels.test_telegram import echo
from tests.patience import HANG_SECONDS
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.doctor.channels import describe_channels
from treadle.domain.channels import Person
from treadle.stores.postgres import leader_lock
from treadle.stores.postgres.channels import PostgresChannels
from treadle.stores.postgres.database import open_database


async def test_postgresql_keeps_the_contract_of_channel_stores(url: str) -> None:
    database = await open_database(url)
    store = PostgresChannels(database)
    await check_store(store)
    await check_settled(store)
    await check_states(store)
    await database.close()


async def test_one_of_two_servers_holds_a_channel(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_lock, "POLL_INTERVAL_SECONDS", 0.05)

    fake = FakeTelegram()
    async with asyncio.timeout(HANG_SECONDS), serve_fake_telegram(fake), AsyncExitStack() as opened:
        home = write_home(tmp_path, {"telegram": telegram_settings(fake)}, {"TELEGRAM_TOKEN": TOKEN})
        engines = [create_engine(url, home=Home(home)) for _ in range(2)]
        first, second = AsyncExitStack(), AsyncExitStack()
        for engine, stack in zip(engines, (first, second), strict=True):
            engine.add_model("scripted", echo())
            await opened.enter_async_context(engine)
            await opened.enter_async_context(stack)
        managers = [engine.context.channels() for engine in engines]
        store = PostgresChannels(database := await open_database(url))
        await store.save_person(
            Person(channel="telegram", sender="11", name="Anna", user="anna", grants=("direct",), added_at=0.0)
        )
        await database.close()
        await first.enter_async_context(managers[0].run_in_background())
        await fake.write(11, "one")
        await fake.wait_for(lambda: fake.texts(11) == ["you said: one"])
        await second.enter_async_context(managers[1].run_in_background())
        [other] = await managers[1].list()
        assert (other.status, other.since) == ("waiting", None)
        assert other.recorded is not None
        assert (other.recorded.status, other.recorded.is_held) == ("connected", True)
        [found] = await describe_channels(Home(home, database=url))
        assert (found.state, found.basis) == ("ok", "recorded")
        assert "a server holds the connection (probed) and recorded: connected as @" in found.found
        await first.aclose()
        await fake.write(11, "two")
        await fake.wait_for(lambda: fake.texts(11) == ["you said: one", "you said: two"])
        await second.aclose()
        [found] = await describe_channels(Home(home, database=url))
        assert (found.state, found.basis) == ("set", "recorded")
        assert "no server holds the connection (probed); the last one recorded: stopped since" in found.found
