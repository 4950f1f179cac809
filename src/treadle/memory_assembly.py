"""How memory is put together: over the database of a home, for those who only look and for those who change it."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from treadle.database_url import path_of
from treadle.home import Home
from treadle.memory.embedders import Embedders
from treadle.memory.memories import PATIENCE_SECONDS, HybridMemories
from treadle.memory.remote import Address
from treadle.models.registry import ModelRegistry
from treadle.ports.clock import Clock
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
    writer: Writer, models: ModelRegistry, clock: Clock, patience: float = PATIENCE_SECONDS
) -> HybridMemories:
    """Memory over a database, with the embedders of the providers that are known."""
    embedders = Embedders(lambda name: Address(*models.address(name)))
    return HybridMemories(SqliteMemories(writer), embedders, clock, patience=patience)


@asynccontextmanager
async def look_at_memories(home: Home) -> AsyncGenerator[MemoryService, None]:
    """Look at what is remembered; the owner of the database, if it has one, goes on."""
    async with _service(home, InlineWriter(open_to_look(_path(home)))) as service:
        yield service


@asynccontextmanager
async def own_memories(home: Home) -> AsyncGenerator[MemoryService, None]:
    """Change what is remembered. Raises StoreOwned while another process owns the database."""
    path = _path(home)
    if home.database is None:
        home.ensure()
    lock = DatabaseLock(path)
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
    store, memories = SqliteMemories(writer), memories_on(writer, models, clock, PATIENCE_OF_PEOPLE)
    try:
        yield MemoryService(store, memories, store, vault, clock, TimeOrderedIds())
    finally:
        await memories.close()
        await models.close()
        await writer.close()
        vault.close()
