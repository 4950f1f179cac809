"""Opens a database of either kind: for an engine, for reading or for changes. Imports the wiring of a kind when it
is used."""

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from types import ModuleType

from treadle.bootstrap.stores import Stores
from treadle.config.database_url import check_persistent, is_in_memory, is_postgres, sqlite_path
from treadle.config.home import Home
from treadle.domain.errors import StoreOwned, UsageError
from treadle.engine.event_hub import EventHub
from treadle.ports.channel_store import ChannelState
from treadle.ports.clock import Clock
from treadle.ports.deletion import DatabaseFacts
from treadle.system.clock import SystemClock, TimeOrderedIds


async def open_stores(database: str, hub: EventHub, clock: Clock) -> Stores:
    """Open a database for an engine. Raise StoreOwned if the database has a single owner and that is another
    process."""
    if is_postgres(database):
        return await _import_postgres().open_postgres(database, hub, clock)
    from treadle.bootstrap.sqlite import open_sqlite

    return await open_sqlite(database, hub, clock)


def open_stores_readonly(database: str, hub: EventHub | None = None) -> AbstractAsyncContextManager[Stores]:
    """Open a database for reading. Its owner, if there is one, continues."""
    if is_postgres(database):
        return _import_postgres().connect_postgres(database, hub or _make_silent_hub(), SystemClock())
    from treadle.bootstrap.sqlite import open_sqlite_readonly

    return open_sqlite_readonly(database, hub or _make_silent_hub(), SystemClock())


def open_home_readonly(home: Home) -> AbstractAsyncContextManager[Stores]:
    """Open the database of a home for reading. Raise UsageError if it is only in memory."""
    check_persistent(home.database_url)
    return open_stores_readonly(home.database_url)


def find_owner(home: Home) -> StoreOwned | None:
    """Return the error that names the other process that owns the database of a home; None if none is known."""
    if is_postgres(home.database_url) or is_in_memory(home.database_url):
        return None
    from treadle.stores.sqlite.lock import explain_owned, read_owner

    path = sqlite_path(home.database_url)
    owner = read_owner(path)
    return None if owner is None or owner.pid == os.getpid() else explain_owned(path, owner)


def open_stores_exclusively(home: Home, what: str) -> AbstractAsyncContextManager[Stores]:
    """Open the database of a home for changes, without an engine. Raise StoreOwned, starting with `what`, while
    another process owns it."""
    if is_postgres(home.database_url):
        return _import_postgres().connect_postgres(home.database_url, _make_silent_hub(), SystemClock())
    from treadle.bootstrap.sqlite import open_sqlite_exclusively

    return open_sqlite_exclusively(home, what, _make_silent_hub(), SystemClock())


async def read_server_facts(
    database: str, recent_seconds: int
) -> tuple[DatabaseFacts | None, int, Sequence[tuple[str, int]], str]:
    """Return facts about a database on a server, without changing it: its contents (None if it is empty), the
    format that this version writes, the recent findings of guards, and how vectors are compared."""
    return await _import_postgres().read_postgres_facts(database, recent_seconds)


async def read_channel_states(database: str) -> Sequence[ChannelState]:
    """Return what servers recorded about their channels, without changing the database."""
    if is_postgres(database):
        return await _import_postgres().read_postgres_channel_states(database)
    async with open_stores_readonly(database) as stores:
        return await stores.channels.states()


def _import_postgres() -> ModuleType:
    """Return the module for PostgreSQL. Raise UsageError if its driver is not installed."""
    try:
        from treadle.bootstrap import postgres
    except ModuleNotFoundError as error:
        raise UsageError(
            f"The database is on PostgreSQL, and {error.name} is not installed. Install it with "
            'pip install "treadle[postgres]", or use another database (TREADLE_DATABASE_URL).'
        ) from None
    return postgres


def _make_silent_hub() -> EventHub:
    """Return a hub without readers. The next engine finds what was changed."""
    return EventHub(SystemClock(), TimeOrderedIds(), lambda run_id, at: None)
