"""The entry points of installed packages.

A start of `treadle run` must look for plugins, and nearly always there are none. Python's own reader of package
metadata costs 35 ms of CPU for that answer (17 for its import, 18 to read everything), a look at the files 2 ms."""

import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def find_entry_points(group: str) -> "list[EntryPoint]":
    """Return the entry points of a group, sorted by name. Their code is not imported."""
    if not _may_be_declared(group):
        return []
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda point: point.name)


def _may_be_declared(group: str) -> bool:
    """Return whether a package declares the group, or packages come from elsewhere than folders."""
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return True
    mark = f"[{group}]".encode()
    return any(_declares(folder or os.curdir, mark) for folder in sys.path)


def _declares(folder: str, mark: bytes) -> bool:
    try:
        names = os.listdir(folder)
    except NotADirectoryError:
        return True  # an archive
    except OSError:
        return False
    return any(_contains(f"{folder}/{name}/entry_points.txt", mark) for name in names if name.endswith("-info"))


def _contains(path: str, mark: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return mark in file.read()
    except OSError:
        return False
