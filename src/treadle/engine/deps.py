"""The dependencies of the run loop."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.events import EventData
from treadle.domain.mcp_servers import McpSettings
from treadle.domain.workspaces import WorkspaceId
from treadle.domain.writable_places import EnginePlaces
from treadle.engine.event_hub import EventHub
from treadle.engine.isolation import Isolation, NoIsolation
from treadle.engine.null_ports import (
    NoAgentContext,
    NoAgents,
    NoApprovals,
    NoMemories,
    NoResults,
    NoSessions,
    NoVault,
)
from treadle.engine.transcript_cache import TranscriptCache
from treadle.ports.agent_context import AgentContext
from treadle.ports.agents import Agents
from treadle.ports.approvals import Approvals
from treadle.ports.clock import Clock, Ids
from treadle.ports.hooks import Hook
from treadle.ports.journal import Journal
from treadle.ports.memory import Memories
from treadle.ports.model import Models
from treadle.ports.results import Results
from treadle.ports.sessions import Sessions
from treadle.ports.tool import Toolbox
from treadle.ports.vault import Vault
from treadle.system.timers import Timers


class ToolTimeouts(Struct, frozen=True):
    """Seconds; 0 disables the timeout."""

    default: float = 120.0
    agents: float = 600.0
    """For tools that begin a child run and wait for it."""


@dataclass(frozen=True, slots=True)
class EngineDeps:
    journal: Journal
    hub: EventHub
    models: Models
    tools: Toolbox
    clock: Clock
    ids: Ids
    random: Callable[[], float]
    """Returns a number from 0 to 1, for the jitter of retries."""
    worker: str
    """The name of this process as the owner of the runs that it claims."""
    timeouts: ToolTimeouts = field(default_factory=ToolTimeouts)
    transcripts: TranscriptCache = field(default_factory=TranscriptCache)
    timers: Timers = field(default_factory=Timers)
    hooks: Sequence[Hook] = ()
    vault: Vault = field(default_factory=NoVault)
    approvals: Approvals = field(default_factory=NoApprovals)
    results: Results = field(default_factory=NoResults)
    memories: Memories = field(default_factory=NoMemories)
    agent_context: AgentContext = field(default_factory=NoAgentContext)
    sessions: Sessions = field(default_factory=NoSessions)
    agents: Agents = field(default_factory=NoAgents)
    workspace: Callable[[AgentSpec], Path] = lambda agent: Path(agent.workspace or ".")
    """Returns the folder in which an agent's tools work, after making sure that it exists."""
    identify_workspace: Callable[[str], WorkspaceId] = str
    """Returns the workspace that a folder is part of."""
    hidden: tuple[Path, ...] = ()
    """Folders that no tool may read or change."""
    places: EnginePlaces = field(default_factory=EnginePlaces)
    """The places from which this process loads code. No tool may change them."""
    find_answer_error: Callable[[Mapping[str, Any], str], str | None] = lambda schema, answer: None
    """Returns why the Python type behind an output schema refuses an answer, or None."""
    tool_deps: Any = None
    """What a program provides to its tools, as `ToolContext.deps`."""
    isolation: Isolation | NoIsolation = field(default_factory=Isolation)
    adopt: Callable[[Sequence[EventData]], Sequence[EventData]] | None = None
    """Replaces the events of a run before they are recorded. A replay continues with the recorded texts."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process is about to exit. Its runs are released at the next safe point."""
    agent_hooks: Callable[[AgentSpec], Sequence[Hook]] = lambda agent: ()
    """Returns the hooks that the file of an agent names."""
    tool_search: McpSettings = field(default_factory=McpSettings)
    """When the tools of MCP servers are hidden and searched for."""
