"""Agents that all processes on a database share: the files of this home follow the database, and the reverse. The
latest change wins; every one is a version."""

import logging
from contextlib import suppress

from treadle.domain.agent_versions import AgentVersion
from treadle.domain.errors import ConfigError, UnknownAgent
from treadle.operations.agent_version_service import BY_HAND, AgentVersionService, Known

logger = logging.getLogger(__name__)

MAX_HISTORY = 500
"""Versions that are compared with a file of unknown age."""


class SharedAgents:
    """Keeps the files of a home and the latest versions in the database the same."""

    def __init__(self, versions: AgentVersionService) -> None:
        self._versions = versions
        self._unusable: set[tuple[str, int]] = set()
        """Versions that cannot be written here and were reported."""

    def has_changed(self) -> bool:
        files, known = self._versions.files, self._versions.known
        names = files.names()
        return len(names) != len(known) or any(
            name not in known or files.fingerprint(name) != known[name].fingerprint for name in names
        )

    async def synchronize(self) -> None:
        """Record what has changed in the files, and write what has changed in the database."""
        files = self._versions.files
        latest = {each.agent: each for each in await self._versions.store.latest_of_all()}
        for agent in files.names():
            with suppress(ConfigError, UnknownAgent):  # an invalid file is left to its author
                await self._reconcile(agent, latest.get(agent))
        for agent, version in latest.items():
            if files.fingerprint(agent) is not None or version.is_deletion:
                continue
            if agent in self._versions.known:
                await self._versions.record_deletion(agent, BY_HAND)
            else:
                self._write(version)

    async def _reconcile(self, agent: str, latest: AgentVersion | None) -> None:
        versions = self._versions
        fingerprint, known = versions.files.fingerprint(agent), versions.known.get(agent)
        if fingerprint is None:
            return
        if known is not None:
            is_unchanged = known.fingerprint == fingerprint
            is_behind = latest is not None and latest.number > known.number
            outdated = is_unchanged and is_behind
        else:
            outdated = latest is not None and await self._has_earlier_text(agent, latest)
        if outdated and latest is not None:
            self._write(latest)
        else:
            await versions.current(agent)

    async def _has_earlier_text(self, agent: str, latest: AgentVersion) -> bool:
        """Return whether the file is as in a version before the latest one: then it was not changed here."""
        text = self._versions.read_redacted(agent)
        if text == latest.text:
            return False
        earlier = await self._versions.store.history(agent, latest.number, MAX_HISTORY)
        return any(text == each.text for each in earlier)

    def _write(self, version: AgentVersion) -> None:
        files, known = self._versions.files, self._versions.known
        try:
            if version.is_deletion:
                files.delete(version.agent)
                known.pop(version.agent, None)
                return
            if version.removed_secrets:
                raise ConfigError(f"it contained the secret `{version.removed_secrets[0]}`, which is not stored")
            files.write(version.agent, version.text)
        except ConfigError as error:
            if (place := (version.agent, version.number)) not in self._unusable:
                self._unusable.add(place)
                logger.warning("version %s of agent %s is not used here: %s", version.number, version.agent, error)
            return
        fingerprint = files.fingerprint(version.agent)
        if fingerprint is not None:
            known[version.agent] = Known(fingerprint, version.number)
