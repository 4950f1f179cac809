"""The agents that an engine knows: those of its home, those that a program has added, and the system agents."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from treadle.config.home import Home
from treadle.config.live_config import compute_file_fingerprint
from treadle.config.system_agents import SYSTEM_AGENTS
from treadle.domain.agents import AgentSpec, is_agent_name
from treadle.domain.errors import ConfigError, InvalidState
from treadle.domain.ids import AgentId
from treadle.domain.users import LOCAL_USER

AgentFingerprint = tuple[int, int, int]


class HomeAgents:
    """The agents of a home. A file is read again only if it has changed."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[str, tuple[tuple[object, ...], AgentSpec]] = {}

    def find(self, name: str) -> AgentSpec:
        known = self._known.get(name)
        if known is not None and known[0] == self._state(name):
            return known[1]
        spec = self._home.agent(name)  # reports an unknown name
        if name in self._home.agents():
            self._known[name] = (self._state(name), spec)
        return spec

    def names(self) -> Sequence[str]:
        return self._home.agents()

    def put(self, settings: dict[str, Any], *, new: bool) -> AgentSpec:
        return self._home.put_agent(settings, new=new)

    def delete(self, name: str) -> None:
        self._home.delete_agent(name)

    def changed_at(self, name: str) -> float:
        """Return when the file of an agent was last changed; 0 for the default agent without a file."""
        file, _ = self._home.files_of_agent(name)
        try:
            return file.stat().st_mtime
        except OSError:
            return 0.0

    def fingerprint(self, name: str) -> AgentFingerprint | None:
        """Return what changes when the file of an agent changes; None if it has no file."""
        return compute_file_fingerprint(self._home.files_of_agent(name)[0]) if is_agent_name(name) else None

    def read_text(self, name: str) -> str:
        """Return the content of the file of an agent. Raise ConfigError if it is invalid."""
        file = self._home.agent_file(name)
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: cannot be read: {error}; check the file and its permissions") from None
        self._home.parse_agent(name, text, str(file))
        return text

    def find_author(self, name: str) -> str:
        """Return the account that owns the file of an agent."""
        try:
            return self._home.files_of_agent(name)[0].owner()
        except (OSError, KeyError, NotImplementedError):
            return LOCAL_USER

    def parse(self, name: str, text: str, source: str) -> AgentSpec:
        return self._home.parse_agent(name, text, source)

    def write(self, name: str, text: str) -> None:
        self._home.write_agent(name, text)

    def _state(self, name: str) -> tuple[object, ...]:
        return tuple(map(compute_file_fingerprint, (self._home.config_file, *self._home.files_of_agent(name))))


class ProgramAgents:
    """The agents of a home and those that a program has added, which only the program can change."""

    def __init__(self, home: HomeAgents, added: Mapping[str, AgentSpec]) -> None:
        self._home = home
        self._added = added

    def find(self, name: str) -> AgentSpec:
        return self._home.find(name) if (added := self._added.get(name)) is None else added

    def names(self) -> Sequence[str]:
        return sorted({*self._home.names(), *self._added})

    def put(self, settings: dict[str, Any], *, new: bool) -> AgentSpec:
        self._refuse_change(str(settings.get("name")))
        return self._home.put(settings, new=new)

    def delete(self, name: str) -> None:
        self._refuse_change(name)
        self._home.delete(name)

    def changed_at(self, name: str) -> float:
        """Return when the file of an agent was last changed; 0 for an agent without a file."""
        return 0.0 if name in self._added else self._home.changed_at(name)

    def fingerprint(self, name: str) -> AgentFingerprint | None:
        return None if name in self._added else self._home.fingerprint(name)

    def read_text(self, name: str) -> str:
        return self._home.read_text(name)

    def find_author(self, name: str) -> str:
        return self._home.find_author(name)

    def parse(self, name: str, text: str, source: str) -> AgentSpec:
        return self._home.parse(name, text, source)

    def write(self, name: str, text: str) -> None:
        self._refuse_change(name)
        self._home.write(name, text)

    def _refuse_change(self, name: str) -> None:
        if name in self._added:
            raise InvalidState(
                f"The agent `{name}` cannot be changed here: a program defines it. Change the program."
            )


class EngineAgents:
    """Implements `ports.agents.Agents`."""

    def __init__(
        self,
        home: HomeAgents,
        added: Mapping[str, AgentSpec],
        admit: Callable[[str], Awaitable[None]],
        identity: Callable[[str], Awaitable[AgentId]],
        version: Callable[[str], Awaitable[int | None]],
    ) -> None:
        self._home = home
        self._added = added
        self._admit = admit
        """Raises for an agent that accepts no messages."""
        self._identity = identity
        self._version = version

    async def get_agent(self, name: str, requested_by: AgentSpec) -> AgentSpec:
        found = self._added.get(name)
        if found is None and name in SYSTEM_AGENTS and name not in self._home.names():
            found = SYSTEM_AGENTS[name](requested_by)
        spec = self._home.find(name) if found is None else found
        await self._admit(name)
        return spec

    async def version(self, name: str) -> int | None:
        return None if name in self._added else await self._version(name)

    async def identity(self, name: str) -> AgentId:
        return await self._identity(name)
