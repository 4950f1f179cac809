"""The vault of a home, as the engine uses it. It follows what other processes change in it."""

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

LOOK_EVERY = 0.1
"""Seconds. Nothing that is set within them can have been handed to anybody."""


class HomeVault:
    """Implements `ports.vault.Vault`. A home without a vault has no secrets, until somebody sets one.

    The redactor goes on hiding what was handed out in this process, whatever becomes of it in the vault: a command
    that runs still has the old value."""

    def __init__(self, home: Path, environment: Mapping[str, str], look_every: float = LOOK_EVERY) -> None:
        self._store = VaultStore(home, environment)
        self._state: object = None
        self._moment = VaultSnapshot()
        self._grants: dict[str, tuple[SecretGrant, ...]] = {}
        self._redactor = SecretRedactor(())
        self._handed_out: dict[tuple[str, str], None] = {}
        self._complained: object = None
        self._look_every = look_every
        self._looked = -math.inf

    @property
    def redactor(self) -> SecretRedactor:
        """For the secrets there are now, or were a moment ago: the disk is looked at now and then, and whenever a
        value is handed out. A vault that was readable and is not any more leaves it as it was."""
        now = time.monotonic()
        if now - self._looked < self._look_every:
            return self._redactor
        try:
            self._follow()
        except VaultError as error:
            if self._state is None:
                raise
            if self._complained != (self._state, str(error)):
                self._complained = (self._state, str(error))
                _log.warning("%s Secrets set since then are not redacted and not handed out.", error)
        self._looked = now
        return self._redactor

    def names(self, agent: str) -> Collection[str]:
        self._follow()
        return tuple(name for name, grants in self._grants.items() if _tools(grants, agent))

    def granted(self, agent: str, tool: str) -> Mapping[str, str]:
        self._follow()
        return {name: self._hand_out(name) for name, grants in self._grants.items() if _allow(grants, agent, tool)}

    def reveal(self, name: str, agent: str, tool: str) -> str:
        self._follow()
        grants = self._grants.get(name, ())
        if _allow(grants, agent, tool):
            return self._hand_out(name)
        raise self._refusal(name, agent, tool)

    def value(self, name: str) -> str | None:
        """One value for the engine itself, such as the key of a provider: no agent and no tool gets it."""
        self._follow()
        return self._hand_out(name) if name in self._moment.values else None

    def close(self) -> None:
        self._store.close()

    def _follow(self) -> None:
        state = self._store.state()
        if state == self._state:
            return
        moment = self._store.read()
        self._moment = moment
        self._grants = {secret.name: secret.grants for secret in moment.secrets}
        self._redactor = SecretRedactor((*moment.values.items(), *self._handed_out))
        self._state = state

    def _hand_out(self, name: str) -> str:
        value = self._moment.values[name]
        self._handed_out[name, value] = None
        return value

    def _refusal(self, name: str, agent: str, tool: str) -> SecretRefused:
        if tools := _tools(self._grants.get(name, ()), agent):
            return SecretRefused(
                f"The secret `{name}` is not granted for the tool `{tool}`, only for: {', '.join(tools)}.",
                f"granted to the agent {agent}, but not for the tool {tool}",
            )
        known = ", ".join(self.names(agent)) or "none"
        return SecretRefused(
            f"No secret `{name}` is granted to you; granted are: {known}. Do not try others.",
            f"not granted to the agent {agent}" if name in self._grants else "there is no such secret",
        )


def _tools(grants: tuple[SecretGrant, ...], agent: str) -> tuple[str, ...]:
    """What a secret is granted to an agent for."""
    return tuple(dict.fromkeys(grant.tool for grant in grants if fnmatchcase(agent, grant.agent)))


def _allow(grants: tuple[SecretGrant, ...], agent: str, tool: str) -> bool:
    return any(fnmatchcase(tool, allowed) for allowed in _tools(grants, agent))
