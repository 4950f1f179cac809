"""The secrets of webhooks in the vault of a home."""

import asyncio
import os
from collections.abc import Callable
from contextlib import closing

from treadle.config.home import Home
from treadle.vault.store import VaultStore


class VaultSecrets:
    """Implements `ports.automation.WebhookSecrets` with the vault of a home."""

    def __init__(self, home: Home, value: Callable[[str], str | None]) -> None:
        self._home = home
        self._value = value

    async def put(self, name: str, value: str) -> None:
        await asyncio.to_thread(self._put, name, value)

    def value(self, name: str) -> str | None:
        return self._value(name)

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self._remove, name)

    def _put(self, name: str, value: str) -> None:
        self._home.ensure()
        with closing(VaultStore(self._home.path, os.environ)) as store:
            store.put(name, value)

    def _remove(self, name: str) -> None:
        with closing(VaultStore(self._home.path, os.environ)) as store:
            if any(secret.name == name for secret in store.inventory()):
                store.remove(name)
