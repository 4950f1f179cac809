"""Decides which files of a workspace a call may not write: code of the engine, and files that other programs
execute later unless a reviewer has approved them."""

import os
from collections.abc import Iterable

from treadle.domain.executed_files import GIT_FOLDER, ExecutedFile, find_executed_file
from treadle.domain.git_files import find_named_paths
from treadle.domain.writable_places import EnginePlaces, explain_protection, is_within
from treadle.ports.tool import ToolError
from treadle.tools.files.name_display import display_name

_MAX_SETTINGS_BYTES = 2**22


class WriteProtection:
    """What may not be written in one workspace, for one call."""

    def __init__(
        self, root: str, engine: EnginePlaces, approved: Iterable[str], read_only: Iterable[str] = ()
    ) -> None:
        """`root` is the workspace with links resolved; `approved` are resolved paths that a reviewer has allowed;
        `read_only` are paths that the settings of the agent exclude."""
        self._root = root.rstrip("/")
        enclosing = engine.find_enclosing(root)
        self._places = engine.list_inside(root) if enclosing is None else (enclosing,)
        self._approved = frozenset(approved)
        self._read_only = [os.path.realpath(os.path.join(root, path)) for path in read_only]

    def refuse(self, path: str) -> None:
        """Raise ToolError if a call may not write a path of the workspace."""
        full_path = f"{self._root}/{path}"
        self.refuse_folder(path)
        found = self.find_executed(path)
        if found is not None and full_path not in self._approved:
            raise ToolError(
                f"{display_name(path)} was not written: {display_name(found.by)} executes it later "
                f"({display_name(found.name)}), and no reviewer has approved this very path. Go on without it, or "
                f"ask for it by its own path, without links."
            )

    def find_executed(self, path: str) -> ExecutedFile | None:
        """Return what executes a path of the workspace later, by the list or by the settings of its repository."""
        full_path = f"{self._root}/{path}"
        return find_executed_file(full_path) or self._find_named(full_path)

    def _find_named(self, full_path: str) -> ExecutedFile | None:
        """Return the hooks or settings that a repository around the path names, if the path is in them."""
        top = os.path.dirname(full_path)
        while is_within(top, self._root or "/"):
            folder = os.path.join(top, GIT_FOLDER)
            for named in find_named_paths(_read(os.path.join(folder, "config"))):
                place = os.path.realpath(os.path.join(top if named.kind == "hooks" else folder, named.path))
                if is_within(full_path.casefold(), place.casefold()):
                    return ExecutedFile(named.path, place, "git")
            if top == "/":
                break
            top = os.path.dirname(top)
        return None

    def refuse_folder(self, path: str) -> None:
        """Raise ToolError if a path of the workspace is in a place of the engine, or is read-only for the
        agent."""
        if (place := self.find_place(path)) is not None:
            raise ToolError(f"{display_name(path)} was not written. {explain_protection(display_name(place))}")
        full_path = os.path.normpath(f"{self._root}/{path}").casefold()
        if any(is_within(full_path, place.casefold()) for place in self._read_only):
            raise ToolError(
                f"{display_name(path)} was not written: it is read-only for this agent (`sandbox.read_only`, or "
                f"the program of a hook). Go on without changing it."
            )

    def find_place(self, path: str) -> str | None:
        """Return the place of the engine that a path of the workspace is in, or None. Names are compared without
        case, as some file systems do."""
        full_path = os.path.normpath(f"{self._root}/{path}").casefold()
        return next((place for place in self._places if is_within(full_path, place.casefold())), None)


def _read(path: str) -> bytes:
    """Return the settings of a repository, or nothing if there is no regular file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(_MAX_SETTINGS_BYTES)
    except OSError:
        return b""
