"""The change that a tool call makes to a file, as a diff. Every view of a call takes it from here."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.edits.file_text import decode_text, find_newline, has_binary_bytes
from treadle.domain.edits.patch import HunkFault, apply_hunks
from treadle.domain.edits.patch_format import AddFile, DeleteFile, PatchFault, UpdateFile, parse_patch
from treadle.domain.edits.text_edits import EditFault, TextEdit, apply_edits

DIFF_CONTEXT = 3
"""Unchanged lines around a change."""
MAX_COMPARED_BYTES = 1_000_000
"""A larger file is not compared; the call is shown instead."""
FILE_TOOLS, PATCH_TOOL = ("edit_file", "write_file"), "apply_patch"
CHANGE_ARGUMENTS = ("old", "new", "edits", "content")
"""Arguments of these tools that the diff shows."""
PATCH_ARGUMENTS = ("patch", "diff", "input")
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
    """Return the change that a call makes to files of a folder; None if the call is not such a change, or a file
    cannot be compared. Without a folder no file is read, and the diff does not say where the change is."""
    if not values:
        return None
    if tool == PATCH_TOOL and folder is not None and (lines := _compare_patched(values, folder)):
        return FileChange({name: value for name, value in values.items() if name != "input"}, lines)
    if tool not in FILE_TOOLS:
        return _find_patch(values)
    path = values.get("path")
    now = None if folder is None or not isinstance(path, str) else _read_text(folder / path)
    if not isinstance(path, str) or (folder is not None and now is None):
        return None
    change = _find_written(values, now) if tool == "write_file" else _find_edited(values, now)
    if change is None:
        return None
    facts = {name: value for name, value in values.items() if name not in CHANGE_ARGUMENTS}
    return FileChange(facts, change) if change else None


def _find_written(values: Mapping[str, Any], now: str | None) -> list[str] | None:
    content = values.get("content")
    if not isinstance(content, str):
        return None
    return list(_compare_parts("", content) if now is None else _compare(now, content))


def _find_edited(values: Mapping[str, Any], now: str | None) -> list[str] | None:
    """Return the diff of the edits as the tool would apply them; of their texts if it would not."""
    edits = read_edits(values)
    if not edits:
        return None
    if now is not None:
        with suppress(EditFault):
            return list(_compare(now, apply_edits(now, edits).text))
    return [line for edit in edits for line in _compare_parts(edit.old, edit.new)]


def read_edits(values: Mapping[str, Any]) -> list[TextEdit]:
    """Return the edits of a call, or none if they are invalid."""
    listed: Any = values.get("edits") or [values]
    try:
        return msgspec.convert(listed, list[TextEdit])
    except msgspec.ValidationError:
        return []


def _compare_patched(values: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the diffs of all files of a patch, each below its name; none if the patch does not apply."""
    lines: list[str] = []
    try:
        for patch in parse_patch(str(values.get("input"))):
            now = "" if isinstance(patch, AddFile) else _read_text(folder / patch.path)
            if now is None:
                return []
            match patch:
                case AddFile(path, content):
                    head, after = f"*** Add File: {path}", content
                case DeleteFile(path):
                    head, after = f"*** Delete File: {path}", ""
                case UpdateFile(path, hunks, move_to):
                    moved = "" if move_to is None else f"\n*** Move to: {move_to}"
                    head, after = f"*** Update File: {path}{moved}", apply_hunks(now, hunks).text
            lines += [*head.split("\n"), *_compare(now, after)]
    except (PatchFault, HunkFault):
        return []
    return lines


def _find_patch(values: Mapping[str, Any]) -> FileChange | None:
    for name in PATCH_ARGUMENTS:
        text = values.get(name)
        if isinstance(text, str) and _IS_DIFF.search(text):
            facts = {other: value for other, value in values.items() if other != name}
            return FileChange(facts, text.removesuffix("\n").split("\n"))
    return None


def _compare(old: str, new: str) -> Iterator[str]:
    """Yield the lines of a diff of two files. A last line without a line break is marked, as diffs do. Line ends of
    Windows are shown only if they change."""
    if find_newline(old) == find_newline(new) == "CRLF":
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
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
        data = path.read_bytes()
        return None if has_binary_bytes(data) else decode_text(data).text
    except (OSError, ValueError):
        return None
