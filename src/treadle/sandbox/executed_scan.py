"""Finds the files in writable folders that other programs execute later, so that a sandbox keeps them as they are.

Folders that did not change since the last scan are not read again. The scan goes from the top down and stops after
a number of folders; deeper files of very large trees are neither protected nor reported."""

import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from treadle.domain.executed_files import GIT_FOLDER, find_executed_file, may_be_executed
from treadle.domain.git_files import find_named_paths
from treadle.domain.private_paths import find_private_place
from treadle.domain.writable_places import is_within
from treadle.sandbox.git_programs import read_settings_file

MAX_FOLDERS = 2000
MAX_CACHED_FOLDERS = 20_000
MAX_FOUND = 500
_DEPENDENCIES = frozenset(
    {
        "node_modules", "site-packages", "__pycache__", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
        ".pytest_cache", ".cache",
    }
)  # fmt: skip
"""Folders with code of packages. All of it is executable."""
_ENVIRONMENT_FILE = "pyvenv.cfg"
_GIT_MARKS = frozenset({"HEAD", "objects", "refs"})
_GIT_SETTINGS = ("config", "config.worktree")
_INERT_SUFFIX = ".sample"

Signature = tuple[int, int, int, int]


class ExecutedScan(Struct, frozen=True):
    """What a scan found. Paths are absolute."""

    read_only: tuple[str, ...] = ()
    """Files and folders that commands must not change, whether they exist or not."""
    pinned: tuple[str, ...] = ()
    """Folders that must not be replaced, such as `.git`."""
    settings: Mapping[str, bytes | None] = {}
    """The settings of repositories with their content: git changes them in ordinary work."""
    environments: tuple[str, ...] = ()
    """Virtual environments."""
    signatures: Mapping[str, Signature] = {}
    """What each listed file is, to find the ones that a command has created or replaced."""

    def with_settings(self) -> "ExecutedScan":
        """Return the same with the settings read-only, for programs that run until they are stopped."""
        existing = [path for path, content in self.settings.items() if content is not None]
        return msgspec.structs.replace(self, read_only=(*self.read_only, *existing))

    def list_new(self, before: "ExecutedScan") -> list[str]:
        """Return the files that were created or replaced since an earlier scan."""
        return [
            path
            for path, signature in self.signatures.items()
            if path not in self.settings and before.signatures.get(path) != signature
        ]


NOTHING_EXECUTED = ExecutedScan()


class _Folder(Struct, frozen=True):
    changed: int
    folders: tuple[str, ...]
    found: tuple[str, ...]
    kind: Literal["folder", "repository", "environment"] = "folder"


class ExecutedScanner:
    """Scans folders, and remembers what it has read."""

    def __init__(self) -> None:
        self._known: dict[str, _Folder] = {}

    def scan(self, roots: Sequence[str], excluded: Sequence[str]) -> ExecutedScan:
        """Return the listed files in these folders, without those in excluded folders."""
        collected = _Collected(roots)
        queue = deque(roots)
        count = 0
        while queue and count < MAX_FOLDERS and len(collected.signatures) < MAX_FOUND:
            path = queue.popleft()
            count += 1
            folder = self._read(path)
            if folder is None:
                continue
            if folder.kind == "repository":
                collected.add_repository(path)
                continue
            if folder.kind == "environment":
                collected.environments.append(path)
            for each in folder.found:
                if not any(is_within(each, place) for place in excluded):
                    collected.add(each)
            queue.extend(each for each in folder.folders if not any(is_within(each, place) for place in excluded))
        return collected.finish()

    def _read(self, path: str) -> _Folder | None:
        try:
            changed = os.stat(path, follow_symlinks=False).st_ctime_ns
            known = self._known.get(path)
            if known is None or known.changed != changed:
                if len(self._known) >= MAX_CACHED_FOLDERS:
                    self._known.clear()
                known = self._known[path] = _read_folder(path, changed)
        except OSError:
            return None
        return known


def _read_folder(path: str, changed: int) -> _Folder:
    with os.scandir(path) as listed:
        entries = list(listed)
    names = {entry.name for entry in entries}
    if names >= _GIT_MARKS:
        return _Folder(changed, (), (), "repository")
    if _ENVIRONMENT_FILE in names:
        return _Folder(changed, (), tuple(_list_start_files(path)), "environment")
    folders: list[str] = []
    found: list[str] = []
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if may_be_executed(entry.name) and not (is_folder and entry.name == GIT_FOLDER):
            match = find_executed_file(entry.path)
            if match is not None and match.path == entry.path:
                found.append(entry.path)
                continue
        if is_folder and entry.name not in _DEPENDENCIES and not _is_private(entry.path):
            folders.append(entry.path)
    return _Folder(changed, tuple(folders), tuple(each for each in found if not _is_private(each)))


