"""The state of a linked worktree of git, whose repository is outside the working folder.

Only files are read. A hostile `.git` file could name any folder, so the repository must name the working folder in
turn, and a value is used only if it has the form that git writes."""

import os
import re
import stat
from pathlib import Path

from treadle.domain.executed_files import GIT_FOLDER
from treadle.tools.files.text import read_bytes

_MAX_BYTES = 1000
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BRANCH = re.compile(r"ref: refs/heads/([^\s~^:?*\[\\\x00-\x1f\x7f]{1,200})")
_LINK = re.compile(r"gitdir: (.+)")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def find_worktree(folder: Path) -> Path | None:
    """Return the folder in which git keeps the state of a linked worktree, or None if this folder is not one."""
    link = folder / GIT_FOLDER
    named = _LINK.fullmatch(_read_line(link))
    if named is None:
        return None
    state = Path(os.path.normpath(folder / named[1]))
    back = _read_line(state / "gitdir")
    if not back or state.parent.name != "worktrees":
        return None
    try:
        is_same = os.path.samefile(state / back, link)
    except (OSError, ValueError):
        return None
    return state if is_same else None


def read_worktree_head(state: Path) -> tuple[str, str]:
    """Return the branch and the commit of a linked worktree, each empty if it is unknown."""
    head = _read_line(state / "HEAD")
    if _COMMIT.fullmatch(head):
        return "", head
    found = _BRANCH.fullmatch(head)
    if found is None or ".." in found[1]:
        return "", ""
    shared = Path(os.path.normpath(state / (_read_line(state / "commondir") or "../..")))
    if shared != state.parent.parent:  # as git lays it out
        return found[1], ""
    commit = _read_line(shared / "refs" / "heads" / found[1])
    return found[1], commit if _COMMIT.fullmatch(commit) else ""


def _read_line(path: Path) -> str:
    """Return the first line of a regular file, or an empty text."""
    try:
        descriptor = os.open(path, _REGULAR)
    except (OSError, ValueError):
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return read_bytes(descriptor, _MAX_BYTES).decode("utf-8", "replace").split("\n")[0].strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
