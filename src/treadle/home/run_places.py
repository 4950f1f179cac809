"""The places that runs of this process can write. The engine imports nothing from there."""

import os
import sys
from pathlib import Path

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import TreadleError
from treadle.domain.writable_places import EnginePlaces, is_within
from treadle.home.writable_places import WorkspaceRecord
from treadle.system.engine_places import find_writable_places
from treadle.system.import_guard import guard_imports


class RunPlaces:
    """Opens the workspaces of runs, after excluding them from imports."""

    def __init__(self, home: Home, engine: EnginePlaces, hidden: tuple[Path, ...]) -> None:
        self._home = home
        self._record = WorkspaceRecord(home.path)
        self._guard = guard_imports(engine)
        self.protected = (*engine.all, *(os.path.realpath(place) for place in hidden))
        """The places that no run can write: those of the engine, its home and its database."""
        if any(not any(is_within(os.path.realpath(entry), place) for place in engine.all) for entry in sys.path):
            self._exclude_known()

    def open_workspace(self, agent: AgentSpec) -> Path:
        """Return the workspace of an agent. Raise UsageError if it is missing."""
        path = self._home.workspace(agent)
        self._record.note(path)
        self._guard.exclude(find_writable_places(path, agent.confinement, self.protected))
        return path

    def _exclude_known(self) -> None:
        """Exclude the workspaces of all agents of the home: the search path contains folders that a run could
        have written."""
        for name in self._home.agents():
            try:
                agent = self._home.agent(name)
            except TreadleError:  # reported when the agent is used
                continue
            path = self._home.workspace_path(agent)
            self._guard.exclude(find_writable_places(path, agent.confinement, self.protected))
