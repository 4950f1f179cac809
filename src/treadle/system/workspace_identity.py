"""The identity of workspaces: which folders are parts of the same project.

Git is not started, and its variables are ignored. A `.git` file counts only if the repository that it names refers
back to it, since whatever can write a folder could write such a file and take the identity of another project."""

import os
from pathlib import Path

from treadle.domain.workspaces import Workspace, WorkspaceId

MAX_POINTER_BYTES = 8192
"""The files in which git stores a path are shorter."""


def find_workspace(folder: Path | str) -> Workspace:
    """Return the real path of a folder, and the workspace that it is part of."""
    return Workspace(identify_workspace(folder), os.path.realpath(folder))


def identify_workspace(folder: Path | str) -> WorkspaceId:
    """Return the identity of the workspace that a folder is part of: the git common directory, or else the real
    path of the folder."""
    place = os.path.realpath(folder)
    for parent in (place, *map(str, Path(place).parents)):
        entry = f"{parent.rstrip('/')}/.git"
        if os.path.lexists(entry):
            return _find_common_directory(entry) or parent
    return place


def _find_common_directory(entry: str) -> str | None:
    """Return the common directory that a `.git` entry leads to, or None if there is no valid one."""
    if os.path.islink(entry):
        return None
    if os.path.isdir(entry):
        return entry if _is_repository(entry) else None
    pointer = _read_pointer(entry, "gitdir: ")
    if pointer is None:
        return None
    directory = _resolve(pointer, os.path.dirname(entry))
    if _is_worktree(directory, entry):
        common = _resolve(_read_pointer(f"{directory}/commondir") or ".", directory)
        is_listed = os.path.dirname(directory) == f"{common}/worktrees"  # or the folder describes itself
        return common if is_listed and _is_repository(common) else None
    return directory if _is_repository(directory) and _names_folder(directory, os.path.dirname(entry)) else None


def _is_repository(directory: str) -> bool:
    return os.path.isfile(f"{directory}/HEAD") and os.path.isdir(f"{directory}/objects")


def _is_worktree(directory: str, entry: str) -> bool:
    """Return whether a directory describes the worktree with this `.git` file."""
    back = _read_pointer(f"{directory}/gitdir")
    return back is not None and _resolve(back, directory) == entry


def _names_folder(directory: str, folder: str) -> bool:
    """Return whether the settings of a repository name this folder as its own, as those of submodules do."""
    try:
        with open(f"{directory}/config", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 20).splitlines()
    except OSError:
        return False
    named = [value for line in lines if (value := _read_setting(line, "worktree")) is not None]
    return any(_resolve(value, directory) == folder for value in named)


def _read_setting(line: str, name: str) -> str | None:
    key, separator, value = line.partition("=")
    return value.strip().strip('"') if separator and key.strip().lower() == name else None


def _read_pointer(path: str, prefix: str = "") -> str | None:
    """Return the path that a small file of git contains, or None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            text = file.read(MAX_POINTER_BYTES).decode().rstrip("\r\n")
    except (OSError, ValueError):
        return None
    is_pointer = text.startswith(prefix) and len(text) > len(prefix) and "\0" not in text
    return text.removeprefix(prefix) if is_pointer else None


def _resolve(path: str, folder: str) -> str:
    return os.path.realpath(os.path.join(folder, path))
