"""What the runs of a home can write: the folders of its agents, and every workspace that a run has worked in."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from treadle.config.database_url import list_database_files
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import TreadleError
from treadle.domain.mcp_servers import McpServerSettings
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import WritablePlaces, is_within
from treadle.mcp.pins import FOLDER
from treadle.system.engine_places import find_writable_places, list_engine_places

FILE = "workspaces.list"
"""Paths, each with a NUL after it, in the folder of the pins."""
MAX_REMEMBERED = 1000
"""Workspaces that are remembered: the latest."""


class WorkspaceRecord:
    """Remembers in the home which folders runs have worked in since the first MCP server was approved. What was
    there before, the operator has approved."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER
        self._known: set[str] = set()

    def note(self, workspace: Path) -> None:
        """Remember a workspace. Nothing is written if it is known, or if no server was ever approved."""
        if str(workspace) in self._known or not self._folder.is_dir():
            return
        known, path = self.read(), os.path.realpath(workspace)
        self._known |= {*known, path, str(workspace)}
        if path in known:
            return
        kept = [each for each in known if os.path.isdir(each)][-MAX_REMEMBERED + 1 :]
        temporary = self._folder / f".{FILE}.{os.getpid()}"
        with suppress(OSError):
            temporary.write_bytes(b"".join(os.fsencode(each) + b"\0" for each in (*kept, path)))
            temporary.replace(self._folder / FILE)

    def read(self) -> list[str]:
        """Return the remembered workspaces, the latest last."""
        try:
            return [os.fsdecode(each) for each in (self._folder / FILE).read_bytes().split(b"\0") if each]
        except OSError:
            return []


class HomePlaces:
    """Implements `mcp.server_programs.PlacesOfRuns`."""

    def __init__(
        self, home: Home, database: str | None = None, program_agents: Callable[[], Iterable[AgentSpec]] = tuple
    ) -> None:
        """`program_agents` returns the agents of a program, which no file describes."""
        self._home = home
        self._database = database or home.database_url
        self._program_agents = program_agents

    def find_writable(self, workspace: Path, policy: SandboxPolicy) -> WritablePlaces:
        return find_writable_places(workspace, policy, self._protected).join([self.find_all()])

    def find_all(self) -> WritablePlaces:
        """Return what the agents of the home can write, and the workspaces of earlier runs."""
        agents = [
            find_writable_places(self._home.workspace_path(agent), agent.confinement, self._protected)
            for agent in self._list_agents()
        ]
        return WritablePlaces(tuple(self._list_remembered()), self._protected).join(agents)

    def list_server_folders(self) -> tuple[str, ...]:
        servers: list[McpServerSettings] = []
        with suppress(TreadleError):
            servers += self._home.config().mcp_servers.values()
        for agent in self._list_agents():
            servers += agent.mcp_servers.values()
        return tuple(dict.fromkeys(folder for server in servers for folder in server.writable))

    @cached_property
    def _protected(self) -> tuple[str, ...]:
        engine = list_engine_places()
        own = (self._home.path, *list_database_files(self._home.database_url), *list_database_files(self._database))
        return (*engine.all, *map(os.path.realpath, own))

    def _list_agents(self) -> Iterator[AgentSpec]:
        for name in self._home.agents():
            with suppress(TreadleError):
                yield self._home.agent(name)
        yield from self._program_agents()

    def _list_remembered(self) -> Iterator[str]:
        """Yield workspaces of earlier runs, without those that contain the user's home: they would contain every
        program of the user."""
        home = os.path.realpath(os.path.expanduser("~"))
        for path in WorkspaceRecord(self._home.path).read():
            if not is_within(home, path):
                yield path
