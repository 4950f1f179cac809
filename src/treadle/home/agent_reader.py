"""The agents of a home for schedules and inbound webhooks."""

import logging

from treadle.config.home import Home
from treadle.config.live_config import compute_file_fingerprint
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError

logger = logging.getLogger(__name__)


class HomeAgentReader:
    """The agents of a home. Files are read again when they have changed."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[str, tuple[object, AgentSpec | None]] = {}

    def find(self, name: str) -> AgentSpec:
        """Return an agent. Raise UsageError if there is none with that name, or if its file is invalid."""
        return self._home.agent(name)

    def all(self) -> dict[str, AgentSpec | None]:
        """Return all agents by name; None if the file is invalid."""
        self._known = {name: self._read(name) for name in self._home.agents()}
        return {name: spec for name, (_, spec) in self._known.items()}

    def _read(self, name: str) -> tuple[object, AgentSpec | None]:
        state = [compute_file_fingerprint(path) for path in self._home.files_of_agent(name)]
        if name in self._known and self._known[name][0] == state:
            return self._known[name]
        try:
            return state, self._home.agent(name)
        except UsageError as error:
            logger.warning("agent %s keeps its previous settings: %s", name, error)
            return state, None
