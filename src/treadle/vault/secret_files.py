"""The secrets of a home, opened for each call, for operations that list and change them."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from treadle.vault.names import check_name
from treadle.vault.store import Secret, SecretGrant, VaultStore


class SecretFiles:
    """Implements `operations.context.SecretStore`."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment

    def list(self) -> Sequence[Secret]:
        with closing(self._open()) as store:
            return store.inventory()

    def put(self, name: str, value: str, grants: Sequence[tuple[str, str]], forced: bool) -> Secret:
        check_name(name)
        with closing(self._open()) as store:
            store.put(name, value, [SecretGrant(agent, tool) for agent, tool in grants], forced=forced)
            return next(secret for secret in store.inventory() if secret.name == name)

    def remove(self, name: str) -> None:
        with closing(self._open()) as store:
            store.remove(name)

    def _open(self) -> VaultStore:
        return VaultStore(self._home, self._environment)
