"""Decides which files of a workspace are private, and which of them a call may use."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from treadle.domain.permissions import SandboxPolicy
from treadle.domain.private_paths import CREDENTIALS, Kind, PrivatePlace, classify_name, find_private_place
from treadle.ports.tool import ToolError
from treadle.tools.files.name_display import display_name

PRIVATE_TO_READ: frozenset[Kind] = frozenset({"credentials", "project"})
PRIVATE_TO_WRITE: frozenset[Kind] = frozenset({"credentials"})
"""A file such as `.env` may be written without revealing its previous content."""
LINKED_PLACE = "a hard link to a private file of the home"
MAX_HOME_FILES = 5000
"""How many private files of the home are recorded by inode, to recognise hard links to them."""


class Privacy:
    """The private places of one workspace, for one call."""

    def __init__(self, root: str, allowed: Iterable[str] = (), kinds: frozenset[Kind] = PRIVATE_TO_READ) -> None:
        """`root` is the workspace with links resolved; `allowed` are resolved paths that this call may use."""
        self._root = root.rstrip("/")
        self._allowed = tuple(allowed)
        self._kinds = kinds
        self._inodes: frozenset[tuple[int, int]] | None = None

    def find_place(self, path: str) -> PrivatePlace | None:
        """Return the private place that contains a path of the workspace and that this call may not use, or
        None."""
        full_path = self.full_path(path)
        found = find_private_place(full_path)
        if found is None or found.kind not in self._kinds or self._is_allowed(full_path):
            return None
        return found

    def covers(self, name: str, path: str) -> bool:
        """Return whether a search leaves out this path. The folders above it are not private, or are allowed."""
        full_path = f"{self._root}/{path}"
        return classify_name(name, full_path) in self._kinds and not self._is_allowed(full_path)

    def refuse(self, path: str) -> None:
        """Raise ToolError if a path is in a private place."""
        if (found := self.find_place(path)) is not None:
            raise make_refusal(path, found.name)

    def refuse_linked(self, path: str, found: os.stat_result) -> None:
        """Raise ToolError if a file is a hard link to a private file of the user's home."""
        if self.is_linked(path, found):
            raise make_refusal(path, LINKED_PLACE)

    def is_linked(self, path: str, found: os.stat_result) -> bool:
        if (
            found.st_nlink < 2
            or not self._kinds
            or stat.S_ISDIR(found.st_mode)
            or self._is_allowed(self.full_path(path))
        ):
            return False
        if self._inodes is None:
            self._inodes = frozenset(_find_home_inodes())
        return (found.st_dev, found.st_ino) in self._inodes

    def full_path(self, path: str) -> str:
        return self._root or "/" if path == "." else f"{self._root}/{path}"

    def _is_allowed(self, full_path: str) -> bool:
        return any(full_path == place or full_path.startswith(f"{place}/") for place in self._allowed)


NO_PRIVACY = Privacy("", kinds=frozenset())


def make_refusal(path: str, name: str) -> ToolError:
    return ToolError(
        f"{display_name(path)} was not used: it is a private place ({display_name(name)}), and no reviewer has "
        "approved this "
        "very path. Go on without it, or ask for it by its own path, without links."
    )


def find_listed_places(policy: SandboxPolicy) -> list[str]:
    """Return the private places that an agent's settings list themselves. A folder that merely contains one does
    not count."""
    named = (os.path.realpath(Path(name).expanduser()) for name in (*policy.readable, *policy.writable))
    return [path for path in named if find_private_place(path) is not None]


def _find_home_inodes() -> Iterator[tuple[int, int]]:
    home = os.path.expanduser("~")
    left = MAX_HOME_FILES
    for place in CREDENTIALS:
        for found in _find_files(os.path.join(home, place)):
            yield found.st_dev, found.st_ino
            left -= 1
            if not left:
                return


def _find_files(path: str) -> Iterator[os.stat_result]:
    """Yield the files at a path, or below it if it is a folder."""
    with suppress(OSError):
        found = os.stat(path)
        if not os.path.isdir(path):
            yield found
            return
        for folder, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):
                    yield os.stat(os.path.join(folder, name))
