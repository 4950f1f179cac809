"""Walks through the files of a folder: in order, bounded, stoppable, and never through a link."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import PurePosixPath
from stat import S_ISDIR
from threading import Event
from typing import Literal, NamedTuple

from treadle.domain.ignore_rules import SKIPPED_FOLDERS, IgnoreRules
from treadle.ports.tool import ToolError
from treadle.tools.files.ignore_files import read_ignore_file
from treadle.tools.files.name_display import display_name
from treadle.tools.files.private_files import NO_PRIVACY
from treadle.tools.files.workspace import CURRENT_FOLDER, OPEN_FOLDER_FLAGS, OpenPath, OpenWorkspace

_MAX_ENTRIES = 200_000
_MAX_ENTRIES_PER_FOLDER = 50_000
_MAX_DEPTH = 60
_MAX_NAMED_FOLDERS = 5
"""How many skipped folders are named."""
EntryKind = Literal["folder", "file", "other", "private"]
"""private: it exists, but is not examined."""


class FolderEntry(NamedTuple):
    place: OpenPath
    kind: EntryKind


class FolderWalk:
    """One search through the workspace. Afterwards it reports what it left out, and why."""

    def __init__(self, stopped: Event) -> None:
        """`stopped` is set when the caller stops waiting. Apart from that only counts limit the search, never
        time, so that a busy machine finds the same."""
        self._stopped = stopped
        self._entry_count = 0
        self._skipped: list[str] = []
        self._private: list[str] = []
        self._workspace: OpenWorkspace | None = None
        self.cut: str | None = None
        """Why the walk ended early."""

    @contextmanager
    def start(self, workspace: OpenWorkspace, path: str) -> Generator[tuple[str, Iterator[FolderEntry]]]:
        """Yield the common prefix of all paths, and the entries at this path."""
        with workspace.locate(path) as place:
            found = place.status()
            if found is None:
                raise ToolError(f"{display_name(place.path)} is not there. Search in `.` or in a folder that is.")
            if not S_ISDIR(found.st_mode):
                yield "", iter([FolderEntry(place, "file")])
                return
            start = "" if place.path == CURRENT_FOLDER else f"{place.path}/"
        self._workspace = workspace
        with workspace.folder(path) as folder:
            yield start, self._entries(folder, start, self._rules_above(workspace, start), 0)

    def is_over(self) -> bool:
        """Return whether to stop."""
        if self.cut is None and self._stopped.is_set():
            self.cut = "it was stopped"
        return self.cut is not None

    def notes(self, found: str) -> list[str]:
        """Return notes for the model about what was not searched."""
        notes = [] if self.cut is None else [f"[cut: {self.cut}. There may be {found}: narrow the search]"]
        if self._skipped:
            notes.append(
                f"[ignored folders, not searched: {_list_paths(self._skipped)}; give one as path to search it]"
            )
        if self._private:
            notes.append(
                f"[private places, not searched: {_list_paths(self._private)}; naming one as path asks for "
                "approval]"
            )
        return notes

    def note_private(self, entry: FolderEntry) -> None:
        """Record a private place that the search would have included."""
        self._private.append(entry.place.path)

    def _rules_above(self, workspace: OpenWorkspace, start: str) -> IgnoreRules:
        rules = IgnoreRules()
        if not start:
            return rules
        for above in reversed(PurePosixPath(start).parents):
            with suppress(ToolError), workspace.folder(str(above)) as folder:  # a private folder has no influence
                rules = read_ignore_file(rules, folder, "" if str(above) == CURRENT_FOLDER else f"{above}/")
        return rules

    def _entries(self, folder: int, under: str, rules: IgnoreRules, depth: int) -> Iterator[FolderEntry]:
        rules = read_ignore_file(rules, folder, under)
        for name, kind in self._list_folder(folder):
            self._entry_count += 1
            if self._entry_count > _MAX_ENTRIES:
                self.cut = f"there are more than {_MAX_ENTRIES:,} files and folders"
            if self.is_over():
                return
            path = under + name
            if self._is_private(name, path):
                yield FolderEntry(OpenPath(folder, name, f"{path}/" if kind == "folder" else path), "private")
            elif kind == "folder" and (name in SKIPPED_FOLDERS or rules.covers(f"{path}/")):
                self._skipped.append(f"{path}/")
            elif kind == "folder":
                yield FolderEntry(self._place(folder, name, path), kind)
                yield from self._walk_folder(folder, name, path, rules, depth)
            elif not rules.covers(path) and not self._is_hidden(name, folder):
                yield FolderEntry(self._place(folder, name, path), kind)

    def _place(self, folder: int, name: str, path: str) -> OpenPath:
        return OpenPath(folder, name, path, NO_PRIVACY if self._workspace is None else self._workspace.privacy)

    def _is_private(self, name: str, path: str) -> bool:
        return self._workspace is not None and self._workspace.privacy.covers(name, path)

    def _is_hidden(self, name: str, folder: int) -> bool:
        return self._workspace is not None and self._workspace.is_hidden(name, folder)

    def _walk_folder(
        self, folder: int, name: str, path: str, rules: IgnoreRules, depth: int
    ) -> Iterator[FolderEntry]:
        if depth == _MAX_DEPTH:
            self.cut = f"{display_name(path)} is more than {_MAX_DEPTH} folders deep"
            return
        try:
            descriptor = os.open(name, OPEN_FOLDER_FLAGS, dir_fd=folder)
        except OSError:  # removed meanwhile, or not readable
            return
        try:
            if self._workspace is not None and self._workspace.is_hidden_folder(descriptor):
                return
            yield from self._entries(descriptor, f"{path}/", rules, depth + 1)
        finally:
            os.close(descriptor)

    def _list_folder(self, folder: int) -> list[tuple[str, EntryKind]]:
        """Return the entries of a folder in an order that sorts the full paths."""
        try:
            with os.scandir(folder) as listed:
                found: list[tuple[str, EntryKind]] = [
                    (entry.name, _entry_kind(entry)) for entry in islice(listed, _MAX_ENTRIES_PER_FOLDER + 1)
                ]
        except OSError:
            return []
        if len(found) > _MAX_ENTRIES_PER_FOLDER:
            self.cut = f"a folder holds more than {_MAX_ENTRIES_PER_FOLDER:,} files"
        return sorted(found, key=lambda item: f"{item[0]}/" if item[1] == "folder" else item[0])


def _list_paths(paths: list[str]) -> str:
    named = ", ".join(display_name(path) for path in paths[:_MAX_NAMED_FOLDERS])
    return named + (f" and {len(paths) - _MAX_NAMED_FOLDERS} more" if len(paths) > _MAX_NAMED_FOLDERS else "")


def _entry_kind(entry: "os.DirEntry[str]") -> EntryKind:
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
