"""The configuration of an engine, which `engine_setup` builds and `engine` opens."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from treadle.bootstrap.stores import ALL, WorkerShare
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.mcp_servers import McpSettings
from treadle.domain.writable_places import EnginePlaces
from treadle.engine.program import HostProgram
from treadle.home.mcp import HomeMcp
from treadle.home.run_places import RunPlaces
from treadle.home.system_facts import HomeTasks
from treadle.models.registry import ModelRegistry
from treadle.ports.agent_context import AgentContext
from treadle.ports.clock import Clock, Ids
from treadle.ports.hooks import Hook
from treadle.sandbox.commands import ShellCommands
from treadle.system.clock import SystemClock
from treadle.tools.answer_types import AnswerTypes
from treadle.tools.toolbox import ToolRegistry
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.channels.recipients import ChannelRecipients
    from treadle.telemetry.engine_telemetry import EngineTelemetry


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The configuration of an engine. Models, tools, hooks and agents may be added while it is open."""

    home: Home
    models: ModelRegistry
    tools: ToolRegistry
    hooks: list[Hook]
    vault: HomeVault
    agent_context: AgentContext
    clock: Clock
    ids: Ids
    commands: ShellCommands
    places: EnginePlaces
    """The places from which this process loads code."""
    run_places: RunPlaces
    """The places that its runs can write."""
    home_tasks: HomeTasks
    """The self-check of the home."""
    database: str | None = None
    """The URL of the database; None for that of the home."""
    telemetry: "EngineTelemetry | None" = None
    """Counts, logs and traces what is committed; None for no telemetry."""
    credits_per_dollar: float = 1.0
    agents: dict[str, AgentSpec] = field(default_factory=dict[str, AgentSpec])
    """Agents that a program has added."""
    share: WorkerShare = ALL
    """The share of the work that it does."""
    time_of_day: Clock = field(default_factory=SystemClock)
    """The machine's clock, which follows when it is set; `clock` does not."""
    answer_types: AnswerTypes = field(default_factory=AnswerTypes)
    """The types of answers that a program has asked for."""
    program: HostProgram = field(default_factory=HostProgram)
    """What a program provides to its runs."""
    mcp: HomeMcp | None = None
    """The MCP servers of the home."""
    channels: "ChannelRecipients | None" = None
    """The people and groups to which agents can send messages."""
    tool_search: McpSettings = field(default_factory=McpSettings)
    """When the tools of MCP servers are searched for."""
    announces_resumed: bool = False
    """Whether it announces the runs of earlier processes that it resumes. Commands do that themselves."""

    async def close(self) -> None:
        """Close what was opened for the engine besides its database."""
        if self.mcp is not None:
            await self.mcp.close()
        await self.models.close()
        self.commands.close()
        self.vault.close()
