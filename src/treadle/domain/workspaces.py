"""Workspaces: the folders in which sessions work, and their identity."""

from msgspec import Struct

WorkspaceId = str
"""The git common directory of a folder, or else its real path. All worktrees of a repository have the same."""

MAX_WORKSPACE_CHARACTERS = 4096
NO_WORKSPACE: WorkspaceId = ""
"""Of runs, grants and memories from before they had a workspace."""


class Workspace(Struct, frozen=True, gc=False):
    """The folder in which a run works, and the workspace that it is part of."""

    id: WorkspaceId
    folder: str
    """The real path of the folder itself: a worktree, or a folder inside a repository."""


def list_identities(workspace: Workspace) -> tuple[WorkspaceId, ...]:
    """Return the ids of the workspaces that a folder, given by its real path, is and was part of: the current one,
    and those from before it became a repository, or after it was one."""
    return workspace.id, workspace.folder, f"{workspace.folder.rstrip('/')}/.git"


def is_same_place(workspace: Workspace, here: Workspace) -> bool:
    """Return whether a workspace is that of a folder, or was before the folder became a repository."""
    return workspace.id in list_identities(here)


UNKNOWN_WORKSPACE = Workspace(NO_WORKSPACE, "")
"""The workspace of runs from before they had one."""
