"""The agents of a home, each a file."""

from collections.abc import Sequence
from typing import Any, Protocol

from treadle.domain.agents import AgentSpec


class AgentFiles(Protocol):
    def names(self) -> Sequence[str]: ...

    def find(self, name: str) -> AgentSpec: ...

    def put(self, settings: dict[str, Any], *, new: bool) -> AgentSpec:
        """Write the settings of an agent. Raises ConfigError for settings that an agent cannot have."""
        ...

    def delete(self, name: str) -> None: ...

    def changed_at(self, name: str) -> float:
        """Return when the file of an agent was last changed."""
        ...

    def fingerprint(self, name: str) -> tuple[int, int, int] | None:
        """Return what changes when the file of an agent changes; None if it has no file."""
        ...

    def read_text(self, name: str) -> str:
        """Return the content of the file of an agent. Raises ConfigError if it is invalid."""
        ...

    def find_author(self, name: str) -> str:
        """Return the account that owns the file of an agent."""
        ...

    def parse(self, name: str, text: str, source: str) -> AgentSpec:
        """Return the agent that a file with this text would define now. `source` says where the text is from."""
        ...

    def write(self, name: str, text: str) -> None:
        """Write the file of an agent. The text is checked first."""
        ...
