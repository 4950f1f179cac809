"""The versions of agents: which one an agent has now, and earlier ones. A file that was edited by hand becomes a
version when it is first used, or when a server that watches the files notices it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from treadle.domain.agent_versions import (
    CURRENT,
    AgentLabel,
    AgentReference,
    AgentVersion,
    VersionOrigin,
    check_label,
    explain_unknown_label,
    parse_agent_reference,
    parse_version,
)
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError, InvalidState, UnknownAgent, UsageError
from treadle.operations.requested_run import ChosenAgent
from treadle.ports.agent_files import AgentFiles
from treadle.ports.agent_versions import AgentVersions
from treadle.ports.clock import Clock
from treadle.ports.vault import Vault

Fingerprint = tuple[int, int, int]


class Known(Struct, frozen=True):
    """The version that a file had when it was last read."""

    fingerprint: Fingerprint
    number: int


class Change(Struct, frozen=True):
    """Who changed an agent, and how. None: the owner of the file, when the file was written."""

    author: str | None = None
    origin: VersionOrigin = "file"
    restored: int | None = None


BY_HAND = Change()


class AgentVersionService:
    """The versions of the agents of a home, in the database."""

    def __init__(
        self, store: AgentVersions, files: AgentFiles, vault: Vault, clock: Clock, *, records: bool = True
    ) -> None:
        self.store = store
        self.files = files
        self._vault = vault
        self._clock = clock
        self._records = records
        """False for a database that is opened for reading."""
        self.known: dict[str, Known] = {}
        self._lock = asyncio.Lock()

    async def current(self, agent: str, change: Change = BY_HAND) -> int | None:
        """Return the version that an agent has now, and record it if it is new. None: the agent has no file, or the
        version cannot be recorded here."""
        fingerprint = self.files.fingerprint(agent)
        if fingerprint is None:
            return None
        known = self.known.get(agent)
        if known is not None and known.fingerprint == fingerprint:
            return known.number
        async with self._lock:
            known = self.known.get(agent)
            if known is not None and known.fingerprint == fingerprint:  # another caller was faster
                return known.number
            number = await self._record(agent, change)
            if number is not None:
                self.known[agent] = Known(fingerprint, number)
        return number

    async def notice_all(self) -> None:
        """Record every agent whose file has changed, and every one whose file is gone. Invalid files are skipped:
        no run uses them."""
        for agent in self.files.names():
            with suppress(ConfigError, UnknownAgent):
                await self.current(agent)
        for agent in [each for each in self.known if self.files.fingerprint(each) is None]:
            await self.record_deletion(agent, BY_HAND)

    async def record_deletion(self, agent: str, change: Change) -> None:
        """Record that an agent was deleted."""
        async with self._lock:
            self.known.pop(agent, None)
            await self._append(agent, "", change, self._clock.now())

    async def history(self, agent: str, before: int | None, limit: int) -> Sequence[AgentVersion]:
        """Return versions of an agent, the newest first. Raise UnknownAgent if there is no such agent and never
        was."""
        found = await self.store.history(agent, before, limit)
        if not found and before is None and agent not in self.files.names():
            raise UnknownAgent(f"No agent is called `{agent}`.")
        return found

    async def find(self, agent: str, version: str) -> AgentVersion:
        """Return the version with a number or a label. Raise UsageError if there is none."""
        try:
            number, label = parse_version(version)
        except ValueError as error:
            raise UsageError(f"{error}.") from None
        return await self._find(AgentReference(agent, number, label))

    async def choose(self, reference: str) -> ChosenAgent:
        """Return the agent that a text such as `NAME`, `NAME@7` or `NAME@candidate` names."""
        try:
            parsed = parse_agent_reference(reference)
        except ValueError as error:
            raise UsageError(f"{error}.") from None
        if not parsed.names_version:
            return ChosenAgent(self.files.find(parsed.name))
        found = await self._find(parsed)
        return ChosenAgent(self.parse(found), found.number)

    def parse(self, version: AgentVersion) -> AgentSpec:
        """Return the agent that a version defines. Raise InvalidState if it cannot be used."""
        self._refuse_unusable(version)
        return self.files.parse(version.agent, version.text, f"agent `{version.agent}`, version {version.number}")

    async def restore(self, agent: str, version: str, author: str) -> AgentVersion:
        """Write an earlier version to the file. Return the new version, which the next run uses."""
        found = await self.find(agent, version)
        self._refuse_unusable(found)
        if self.files.fingerprint(agent) is not None:
            with suppress(ConfigError):  # an invalid file has no version
                await self.current(agent)
        self.files.write(agent, found.text)
        number = await self.current(agent, Change(author, "restore", found.number))
        assert number is not None, "a file that was just written has a version"
        restored = await self.store.find(agent, number)
        assert restored is not None, "a version that was just recorded exists"
        return restored

    async def label(self, agent: str, label: str, version: str, author: str) -> AgentLabel:
        """Give a version a label, which may move there from another one."""
        self._check_label(label)
        if label == CURRENT:
            raise UsageError(f"`{CURRENT}` always names the version that the agent has now. Choose another label.")
        found = await self.find(agent, version)
        self._refuse_unusable(found)
        made = AgentLabel(agent, label, found.number, self._clock.now(), author)
        await self.store.set_label(made)
        return made

    async def remove_label(self, agent: str, label: str) -> None:
        self._check_label(label)
        if not await self.store.remove_label(agent, label):
            raise UsageError(explain_unknown_label(agent, label, await self._list_labels(agent)))

    def read_redacted(self, agent: str) -> str:
        """Return the content of the file of an agent without secrets. Raise ConfigError if it is invalid."""
        return self._vault.redactor.redact(self.files.read_text(agent)).text

    # ── Recording ──

    async def _record(self, agent: str, change: Change) -> int | None:
        text = self.read_redacted(agent)
        at = self._clock.now() if change.author is not None else self.files.changed_at(agent)
        return await self._append(agent, text, change, at)

    async def _append(self, agent: str, text: str, change: Change, at: float) -> int | None:
        """Return the number of the latest version if it has this text, or of the one that was added."""
        author = change.author or self.files.find_author(agent)
        while True:
            latest = await self.store.latest(agent)
            if latest is not None and self._vault.redactor.redact(latest.text).text == text:
                return latest.number
            if not self._records or (latest is None and not text):
                return None
            number = 1 if latest is None else latest.number + 1
            version = AgentVersion(
                agent=agent,
                number=number,
                text=text,
                at=at,
                author=author,
                origin=change.origin,
                restored=change.restored,
            )
            if await self.store.append(version):
                return number

    # ── Finding ──

    async def _find(self, reference: AgentReference) -> AgentVersion:
        number = reference.number
        if reference.label == CURRENT:
            self._refuse_unknown(reference.name)
            number = await self.current(reference.name)
            if number is None:
                raise UsageError(
                    f"The file of agent `{reference.name}` is not recorded yet. Its next run records it."
                )
        elif number is None:
            assert reference.label is not None, "a reference to a version has a number or a label"
            found = {each.label: each.number for each in await self.store.labels(reference.name)}
            number = found.get(reference.label)
            if number is None:
                self._refuse_unknown(reference.name)
                raise UsageError(explain_unknown_label(reference.name, reference.label, sorted(found)))
        version = await self.store.find(reference.name, number)
        if version is None:
            latest = await self.store.latest(reference.name)
            if latest is None:
                self._refuse_unknown(reference.name)
            known = "no versions yet" if latest is None else f"versions 1 to {latest.number}"
            raise UsageError(f"Agent `{reference.name}` has no version {number}. It has {known}.")
        return version

    def _refuse_unknown(self, agent: str) -> None:
        if agent not in self.files.names():
            raise UnknownAgent(f"No agent is called `{agent}`.")

    async def _list_labels(self, agent: str) -> list[str]:
        return [each.label for each in await self.store.labels(agent)]

    @staticmethod
    def _check_label(label: str) -> None:
        try:
            check_label(label)
        except ValueError as error:
            raise UsageError(f"{error}.") from None

    @staticmethod
    def _refuse_unusable(version: AgentVersion) -> None:
        if version.is_deletion:
            raise InvalidState(
                f"Version {version.number} of agent `{version.agent}` records its deletion. Choose an earlier one."
            )
        if secrets := version.removed_secrets:
            raise InvalidState(
                f"Version {version.number} of agent `{version.agent}` cannot be used: it contained the secret "
                f"`{secrets[0]}`, which is not stored. Write {{{{vault:{secrets[0]}}}}} in its file instead."
            )
