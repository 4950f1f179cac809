"""The workspaces of the agents of a home."""

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.workspaces import Workspace
from treadle.operations.workspaces import WorkspaceIdentifier
from treadle.system.workspace_identity import find_workspace


def make_workspace_identifier(home: Home) -> WorkspaceIdentifier:
    """Return the function that finds the folder of an agent and its workspace. It creates nothing."""

    def identify(agent: AgentSpec) -> Workspace:
        return find_workspace(home.workspace_path(agent))

    return identify
