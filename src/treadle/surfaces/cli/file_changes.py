"""The change that a tool call makes to a file, as a diff. Every view of a call takes it from here."""

import re
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

DIFF_CONTEXT = 3
"""Unchanged lines around a change."""
MAX_COMPARED_BYTES = 1_000_000
"""A larger file is not compared; the call is shown instead."""
FILE_TOOLS = ("edit_file", "write_file")
PATCH_ARGUMENTS = ("patch", "diff")
"""Arguments of other tools that hold a diff."""
UNKNOWN_PLACE = "@@ … @@"
_IS_DIFF = re.compile(r"^(@@ |diff --git |\*\*\* (Begin Patch|Update File|Add File|Delete File))", re.MULTILINE)


class FileChange(Struct, frozen=True):
    """A change that a call asks for."""

    facts: dict[str, Any]
    """The arguments that are not in the diff: the path, and options."""
    lines: list[str]
    """The lines of the diff, without the names of files before them."""


def find_change(tool: str, values: Mapping[str, Any] | None, folder: Path | None) -> FileChange | None:
    """Return the change that a call makes to a file of a folder; None if the call is not such a change, or the file
    cannot be compared. Without a folder the file is not read, and the diff does not say where the change is."""
    if not values:
        return None
    if tool not in FILE_TOOLS:
        return _find_patch(values)
    path, new = values.get("path"), values.get("new" if tool == "edit_file" else "content")
    if not isinstance(path, str) or not isinstance(new, str):
        return None
    now = None if folder is None else _read_text(folder / path)
    if folder is not None and now is None:
        return None
    if tool == "write_file":
        old, place_known, used = now or "", folder is not None, ("content",)
    else:
        given = values.get("old")
        if not isinstance(given, str):
            return None
        found = None if now is None else _apply_edit(now, given, new, every=bool(values.get("all")))
        old, new = found or (given, new)
        place_known, used = found is not None, ("old", "new")
    lines = list(_compare(old, new) if place_known else _compare_parts(old, new))
    facts = {name: value for name, value in values.items() if name not in used}
    return FileChange(facts, lines) if lines else None


def _find_patch(values: Mapping[str, Any]) -> FileChange | None:
    for name in PATCH_ARGUMENTS:
        text = values.get(name)
        if isinstance(text, str) and _IS_DIFF.search(text):
            facts = {other: value for other, value in values.items() if other != name}
            return FileChange(facts, text.removesuffix("\n").split("\n"))
    return None


def _apply_edit(now: str, old: str, new: str, *, every: bool) -> tuple[str, str] | None:
    """Return the text of the file before and after an edit; None if the place is missing or not unique. As the tool
    does, the edit takes the line endings of the file."""
    if "\r\n" in now and old not in now:
        now, old, new = (text.replace("\r\n", "\n") for text in (now, old, new))
    count = now.count(old) if old else 0
    return (now, now.replace(old, new)) if count == 1 or (count and every) else None


def _compare(old: str, new: str) -> Iterator[str]:
    """Yield the lines of a diff of two files. A last line without a line break is marked, as diffs do."""
    lines = unified_diff(_split_lines(old), _split_lines(new), lineterm="", n=DIFF_CONTEXT)
    for line in islice(lines, 2, None):  # without the names of the files
        yield line.removesuffix("\n")
        if not line.startswith("@@") and not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _compare_parts(old: str, new: str) -> Iterator[str]:
    """Yield the lines of a diff of parts of a file. Their place and what follows them are not known."""
    ended = (f"{text.removesuffix(chr(10))}\n" if text else "" for text in (old, new))
    for index, line in enumerate(_compare(*ended)):
        if not line.startswith("@@"):
            yield line
        elif index:
            yield UNKNOWN_PLACE


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text with their line breaks."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _read_text(path: Path) -> str | None:
    """Return the text of a file, empty if there is none; None if it cannot be compared."""
    try:
        if not path.exists():
            return ""
        if not path.is_file() or path.stat().st_size > MAX_COMPARED_BYTES:
            return None
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError, ValueError):
        return None
