"""Which files of a workspace are private, and which of them a call may use all the same."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from treadle.domain.permissions import SandboxPolicy
from treadle.domain.private_paths import CREDENTIALS, Kind, PrivatePlace, classify_name, find_private_place
from treadle.ports.tool import ToolError
from treadle.tools.files.name_display import display_name

REFUSED_FOR_READING: frozenset[Kind] = frozenset({"credentials", "project"})
REFUSED_FOR_WRITING: frozenset[Kind] = frozenset({"credentials"})
"""A file such as `.env` may be written without showing what was in it."""
LINKED_PLACE = "a hard link to a private file of the home"
MAX_HOME_FILES = 5000
"""Private files of the home that are known by their inode, to recognise hard links to them."""


class Privacy:
    """The private places of one workspace, for one call."""

    def __init__(
        self, root: str, allowed: Iterable[str] = (), kinds: frozenset[Kind] = REFUSED_FOR_READING
    ) -> None:
        """`root` is the workspace without links, `allowed` are resolved paths that this call may use."""
        self._root = root.rstrip("/")
        self._allowed = tuple(allowed)
        self._kinds = kinds
        self._inodes: frozenset[tuple[int, int]] | None = None

    def place_of(self, path: str) -> PrivatePlace | None:
        """Return the private place that a path of the workspace lies in and that this call may not use."""
        whole = self.whole(path)
        found = find_private_place(whole)
        if found is None or found.kind not in self._kinds or self._is_allowed(whole):
            return None
        return found

    def covers(self, name: str, path: str) -> bool:
        """Return whether a search leaves this out. The folders above it are not private, or allowed."""
        whole = f"{self._root}/{path}"
        return classify_name(name, whole) in self._kinds and not self._is_allowed(whole)

    def refuse(self, path: str) -> None:
        """Raise ToolError for a path in a private place."""
        if (found := self.place_of(path)) is not None:
            raise make_refusal(path, found.name)

    def refuse_linked(self, path: str, found: os.stat_result) -> None:
        """Raise ToolError for a file that is a second name of a private file of the user's home."""
        if self.is_linked(path, found):
            raise make_refusal(path, LINKED_PLACE)

    def is_linked(self, path: str, found: os.stat_result) -> bool:
        if (
            found.st_nlink < 2
            or not self._kinds
            or stat.S_ISDIR(found.st_mode)
            or self._is_allowed(self.whole(path))
        ):
            return False
        if self._inodes is None:
            self._inodes = frozenset(_find_home_inodes())
        return (found.st_dev, found.st_ino) in self._inodes

    def whole(self, path: str) -> str:
        return self._root or "/" if path == "." else f"{self._root}/{path}"

    def _is_allowed(self, whole: str) -> bool:
        return any(whole == place or whole.startswith(f"{place}/") for place in self._allowed)


NO_PRIVACY = Privacy("", kinds=frozenset())


def make_refusal(path: str, name: str) -> ToolError:
    return ToolError(
        f"{display_name(path)} was not used: it is a private place ({display_name(name)}), and no reviewer has "
        "approved this "
        "very path. Go on without it, or ask for it by its own path, without links."
    )


def find_listed_places(policy: SandboxPolicy) -> list[str]:
    """Return the private places that an agent's settings name themselves. A folder that merely contains one does
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
    """Yield the files at a path, or below it where it is a folder."""
    with suppress(OSError):
        found = os.stat(path)
        if not os.path.isdir(path):
            yield found
            return
        for folder, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):
                    yield os.stat(os.path.join(folder, name))
