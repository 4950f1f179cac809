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
    """The folder itself: a worktree, or a folder inside a repository."""


UNKNOWN_WORKSPACE = Workspace(NO_WORKSPACE, "")
"""The workspace of runs from before they had one."""
