"""Packages of the engine that share their files with an environment in the workspace.

Some installers (uv) link the files of an installed package to a cache. Two environments with the same package then
share its files, and a command that changes a file in place in one environment changes it in both. Such packages of
the engine get files of their own, with the same content."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

PACKAGE_FOLDERS = ("site-packages", "dist-packages")
CACHES = (".cache/uv", ".cache/pip")
"""Caches of installers in a home, whose files environments may share."""


class LinkedPackages:
    """The packages of the engine that may share files with others."""

    def __init__(self, places: Sequence[str]) -> None:
        """`places` are those from which the engine loads code."""
        self._folders = [place for place in places if os.path.basename(place) in PACKAGE_FOLDERS]
        self._separate: set[str] = set()
        self._known: set[tuple[str, int]] = set()

    def separate(self, roots: Iterable[str], environments: Iterable[str]) -> None:
        """Give the packages of the engine files of their own where a folder that commands can write has the same
        packages."""
        for root in roots:
            if any(os.path.isdir(os.path.join(root, cache)) for cache in CACHES):
                for folder in self._folders:
                    self._separate_packages(folder, _list_names(folder))
        for environment in environments:
            for packages in Path(environment).glob("lib*/python*/site-packages"):
                self._separate_common(str(packages))

    def _separate_common(self, packages: str) -> None:
        with suppress(OSError):
            mark = (packages, os.stat(packages).st_ctime_ns)
            if mark in self._known:
                return
            self._known.add(mark)
            names = set(_list_names(packages))
            for folder in self._folders:
                if folder != packages:
                    self._separate_packages(folder, names.intersection(_list_names(folder)))

    def _separate_packages(self, folder: str, names: Iterable[str]) -> None:
        for name in names:
            path = os.path.join(folder, name)
            if path not in self._separate:
                self._separate.add(path)
                for file in _list_linked(path):
                    _copy(file)


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _list_linked(path: str) -> Iterator[str]:
    """Yield the files of a package that have more than one name."""
    if not os.path.isdir(path):
        files: Iterable[str] = (path,)
    else:
        files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    for file in files:
        with suppress(OSError):
            found = os.lstat(file)
            if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
                yield file


def _copy(file: str) -> None:
    """Replace a file with a copy of itself. A file that cannot be replaced belongs to another user, whose files no
    command of this user can change."""
    with suppress(OSError):
        folder, name = os.path.split(file)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name[:40]}.", dir=folder)
        os.close(descriptor)
        try:
            shutil.copy2(file, temporary)
            os.replace(temporary, file)
        except BaseException:
            os.unlink(temporary)
            raise
