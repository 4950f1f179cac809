"""The parts of a system prompt that come from outside the agent: house rules, skills and workspace notes."""

from collections.abc import Sequence
from typing import Protocol

from treadle.domain.agents import AgentSpec
from treadle.domain.tools import ToolSpec
from treadle.ports.skills import Skill


class AgentContext(Protocol):
    def rules(self) -> str:
        """Return the rules that apply to every agent of this home."""
        ...

    def skills(self, agent: AgentSpec) -> Sequence[Skill]:
        """Return the approved skills that the agent may load now."""
        ...

    def catalog(self, skills: Sequence[Skill]) -> str:
        """Return the list of skills for the system prompt: their names and descriptions."""
        ...

    def workspace(self, agent: AgentSpec) -> str:
        """Return a string that identifies the agent's workspace."""
        ...

    def notes(self, agent: AgentSpec) -> str:
        """Return the notes that the workspace holds for agents (AGENTS.md), marked as text of the workspace."""
        ...

    def guidance(self, agent: AgentSpec, tools: Sequence[ToolSpec]) -> str:
        """Return the standing instructions for an agent with these tools: its working folder, and not to invent
        results."""
        ...

    def load(self, agent: AgentSpec, name: str, file: str | None = None) -> str:
        """Return the instructions of a skill, or one of its files. Raise LookupError with a message for the
        model."""
        ...
