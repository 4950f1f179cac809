"""The vault of a home as the engine uses it. It follows changes by other processes."""

import logging
import math
import time
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from treadle.ports.vault import SecretRefused, VaultError
from treadle.vault.redactor import SecretRedactor
from treadle.vault.store import SecretGrant, VaultSnapshot, VaultStore

_log = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 0.1
"""A secret set within this time cannot have been handed out yet."""


class HomeVault:
    """Implements `ports.vault.Vault`. A home without a vault has no secrets until one is set.

    The redactor keeps hiding values that this process handed out, whatever happens to them in the vault: a running
    command still has the old value."""

    def __init__(
        self, home: Path, environment: Mapping[str, str], poll_interval: float = POLL_INTERVAL_SECONDS
    ) -> None:
        self._store = VaultStore(home, environment)
        self._state: object = None
        self._snapshot = VaultSnapshot()
        self._grants: dict[str, tuple[SecretGrant, ...]] = {}
        self._redactor = SecretRedactor(())
        self._revealed: dict[tuple[str, str], None] = {}
        self._last_warning: object = None
        self._poll_interval = poll_interval
        self._polled_at = -math.inf

    @property
    def redactor(self) -> SecretRedactor:
        """The redactor for the current secrets. The disk is polled, and read whenever a value is handed out. If a
        vault becomes unreadable, the last redactor stays in use."""
        now = time.monotonic()
        if now - self._polled_at < self._poll_interval:
            return self._redactor
        try:
            self.refresh()
        except VaultError as error:
            if self._state is None:
                raise
            if self._last_warning != (self._state, str(error)):
                self._last_warning = (self._state, str(error))
                _log.warning("%s Secrets set since then are neither redacted nor handed out.", error)
        self._polled_at = now
        return self._redactor

    def names(self, agent: str) -> Collection[str]:
        self.refresh()
        return tuple(name for name, grants in self._grants.items() if _list_granted_tools(grants, agent))

    def read_granted_secrets(self, agent: str, tool: str) -> Mapping[str, str]:
        self.refresh()
        return {
            name: self._reveal_value(name)
            for name, grants in self._grants.items()
            if _is_granted(grants, agent, tool)
        }

    def reveal(self, name: str, agent: str, tool: str) -> str:
        self.refresh()
        grants = self._grants.get(name, ())
        if _is_granted(grants, agent, tool):
            return self._reveal_value(name)
        raise self._explain_refusal(name, agent, tool)

    def value(self, name: str) -> str | None:
        """Return one value for the engine itself, such as the key of a provider. No agent or tool gets it."""
        self.refresh()
        return self._reveal_value(name) if name in self._snapshot.values else None

    def close(self) -> None:
        self._store.close()

    def refresh(self) -> None:
        """Read the secrets again if they have changed on the disk."""
        state = self._store.state()
        if state == self._state:
            return
        snapshot = self._store.read()
        self._snapshot = snapshot
        self._grants = {secret.name: secret.grants for secret in snapshot.secrets}
        self._redactor = SecretRedactor((*snapshot.values.items(), *self._revealed))
        self._state = state

    def _reveal_value(self, name: str) -> str:
        value = self._snapshot.values[name]
        self._revealed[name, value] = None
        return value

    def _explain_refusal(self, name: str, agent: str, tool: str) -> SecretRefused:
        if tools := _list_granted_tools(self._grants.get(name, ()), agent):
            return SecretRefused(
                f"The secret `{name}` is not granted for the tool `{tool}`, only for: {', '.join(tools)}.",
                f"granted to the agent {agent}, but not for the tool {tool}",
            )
        known = ", ".join(self.names(agent)) or "none"
        return SecretRefused(
            f"No secret `{name}` is granted to you; granted are: {known}. Do not try others.",
            f"not granted to the agent {agent}" if name in self._grants else "there is no such secret",
        )


def _list_granted_tools(grants: tuple[SecretGrant, ...], agent: str) -> tuple[str, ...]:
    """Return the tools for which a secret is granted to an agent."""
    return tuple(dict.fromkeys(grant.tool for grant in grants if fnmatchcase(agent, grant.agent)))


def _is_granted(grants: tuple[SecretGrant, ...], agent: str, tool: str) -> bool:
    return any(fnmatchcase(tool, allowed) for allowed in _list_granted_tools(grants, agent))
