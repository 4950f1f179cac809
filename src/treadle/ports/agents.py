"""The agents that there are, for runs that begin runs under them."""

from typing import Protocol

from treadle.domain.agents import AgentSpec
from treadle.domain.ids import AgentId


class Agents(Protocol):
    async def named(self, name: str, asked_by: AgentSpec) -> AgentSpec:
        """The agent of that name, as it is now; one that has no model of its own asks the model of who wants it.
        Raises UsageError where there is none, where its file is wrong, or where it takes no messages."""
        ...

    async def identity(self, name: str) -> AgentId:
        """The id of an agent that is there, by its name."""
        ...
