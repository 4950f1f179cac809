"""How memory is put together: over the database of a home, for those who only look and for those who change it."""

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from treadle.bootstrap.stores import StoredMemories, Stores, look_at_stores, own_stores
from treadle.config.database_url import is_in_memory
from treadle.config.home import Home
from treadle.domain.errors import StoreOwned, UsageError
from treadle.memory.embedders import Embedders
from treadle.memory.remote_embedder import EmbedderEndpoint
from treadle.memory.search import PATIENCE_SECONDS, HybridMemories
from treadle.models.registry import ModelRegistry
from treadle.operations.memories import MemoryService
from treadle.ports.clock import Clock
from treadle.ports.vault import Vault
from treadle.system.clock import SystemClock, TimeOrderedIds
from treadle.vault.vault import HomeVault

PATIENCE_OF_PEOPLE = 60.0
"""Seconds that somebody who searches waits for an embedder: no run is held up."""


def memories_on(
    stored: StoredMemories,
    models: ModelRegistry,
    vault: Vault,
    clock: Clock,
    patience: float = PATIENCE_SECONDS,
) -> HybridMemories:
    """Memory over a database, with the embedders of the providers that are known. No secret leaves this machine."""
    embedders = Embedders(
        lambda name: EmbedderEndpoint(*models.address(name)), hide=lambda text: vault.redactor.redact(text).text
    )
    return HybridMemories(stored, embedders, clock, patience=patience)


@asynccontextmanager
async def look_at_memories(home: Home) -> AsyncGenerator[MemoryService, None]:
    """Look at what is remembered; the owner of the database, if it has one, goes on."""
    async with look_at_stores(home.database_url) as stores, _service(home, stores) as service:
        yield service


@asynccontextmanager
async def own_memories(home: Home) -> AsyncGenerator[MemoryService, None]:
    """Change what is remembered. Raises StoreOwned while another process owns the database, and UsageError for one
    that is nowhere but in the memory of a process."""
    if is_in_memory(home.database_url):
        raise UsageError(
            f"The database {home.database_url} is gone when this command ends, so nothing can be remembered in it. "
            "Set TREADLE_DATABASE_URL to sqlite:///PATH, or leave it out for the database of the home."
        )
    async with AsyncExitStack() as opened:
        try:
            stores = await opened.enter_async_context(own_stores(home, "Nothing was changed."))
        except StoreOwned as error:
            raise StoreOwned(
                f"{error} Until then `treadle memory list`, `search` and `export` show what is remembered, and its "
                "agents can remember by themselves (memory_save).",
                error.socket,
            ) from None
        yield await opened.enter_async_context(_service(home, stores))


@asynccontextmanager
async def _service(home: Home, stores: Stores) -> AsyncGenerator[MemoryService, None]:
    config, clock = home.config(), SystemClock()
    vault = HomeVault(home.path, os.environ)
    models = ModelRegistry(os.environ, config.defaults.provider, secret=vault.value)
    for name, provider in config.providers.items():
        models.add(name, provider)
    store = stores.memories
    memories = memories_on(store, models, vault, clock, PATIENCE_OF_PEOPLE)
    try:
        yield MemoryService(store, memories, store, vault, clock, TimeOrderedIds())
    finally:
        await memories.close()
        await models.close()
        vault.close()
