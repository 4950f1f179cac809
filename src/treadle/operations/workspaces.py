"""How the service learns the workspace of an agent."""

from collections.abc import Callable
from pathlib import Path

from treadle.domain.agents import AgentSpec
from treadle.domain.workspaces import UNKNOWN_WORKSPACE, Workspace

WorkspaceIdentifier = Callable[[AgentSpec], Workspace]
"""Returns the folder in which the tools of an agent work, and its workspace."""


def identify_by_path(agent: AgentSpec) -> Workspace:
    """Return the workspace by the path of the folder alone, for services without a home."""
    if agent.workspace is None:
        return UNKNOWN_WORKSPACE
    folder = str(Path(agent.workspace).expanduser().absolute())
    return Workspace(folder, folder)
