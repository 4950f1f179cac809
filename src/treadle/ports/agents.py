"""Access to agents, for runs that start child runs."""

from typing import Protocol

from treadle.domain.agents import AgentSpec
from treadle.domain.ids import AgentId


class Agents(Protocol):
    async def get_agent(self, name: str, requested_by: AgentSpec) -> AgentSpec:
        """Return the current definition of an agent. If it has no model of its own, it gets the model of
        `requested_by`.

        Raise UsageError if there is no such agent, if its file is invalid, or if it is paused or stopped."""
        ...

    async def version(self, name: str) -> int | None:
        """Return the version that an existing agent has now; None if a program defines it."""
        ...

    async def identity(self, name: str) -> AgentId:
        """Return the id of an existing agent."""
        ...
