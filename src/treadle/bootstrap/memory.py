"""Wiring of memory, for reading and for changes."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from treadle.bootstrap.stores import StoredMemories, Stores
from treadle.config.home import Home
from treadle.memory.embedders import Embedders
from treadle.memory.remote_embedder import EmbedderEndpoint
from treadle.memory.search import RECALL_SECONDS, HybridMemories
from treadle.operations.memory_service import MemoryService
from treadle.ports.clock import Clock
from treadle.ports.vault import Vault
from treadle.system.clock import SystemClock, TimeOrderedIds
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.models.registry import ModelRegistry

INTERACTIVE_RECALL_SECONDS = 60.0
"""How long a search by a user waits for an embedder. No run waits for it."""


def make_memories(
    stored: StoredMemories,
    find_address: Callable[[str], tuple[str, str | None, Mapping[str, str]]],
    vault: Vault,
    clock: Clock,
    timeout_seconds: float = RECALL_SECONDS,
) -> HybridMemories:
    """Return the memory of a database, with the embedders of the known providers. Secrets are redacted before they
    leave this machine."""
    embedders = Embedders(
        lambda name: EmbedderEndpoint(*find_address(name)), hide=lambda text: vault.redactor.redact(text).text
    )
    return HybridMemories(stored, embedders, clock, timeout_seconds=timeout_seconds)


@asynccontextmanager
async def open_memory_service(home: Home, stores: Stores) -> AsyncGenerator[MemoryService, None]:
    """Open the memories of a database without an engine, with the embedders of the home."""
    config, clock = home.config(), SystemClock()
    vault = HomeVault(home.path, os.environ)

    @cache
    def models() -> "ModelRegistry":
        from treadle.home.model_registry import make_model_registry  # needed by an embedder of a provider only

        return make_model_registry(home, config, vault.value)

    store = stores.memories
    memories = make_memories(store, lambda name: models().address(name), vault, clock, INTERACTIVE_RECALL_SECONDS)
    try:
        yield MemoryService(store, memories, store, vault, clock, TimeOrderedIds())
    finally:
        await memories.close()
        if models.cache_info().currsize:
            await models().close()
        vault.close()
