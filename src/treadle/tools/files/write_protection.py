"""Decides which files of a workspace a call may not write: code of the engine, and files that other programs
execute later unless a reviewer has approved them."""

import os
from collections.abc import Iterable

from treadle.domain.executed_files import find_executed_file
from treadle.domain.writable_places import EnginePlaces, explain_protection, is_within
from treadle.ports.tool import ToolError
from treadle.tools.files.name_display import display_name


class WriteProtection:
    """What may not be written in one workspace, for one call."""

    def __init__(self, root: str, engine: EnginePlaces, approved: Iterable[str]) -> None:
        """`root` is the workspace with links resolved; `approved` are resolved paths that a reviewer has
        allowed."""
        self._root = root.rstrip("/")
        enclosing = engine.find_enclosing(root)
        self._places = engine.list_inside(root) if enclosing is None else (enclosing,)
        self._approved = frozenset(approved)

    def refuse(self, path: str) -> None:
        """Raise ToolError if a call may not write a path of the workspace."""
        full_path = f"{self._root}/{path}"
        self.refuse_folder(path)
        found = find_executed_file(full_path)
        if found is not None and full_path not in self._approved:
            raise ToolError(
                f"{display_name(path)} was not written: {display_name(found.by)} executes it later "
                f"({display_name(found.name)}), and no reviewer has approved this very path. Go on without it, or "
                f"ask for it by its own path, without links."
            )

    def refuse_folder(self, path: str) -> None:
        """Raise ToolError if a path of the workspace is in a place of the engine."""
        if (place := self.find_place(path)) is not None:
            raise ToolError(f"{display_name(path)} was not written. {explain_protection(display_name(place))}")

    def find_place(self, path: str) -> str | None:
        """Return the place of the engine that a path of the workspace is in, or None. Names are compared without
        case, as some file systems do."""
        full_path = os.path.normpath(f"{self._root}/{path}").casefold()
        return next((place for place in self._places if is_within(full_path, place.casefold())), None)
