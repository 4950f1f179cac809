"""What is approved of MCP servers: the pins of a home, and those of a program, whose agents bring servers along."""

from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from treadle.config.database_url import is_in_memory, is_postgres, mask_password, sqlite_path
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.mcp_servers import McpServerSettings
from treadle.mcp.approval_advice import ApprovalAdvice, Approver
from treadle.mcp.pins import Pin, PinFolder, hash_entry

DATABASES = "databases"
"""Folder with the pins of programs, one for each database that is not that of the home."""


class Pins(Protocol):
    """Stores what is approved of servers."""

    def read(self, server: str, agent: str = "") -> Pin | None: ...

    def write(self, pin: Pin) -> None: ...

    def remove(self, server: str, agent: str = "") -> bool: ...


class MemoryPins:
    """Implements `Pins` for a database in memory: they end with it."""

    def __init__(self) -> None:
        self._pins: dict[tuple[str, str], Pin] = {}

    def read(self, server: str, agent: str = "") -> Pin | None:
        return self._pins.get((server, agent))

    def write(self, pin: Pin) -> None:
        self._pins[pin.server, pin.agent] = pin

    def remove(self, server: str, agent: str = "") -> bool:
        return self._pins.pop((server, agent), None) is not None


class HomeApprovals:
    """Implements `mcp.catalog.ServerApprovals`. Without a program it knows the home alone."""

    def __init__(self, home: Home, database: str | None = None) -> None:
        self.home = home
        self.database = database or home.database_url
        self.program_agents: dict[str, AgentSpec] = {}
        """Agents of a program that bring servers along."""
        self.is_program = False
        """Whether messages say what a program can do."""
        self._home_pins = PinFolder(home.path)

    @cached_property
    def scope(self) -> str:
        """The folder, in that of the pins, for the programs on the database."""
        return _make_scope(self.home, self.database)

    @cached_property
    def _program_pins(self) -> Pins:
        return MemoryPins() if is_in_memory(self.database) else PinFolder(self.home.path, self.scope)

    def find_pin(self, server: str, agent: str, settings: McpServerSettings) -> Pin | None:
        own = self._program_pins.read(server, agent) if agent else None
        if own is not None and own.entry == hash_entry(settings):
            return own
        found = self._home_pins.read(server, agent)
        return found if own is None or (found is not None and found.entry == hash_entry(settings)) else own

    def select_pins(self, agent: str) -> Pins:
        """Return where the approvals of an agent's servers are stored; of those of the home without an agent."""
        return self._program_pins if agent in self.program_agents else self._home_pins

    def advise(self, server: str, agent: str) -> ApprovalAdvice:
        return ApprovalAdvice(server, agent, self._find_approver(agent))

    def _find_approver(self, agent: str) -> Approver:
        if agent and (agent in self.program_agents or agent not in self.home.agents()):
            return "program"
        return "both" if self.is_program else "command"

    def list_program_agents(self) -> Iterator[AgentSpec]:
        yield from self.program_agents.values()


def _make_scope(home: Home, database: str) -> str:
    """Return the folder, in that of the pins, for the programs on a database. Programs on the database of the home
    share the pins of its agents, as they share everything else."""
    if database == home.database_url or is_in_memory(database):
        return ""
    place = mask_password(database) if is_postgres(database) else str(Path(sqlite_path(database)).absolute())
    return f"{DATABASES}/{sha256(place.encode()).hexdigest()[:16]}"
