"""Channels on SQLite."""

from tests.channels.store_checks import check_settled, check_states, check_store
from treadle.stores.sqlite.channels import SqliteChannels
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.writer import InlineWriter


async def test_sqlite_keeps_the_contract_of_channel_stores() -> None:
    store = SqliteChannels(InlineWriter(open_database(":memory:")))
    await check_store(store)
    await check_settled(store)
    await check_states(store)
