"""The tools of MCP servers that a session began with. A list that is approved later counts for the next session.

The tools are part of the prompt. A list that changed during a session would make the provider read the whole
conversation again, and the model would meet calls of tools that it no longer knows."""

from collections.abc import Sequence

import msgspec

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UnknownRun
from treadle.domain.events import RunQueued, RunStart
from treadle.domain.mcp_servers import SEPARATOR
from treadle.domain.tools import ToolSpec
from treadle.engine.owned_run import OwnedRun

READ_EVENTS = 50
"""Events of the previous run that are read to find its start."""


async def keep_offered_tools(tools: Sequence[ToolSpec], run: OwnedRun) -> tuple[ToolSpec, ...]:
    """Return the tools of a run, with the tools of each MCP server as the previous run of the session offered them.

    A tool that is no longer approved is left out. A server that the previous run did not offer is new, and its list
    is taken as it is. The same holds for all of them if the settings of the agent name other tools now."""
    if run.previous is None or not any(spec.searchable for spec in tools):
        return tuple(tools)
    offered = await _read_offered(run)
    servers = {_find_server(spec) for spec in offered}
    earlier = {spec.name: msgspec.structs.replace(spec, hidden=False) for spec in offered}
    return tuple(
        [
            earlier[spec.name] if spec.searchable and spec.name in earlier else spec
            for spec in tools
            if not spec.searchable or spec.name in earlier or _find_server(spec) not in servers
        ]
    )


async def _read_offered(run: OwnedRun) -> Sequence[ToolSpec]:
    """Return the tools of MCP servers of the previous run, or none if its agent was configured differently."""
    assert run.previous is not None
    try:
        events = await run.worker.journal.read(run.previous, limit=READ_EVENTS)
    except UnknownRun:
        return ()
    agent, tools = None, tuple[ToolSpec, ...]()
    for event in events:
        if isinstance(event.data, RunQueued):
            agent = event.data.agent
        elif isinstance(event.data, RunStart):
            tools = event.data.tools
    if agent is None or not _names_same_tools(agent, run.state.agent):
        return ()
    return [spec for spec in tools if spec.searchable]


def _names_same_tools(one: AgentSpec, other: AgentSpec) -> bool:
    return (one.name, one.tools, one.mcp_servers) == (other.name, other.tools, other.mcp_servers)


def _find_server(spec: ToolSpec) -> str:
    return spec.name.partition(SEPARATOR)[0]
