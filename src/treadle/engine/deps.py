"""What the run loop depends on, divided by use: a function takes the part that it needs."""

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
from treadle.engine.program import HostProgram
from treadle.engine.transcript_cache import TranscriptCache
from treadle.ports.agent_context import AgentContext
from treadle.ports.agents import Agents
from treadle.ports.approvals import Approvals
from treadle.ports.clock import Clock, Ids
from treadle.ports.file_versions import FileVersions, NoFileVersions
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


OpenWorkspace = Callable[[AgentSpec], Path]
"""Returns the folder in which an agent's tools work, after making sure that it exists."""


def find_agent_folder(agent: AgentSpec) -> Path:
    """Return the folder that an agent names, or the current one."""
    return Path(agent.workspace or ".")


@dataclass(frozen=True, slots=True)
class Worker:
    """The process that owns runs, and what it uses for each of them."""

    name: str
    """Its name as the owner of the runs that it claims."""
    journal: Journal
    hub: EventHub
    clock: Clock
    ids: Ids
    random: Callable[[], float]
    """Returns a number from 0 to 1, for the jitter of retries."""
    vault: Vault = field(default_factory=NoVault)
    timers: Timers = field(default_factory=Timers)
    transcripts: TranscriptCache = field(default_factory=TranscriptCache)
    adopt: Callable[[Sequence[EventData]], Sequence[EventData]] | None = None
    """Replaces the events of a run before they are recorded. A replay continues with the recorded texts."""


@dataclass(frozen=True, slots=True)
class ModelDeps:
    """What the start of a run and a change of its model need."""

    models: Models
    tools: Toolbox
    agent_context: AgentContext = field(default_factory=NoAgentContext)
    tool_search: McpSettings = field(default_factory=McpSettings)
    """When the tools of MCP servers are hidden and searched for."""


@dataclass(frozen=True, slots=True)
class ToolDeps:
    """What tool calls need."""

    tools: Toolbox
    timeouts: ToolTimeouts = field(default_factory=ToolTimeouts)
    hooks: Sequence[Hook] = ()
    agent_hooks: Callable[[AgentSpec], Sequence[Hook]] = lambda agent: ()
    """Returns the hooks that the file of an agent names."""
    approvals: Approvals = field(default_factory=NoApprovals)
    results: Results = field(default_factory=NoResults)
    memories: Memories = field(default_factory=NoMemories)
    agent_context: AgentContext = field(default_factory=NoAgentContext)
    workspace: OpenWorkspace = find_agent_folder
    hidden: tuple[Path, ...] = ()
    """Folders that no tool may read or change."""
    places: EnginePlaces = field(default_factory=EnginePlaces)
    """The places from which this process loads code. No tool may change them."""
    program: HostProgram = field(default_factory=HostProgram)
    """What a program provides to its runs."""
    file_versions: FileVersions = field(default_factory=NoFileVersions)


@dataclass(frozen=True, slots=True)
class ChildDeps:
    """What the beginning of child runs needs."""

    models: Models
    tools: Toolbox
    timeouts: ToolTimeouts = field(default_factory=ToolTimeouts)
    agents: Agents = field(default_factory=NoAgents)
    sessions: Sessions = field(default_factory=NoSessions)
    workspace: OpenWorkspace = find_agent_folder
    identify_workspace: Callable[[str], WorkspaceId] = str
    """Returns the workspace that a folder is part of."""
    program: HostProgram = field(default_factory=HostProgram)


@dataclass(frozen=True, slots=True)
class SessionDeps:
    """What outlasts a run: its session and its memories; and the models that summarise."""

    models: Models
    sessions: Sessions = field(default_factory=NoSessions)
    results: Results = field(default_factory=NoResults)
    memories: Memories = field(default_factory=NoMemories)


@dataclass(frozen=True, slots=True)
class EngineDeps:
    """All parts, for the loop."""

    worker: Worker
    models: ModelDeps
    tools: ToolDeps
    children: ChildDeps
    session: SessionDeps
    find_answer_error: Callable[[Mapping[str, Any], str], str | None] = lambda schema, answer: None
    """Returns why the Python type behind an output schema refuses an answer, or None."""
    isolation: Isolation | NoIsolation = field(default_factory=Isolation)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process is about to exit. Its runs are released at the next safe point."""