def _is_private(path: str) -> bool:
    place = find_private_place(path)
    return place is not None and place.kind == "credentials"


def _list_start_files(environment: str) -> list[str]:
    """Return the files of a virtual environment that Python executes at its start."""
    folders = Path(environment).glob("lib*/python*/site-packages")
    return [entry.path for folder in folders for entry in os.scandir(folder) if find_executed_file(entry.path)]


class _Collected:
    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self.signatures: dict[str, Signature] = {}
        self.environments: list[str] = []
        self._read_only: dict[str, None] = {}
        self._pinned: dict[str, None] = {}
        self._settings: dict[str, bytes | None] = {}

    def add(self, path: str) -> None:
        """Add a listed file or folder. Those of a virtual environment stay writable, since package managers change
        them."""
        self._sign(path)
        if os.path.islink(path):
            path = os.path.realpath(path)  # a link itself cannot be protected; a new one is reported
            if os.path.exists(os.path.join(path, "HEAD")):
                self.add_repository(path)
                return
        if "/site-packages/" not in path:
            self._read_only[path] = None
            match = find_executed_file(path)
            if match is not None:
                self._pin(match.path, match.name.count("/"))

    def add_repository(self, path: str) -> None:
        """Add the hooks and settings of a repository, of its submodules and of its worktrees.

        A repository below the top that has no hooks, such as a clone that the agent has made, can be removed
        again. New hooks in it are reported."""
        hooks = os.path.realpath(os.path.join(path, "hooks"))
        active = [os.path.join(hooks, name) for name in _list_names(hooks) if not name.endswith(_INERT_SUFFIX)]
        for hook in active:
            self._sign(hook)
        if active or os.path.dirname(path) in self._roots or path in self._roots:
            self._pinned[path] = None
            self._read_only[hooks] = None
        top = os.path.dirname(path)
        for name in _GIT_SETTINGS:
            file = os.path.join(path, name)
            content = self._settings[file] = read_settings_file(file)
            self._sign(file)
            for named in find_named_paths(content or b""):
                place = os.path.realpath(os.path.join(top if named.kind == "hooks" else path, named.path))
                self._sign(place)
                if (named.kind == "hooks" or os.path.exists(place)) and not is_within(path, place):
                    self._read_only[place] = None
        self._add_modules(os.path.join(path, "modules"))
        self._add_worktrees(os.path.join(path, "worktrees"))

    def _add_worktrees(self, folder: str) -> None:
        for each in Path(folder).glob("*/config.worktree"):
            self._settings[str(each)] = read_settings_file(str(each))

    def _add_modules(self, folder: str) -> None:
        """Add the repositories of submodules, whose names may contain slashes."""
        try:
            with os.scandir(folder) as listed:
                folders = [entry.path for entry in listed if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
        for each in folders:
            if os.path.exists(os.path.join(each, "HEAD")):
                self.add_repository(each)
            else:
                self._add_modules(each)

    def _pin(self, path: str, levels: int) -> None:
        for _ in range(levels):
            path = os.path.dirname(path)
            self._pinned[path] = None

    def _sign(self, path: str) -> None:
        try:
            found = os.lstat(path)
        except OSError:
            return
        is_folder = os.path.isdir(path) and not os.path.islink(path)
        changed, size = (0, 0) if is_folder else (found.st_mtime_ns, found.st_size)
        self.signatures[path] = (found.st_dev, found.st_ino, changed, size)

    def finish(self) -> ExecutedScan:
        """Return what was found inside the roots: a link or a setting may lead out of them."""
        roots = self._roots
        return ExecutedScan(
            tuple(path for path in self._read_only if is_inside(path, roots)),
            tuple(path for path in self._pinned if is_inside(path, roots)),
            {path: content for path, content in self._settings.items() if is_inside(path, roots)},
            tuple(self.environments),
            self.signatures,
        )


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def is_inside(path: str, roots: Sequence[str]) -> bool:
    """Return whether a path is in one of these folders, and is none of them."""
    return path not in roots and any(is_within(path, root) for root in roots)
