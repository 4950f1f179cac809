"""Completion of commands and file names in the message."""

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

MAX_SHOWN = 8
MAX_FILES = 20_000
SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".ruff_cache"}
)
_MENTION = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")


class Suggestion(NamedTuple):
    """A text that completes what was typed."""

    text: str
    help: str = ""


class Completion(NamedTuple):
    """The suggestions for the text before the cursor, and how much of it they replace."""

    typed: str
    suggestions: Sequence[Suggestion]


def find_mention(before: str) -> str | None:
    """Return what was typed after an `@` at the cursor."""
    found = _MENTION.search(before)
    return None if found is None else found[1]


def rank(query: str, names: Sequence[str], limit: int = MAX_SHOWN) -> list[str]:
    """Return the names that contain the letters of a query in order, the best first."""
    if not query:
        return sorted(names, key=lambda name: (name.count("/"), name))[:limit]
    wanted = query.lower()
    scored: list[tuple[tuple[int, int, int, str], str]] = []
    for name in names:
        score = _score(wanted, name.lower())
        if score is not None:
            scored.append(((*score, name), name))
    scored.sort()
    return [name for _, name in scored[:limit]]


def _score(query: str, name: str) -> tuple[int, int, int] | None:
    """Return how well a name fits, the lowest best; None if it does not."""
    base = name.rpartition("/")[2]
    if base.startswith(query):
        return 0, len(base), len(name)
    if (at := base.find(query)) >= 0:
        return 1, at, len(name)
    if (at := name.find(query)) >= 0:
        return 2, at, len(name)
    position = gaps = 0
    for letter in query:
        found = name.find(letter, position)
        if found < 0:
            return None
        gaps += found - position
        position = found + 1
    return 3, gaps, len(name)


def list_files(folder: Path) -> list[str]:
    """Return the files of a folder that its ignore file does not name, as relative paths.

    Git is not asked: the settings of a repository can name programs that it runs."""
    found: list[str] = []
    ignored = _read_ignore_file(folder)
    for root, folders, files in os.walk(folder):
        under = os.path.relpath(root, folder)
        prefix = "" if under == "." else f"{under}/"
        folders[:] = sorted(n for n in folders if n not in SKIPPED and not _is_ignored(f"{prefix}{n}", n, ignored))
        found += [
            f"{prefix}{n}" for n in sorted(files) if n.isprintable() and not _is_ignored(f"{prefix}{n}", n, ignored)
        ]
        if len(found) >= MAX_FILES:
            break
    return found[:MAX_FILES]


def _read_ignore_file(folder: Path) -> list[str]:
    try:
        rows = (folder / ".gitignore").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [row.strip().rstrip("/") for row in rows if row.strip() and not row.startswith(("#", "!"))]


def _is_ignored(path: str, name: str, patterns: Sequence[str]) -> bool:
    for pattern in patterns:
        if "/" in pattern.strip("/"):
            if fnmatchcase(path, pattern.lstrip("/")):
                return True
        elif fnmatchcase(name, pattern.lstrip("/")):
            return True
    return False
