"""Finds the files of a folder with their status: without ignored folders, and never through a link."""

import os
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from treadle.domain.ignore_rules import MAX_IGNORE_FILE_BYTES, SKIPPED_FOLDERS, IgnoreRules
from treadle.domain.private_paths import classify_name

MAX_FILES = 50_000
"""Changes that commands make in a larger folder are not recorded."""
IGNORE_FILES = (".gitignore", ".ignore")
"""The later one takes precedence."""

Signature = tuple[int, int, int, int, int]
"""Mode, size, time of change, time of status change and inode. A folder has its mode only."""


class FolderTooLarge(Exception):
    """The folder has more files than can be watched."""


class ScanStopped(Exception):
    """The process is about to exit."""


class FolderScan(NamedTuple):
    changed: dict[str, Signature]
    """What is there and not known with its signature, by path. The path of a folder ends with a slash."""
    removed: list[str]
    """Known paths at which nothing is any more. What is now left out, or cannot be listed, is not among them."""
    ignored: list[str]
    """Folders that were left out."""


class FolderScanner:
    """Scans one folder again and again. Ignore files are read when they change."""

    def __init__(self, root: str, hidden: Collection[str], is_stopped: Callable[[], bool]) -> None:
        self._root = root.rstrip("/")
        self._hidden = frozenset(hidden)
        """Absolute paths that are left out."""
        self._is_stopped = is_stopped
        self._rules: dict[tuple[str, int, int, int], IgnoreRules] = {}

    def scan(self, known: Mapping[str, Signature | None]) -> FolderScan:
        """Return what differs from known signatures. Raise FolderTooLarge if there are too many files."""
        changed: dict[str, Signature] = {}
        same: set[str] = set()
        ignored: list[str] = []
        unread: list[str] = []
        top = _find_top(Path(self._root or "/"))
        prefix = "" if str(top) == (self._root or "/") else f"{Path(self._root).relative_to(top).as_posix()}/"
        pending = [("", self._read_rules_above(top))]
        while pending:
            under, rules = pending.pop()
            if self._is_stopped():
                raise ScanStopped
            try:
                entries = self._list(under)
            except OSError:  # not permitted any more, or removed meanwhile
                if os.path.lexists(f"{self._root}/{under}"):
                    unread.append(under)
                continue
            if any(entry.name in IGNORE_FILES for entry in entries):
                rules = self._read_rules(rules, f"{self._root}/{under}", prefix + under)
            for entry in entries:
                name = entry.name
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # removed meanwhile
                    continue
                mode = status.st_mode
                path = under + name
                if not stat.S_ISDIR(mode):
                    found = (mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
                elif self._leaves_out(name, path, rules, prefix):
                    ignored.append(f"{path}/")
                    continue
                else:
                    path += "/"
                    found = (mode, 0, 0, 0, 0)
                    pending.append((path, rules))
                if known.get(path) == found:
                    same.add(path)
                elif (name.isascii() or _is_text(name)) and f"{self._root}/{path}" not in self._hidden:
                    changed[path] = found
            if len(changed) + len(same) > MAX_FILES:
                raise FolderTooLarge
        gone = len(same) + sum(path in known for path in changed) < len(known)
        unseen = (*ignored, *unread)
        found_gone = (path for path in known if path not in same and path not in changed) if gone else ()
        removed = [path for path in found_gone if not path.startswith(unseen)]
        return FolderScan(changed, removed, sorted(ignored))

    def _list(self, under: str) -> "list[os.DirEntry[str]]":
        with os.scandir(f"{self._root}/{under}") as entries:
            return list(entries)

    def _leaves_out(self, name: str, path: str, rules: IgnoreRules, prefix: str) -> bool:
        full = f"{self._root}/{path}"
        return (
            name in SKIPPED_FOLDERS
            or full in self._hidden
            or classify_name(name, full) is not None
            or rules.covers(f"{prefix}{path}/")
        )

    def _read_rules_above(self, top: Path) -> IgnoreRules:
        """Return the rules of the folders from the top of the repository down to the one above this."""
        rules, current = IgnoreRules(), top
        for name in Path(self._root or "/").relative_to(top).parts:
            under = "" if current == top else f"{current.relative_to(top).as_posix()}/"
            rules = self._read_rules(rules, f"{current}/", under)
            current /= name
        return rules

    def _read_rules(self, rules: IgnoreRules, folder: str, under: str) -> IgnoreRules:
        for name in IGNORE_FILES:
            try:
                status = os.stat(folder + name)
                key = (folder + name, status.st_mtime_ns, status.st_size, len(rules.files))
                if key not in self._rules:
                    with open(folder + name, "rb") as file:
                        text = file.read(MAX_IGNORE_FILE_BYTES).decode(errors="replace")
                    self._rules[key] = IgnoreRules().with_file(text, under)
                rules = IgnoreRules((*rules.files, *self._rules[key].files))
            except OSError:
                continue
        return rules


def _find_top(folder: Path) -> Path:
    """Return the top of the repository that a folder is in, or the folder itself."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
