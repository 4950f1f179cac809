"""Keeps the imports of the engine away from the folders that runs can write.

The search path of a process can contain such folders: the folder of a script, PYTHONPATH, an editable installation.
They cannot be protected, because runs work there. So the guard answers the imports of Treadle and of the packages
that it uses from everywhere else, and refuses modules that exist only there. Imports of the program that contains
the engine are its own and stay as they are."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any, Literal

from treadle.domain.writable_places import EnginePlaces, WritablePlaces, is_within
from treadle.system.engine_places import list_path_steps
from treadle.system.helper_process import PACKAGE_ROOT

_PACKAGE = str(PACKAGE_ROOT / "treadle")
_LOOPS = ("/asyncio/base_events.py", "/asyncio/runners.py")
Author = Literal["engine", "library", "program"]
"""Whose code imports a module: Treadle's, that of a package or of Python, or that of the program."""


class ImportGuard:
    """A finder of modules, before all others."""

    def __init__(self, engine: EnginePlaces) -> None:
        self._engine = engine
        self._writable = WritablePlaces(protected=engine.all)
        self._targets = {entry: os.path.realpath(entry) for entry in sys.path if entry}
        """Where the entries led at the start. A link in a writable folder may lead elsewhere later."""
        self._excluded: set[WritablePlaces] = set()
        self._entries: dict[str, str | None] = {}
        self._folders: dict[str, bool] = {}
        self._authors: dict[str, Author] = {}

    def exclude(self, places: WritablePlaces) -> None:
        """Import nothing from these places from now on."""
        if places not in self._excluded:
            self._excluded.add(places)
            self._writable = self._writable.join([places])
            self._entries.clear()
            self._folders.clear()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module of the engine is, or None to leave the import to the other finders. Raise
        ModuleNotFoundError if it is only in a folder that a run can write."""
        if not self._writable.folders or self._find_author(sys._getframe(1)) == "program":  # pyright: ignore[reportPrivateUsage] -- there is no public way
            return None
        entries = [self._make_safe(entry) for entry in (sys.path if path is None else path)]
        safe = [entry for entry in entries if entry is not None]
        is_refused = len(safe) < len(entries)
        for finder in sys.meta_path:
            if finder is not self:
                spec: ModuleSpec | None = _ask(finder, name, safe if finder is PathFinder else path, target)
                if spec is not None and not self._is_writable(spec):
                    return spec
                is_refused = is_refused or spec is not None
        if is_refused:
            raise ModuleNotFoundError(
                f"No module named {name!r} outside of the folders that runs can write "
                f"({', '.join(self._writable.folders)}). Treadle imports nothing from there. Install it in the "
                f"environment of Treadle.",
                name=name,
            )
        return None

    # ── Places ──

    def _make_safe(self, entry: str) -> str | None:
        """Return an entry of a search path with a link in a writable folder resolved, or None if it is not safe."""
        if entry not in self._entries or not entry.startswith("/"):
            self._entries[entry] = self._resolve(entry)
        return self._entries[entry]

    def _resolve(self, entry: str) -> str | None:
        root = max((each for each in self._targets if is_within(entry, each)), key=len, default=None)
        place = os.path.realpath(entry) if root is None else self._targets[root] + entry[len(root) :]
        if self._writable.includes(place):
            return None
        if place not in self._engine.code and any(is_within(each, place) for each in self._writable.folders):
            return None
        return place if any(self._writable.includes(step) for step in list_path_steps(entry)) else entry

    def _is_writable(self, spec: ModuleSpec) -> bool:
        """Return whether a module, or a part of a namespace, is where a run can write."""
        files = [spec.origin] if spec.has_location and spec.origin else []
        folders = [*map(os.path.dirname, files), *(spec.submodule_search_locations or ())]
        return any(self._is_writable_folder(folder) for folder in folders) or any(
            os.path.islink(file) and self._writable.includes(os.path.realpath(file)) for file in files
        )

    def _is_writable_folder(self, folder: str) -> bool:
        found = self._folders.get(folder)
        if found is None:
            found = self._folders[folder] = any(self._writable.includes(step) for step in list_path_steps(folder))
        return found

    # ── Authors ──

    def _find_author(self, frame: FrameType | None) -> Author:
        """Return who imports: the nearest code that is the engine's or the program's. Packages act for their
        caller. Without a caller of either kind they act for the engine, for example in a thread or in a callback of
        an event loop that the program runs."""
        while frame is not None:
            file = frame.f_code.co_filename
            author = self._authors.get(file)
            if author is None:
                author = self._authors[file] = self._classify(file)
            if author == "library" and file.startswith("<") and frame.f_globals.get("__name__") == "__main__":
                return "program"  # typed, or given with `python -c`
            if author != "library":
                return author
            frame = frame.f_back
        return "engine"

    def _classify(self, file: str) -> Author:
        if file.startswith("<"):
            return "library"
        if file.endswith(_LOOPS):
            return "engine"
        real = os.path.realpath(file)
        if is_within(real, _PACKAGE):
            return "engine"
        return "library" if any(is_within(real, place) for place in self._engine.code) else "program"


def _ask(finder: Any, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    return None if find is None else find(name, path, target)


def guard_imports(engine: EnginePlaces) -> ImportGuard:
    """Return the guard of this process. Install it if there is none."""
    for finder in sys.meta_path:
        if isinstance(finder, ImportGuard):
            return finder
    guard = ImportGuard(engine)
    sys.meta_path.insert(0, guard)
    return guard
