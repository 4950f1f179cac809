"""What surrounds an agent and becomes part of its system prompt: the rules of the house, the skills that it may
load, the notes that its workspace holds."""

from collections.abc import Sequence
from typing import Protocol

from treadle.domain.agents import AgentSpec
from treadle.domain.tools import ToolSpec
from treadle.ports.skills import Skill


class AgentContext(Protocol):
    def rules(self) -> str:
        """What holds for every agent here."""
        ...

    def skills(self, agent: AgentSpec) -> Sequence[Skill]:
        """The approved skills that the agent may load, looked up now."""
        ...

    def catalog(self, skills: Sequence[Skill]) -> str:
        """What the agent is told of them: their names and what each is for."""
        ...

    def workspace(self, agent: AgentSpec) -> str:
        """Where the agent works, as one that is told from others."""
        ...

    def notes(self, agent: AgentSpec) -> str:
        """What the workspace tells whoever works in it, marked as its words."""
        ...

    def guidance(self, agent: AgentSpec, tools: Sequence[ToolSpec]) -> str:
        """Return what an agent that has these tools is told: its working folder, and not to invent results."""
        ...

    def load(self, agent: AgentSpec, name: str, file: str | None = None) -> str:
        """The instructions of a skill, or one of its files. Raises LookupError, whose message is for the model."""
        ...
