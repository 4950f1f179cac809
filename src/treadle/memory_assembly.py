"""How memory is put together: over the database of a home, for those who only look and for those who change it."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from treadle.database_url import path_of
from treadle.domain.errors import StoreOwned, UsageError
from treadle.home import Home
from treadle.memory.embedders import Embedders
from treadle.memory.memories import PATIENCE_SECONDS, HybridMemories
from treadle.memory.remote import Address
from treadle.models.registry import ModelRegistry
from treadle.ports.clock import Clock
from treadle.ports.vault import Vault
from treadle.service.memory import MemoryService
from treadle.stores.sqlite.connection import open_database, open_to_look
from treadle.stores.sqlite.lock import DatabaseLock
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.writer import InlineWriter, Writer
from treadle.system import SystemClock, TimeOrderedIds
from treadle.vault.vault import HomeVault

PATIENCE_OF_PEOPLE = 60.0
"""Seconds that somebody who searches waits for an embedder: no run is held up."""


def memories_on(
    writer: Writer, models: ModelRegistry, vault: Vault, clock: Clock, patience: float = PATIENCE_SECONDS
) -> HybridMemories:
    """Memory over a database, with the embedders of the providers that are known. No secret leaves this machine."""
    embedders = Embedders(
        lambda name: Address(*models.address(name)), hide=lambda text: vault.redactor.redact(text).text
    )
    return HybridMemories(SqliteMemories(writer), embedders, clock, patience=patience)


@asynccontextmanager
async def look_at_memories(home: Home) -> AsyncGenerator[MemoryService, None]:
    """Look at what is remembered; the owner of the database, if it has one, goes on."""
    async with _service(home, InlineWriter(open_to_look(_path(home)))) as service:
        yield service


@asynccontextmanager
async def own_memories(home: Home) -> AsyncGenerator[MemoryService, None]:
    """Change what is remembered. Raises StoreOwned while another process owns the database, and UsageError for one
    that is nowhere but in the memory of a process."""
    path = _path(home)
    if path == ":memory:":
        raise UsageError(
            f"The database {home.database_url} is gone when this command ends, so nothing can be remembered in it. "
            "Set TREADLE_DATABASE_URL to sqlite:///PATH, or leave it out for the database of the home."
        )
    if home.database is None:
        home.ensure()
    try:
        lock = DatabaseLock(path)
    except StoreOwned as error:
        raise StoreOwned(
            f"Nothing was changed. {error} Until then `treadle memory list`, `search` and `export` show what is "
            "remembered, and its agents can remember by themselves (memory_save).",
            error.socket,
        ) from None
    try:
        async with _service(home, InlineWriter(open_database(path))) as service:
            yield service
    finally:
        lock.release()


def _path(home: Home) -> str:
    return path_of(home.database_url)


@asynccontextmanager
async def _service(home: Home, writer: InlineWriter) -> AsyncGenerator[MemoryService, None]:
    config, clock = home.config(), SystemClock()
    vault = HomeVault(home.path, os.environ)
    models = ModelRegistry(os.environ, config.defaults.provider, secret=vault.value)
    for name, provider in config.providers.items():
        models.add(name, provider)
    store, memories = SqliteMemories(writer), memories_on(writer, models, vault, clock, PATIENCE_OF_PEOPLE)
    try:
        yield MemoryService(store, memories, store, vault, clock, TimeOrderedIds())
    finally:
        await memories.close()
        await models.close()
        await writer.close()
        vault.close()
