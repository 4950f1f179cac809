"""The format of patches that some models are trained on: sections for files, with hunks of lines.

    *** Begin Patch
    *** Update File: src/app.py
    *** Move to: src/main.py
    @@ def main():
     unchanged line
    -old line
    +new line
    *** Add File: notes.txt
    +one line
    *** Delete File: old.txt
    *** End Patch

Text after `@@` is a line of the file above the hunk, such as the head of a function. Line numbers do not occur."""

import re
from collections import Counter
from posixpath import normpath
from typing import Literal, NamedTuple

from msgspec import Struct

BEGIN, END = "*** Begin Patch", "*** End Patch"
_UPDATE, _ADD, _DELETE = "*** Update File:", "*** Add File:", "*** Delete File:"
_MOVE, _END_OF_FILE = "*** Move to:", "*** End of File"
_HUNK = "@@"
_HERE_DOCUMENT = re.compile(r"(?:cat\s*|apply_?patch\s*)?<<-?\s*['\"]?(\w+)['\"]?(?:\s*\|\s*apply_?patch)?")
"""The opening of a patch that is written as a command. One that changes the folder first is not accepted."""
LineKind = Literal[" ", "-", "+"]


class PatchLine(NamedTuple):
    kind: LineKind
    text: str


class Hunk(Struct, frozen=True):
    """Lines to find in a file, and what they become."""

    line: int
    """The line of the patch at which it begins."""
    lines: tuple[PatchLine, ...]
    anchors: tuple[str, ...] = ()
    """Lines of the file above it, from the outermost."""
    is_at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [text for kind, text in self.lines if kind != "+"]

    @property
    def new(self) -> list[str]:
        return [text for kind, text in self.lines if kind != "-"]


class UpdateFile(Struct, frozen=True):
    path: str
    hunks: tuple[Hunk, ...]
    move_to: str | None = None


class AddFile(Struct, frozen=True):
    path: str
    content: str


class DeleteFile(Struct, frozen=True):
    path: str


FilePatch = UpdateFile | AddFile | DeleteFile


class PatchFault(ValueError):
    """A text is not a patch. The message says why, for the model."""


def parse_patch(text: str) -> tuple[FilePatch, ...]:
    """Return the changes of a patch, one for each file. Raise PatchFault if it is invalid."""
    return _join_updates(_Parser(text).parse())


def list_patch_paths(text: str) -> tuple[str, ...] | None:
    """Return every path that a patch touches, or None if it is not a valid patch."""
    try:
        patches = parse_patch(text)
    except PatchFault:
        return None
    return tuple([path for patch in patches for path in list_paths(patch)])


def list_paths(patch: FilePatch) -> tuple[str, ...]:
    """Return the paths that a change of one file touches."""
    if isinstance(patch, UpdateFile) and patch.move_to is not None:
        return patch.path, patch.move_to
    return (patch.path,)


def _join_updates(patches: list[FilePatch]) -> tuple[FilePatch, ...]:
    """Return the changes with several updates of one file as one. Raise PatchFault if a path is used twice
    otherwise."""
    joined: dict[str, FilePatch] = {}
    for patch in patches:
        name = normpath(patch.path)
        known = joined.get(name)
        if isinstance(known, UpdateFile) and isinstance(patch, UpdateFile) and known.move_to is None:
            joined[name] = UpdateFile(known.path, (*known.hunks, *patch.hunks), patch.move_to)
        elif known is not None:
            raise PatchFault(f"{patch.path} is changed twice. Give each file one section.")
        else:
            joined[name] = patch
    names = Counter(normpath(path) for patch in joined.values() for path in list_paths(patch))
    for name, count in names.items():
        if count > 1:
            raise PatchFault(f"{name} is changed twice. Give each file one section.")
        parent = next((folder for folder in _list_folders(name) if folder in names), None)
        if parent is not None:
            raise PatchFault(f"{parent} cannot be a file and the folder of {name}. Use another path.")
    return tuple(joined.values())


def _list_folders(path: str) -> list[str]:
    """Return the folders of a path, from the outermost."""
    return [path[:at] for at, character in enumerate(path) if at and character == "/"]


class _Parser:
    def __init__(self, text: str) -> None:
        self._lines = _strip_wrapper(text)
        self._at = 0

    def parse(self) -> list[FilePatch]:
        if not self._lines or self._lines[0].strip() != BEGIN:
            raise PatchFault(f"The first line of a patch must be `{BEGIN}`.")
        self._at = 1
        patches: list[FilePatch] = []
        while (line := self._peek()) is not None and line.strip() != END:
            if not line.strip():
                self._at += 1
                continue
            patches.append(self._parse_file(line))
        if self._peek() is None:
            raise PatchFault(f"The last line of a patch must be `{END}`: this one may have been cut off.")
        if any(line.strip() for line in self._lines[self._at + 1 :]):
            self._at += 1
            raise self._make_fault(f"nothing may follow `{END}`")
        if not patches:
            raise PatchFault("The patch changes no file.")
        return patches

    def _peek(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _make_fault(self, reason: str) -> PatchFault:
        line = self._lines[min(self._at, len(self._lines) - 1)]
        return PatchFault(f"Line {self._at + 1} of the patch is wrong: {reason}. It is: {line[:200]}")

    def _parse_file(self, line: str) -> FilePatch:
        for start in (_UPDATE, _ADD, _DELETE):
            if line.startswith(start):
                path = line.removeprefix(start).strip()
                if not path:
                    raise self._make_fault("the path is missing")
                self._at += 1
                if start == _UPDATE:
                    return self._parse_update(path)
                return self._parse_added(path) if start == _ADD else DeleteFile(path)
        raise self._make_fault(f"a section begins with `{_UPDATE}`, `{_ADD}` or `{_DELETE}` and a path")

    def _parse_added(self, path: str) -> AddFile:
        lines: list[str] = []
        while (line := self._peek()) is not None and not line.startswith("*** "):
            if line.startswith("+"):
                lines.append(line[1:])
            elif line.strip():
                raise self._make_fault(f"each line of {path}, which is added, begins with +")
            self._at += 1
        return AddFile(path, "".join(f"{line}\n" for line in lines))

    def _parse_update(self, path: str) -> UpdateFile:
        move_to: str | None = None
        if (line := self._peek()) is not None and line.startswith(_MOVE):
            move_to = line.removeprefix(_MOVE).strip()
            if not move_to:
                raise self._make_fault("the path is missing")
            self._at += 1
        hunks: list[Hunk] = []
        while (line := self._peek()) is not None and not self._is_section(line):
            hunks.append(self._parse_hunk())
        hunks = [hunk for hunk in hunks if hunk.lines]
        if not hunks and move_to is None:
            self._at -= 1
            raise self._make_fault(f"the section of {path} changes nothing")
        return UpdateFile(path, tuple(hunks), move_to)

    @staticmethod
    def _is_section(line: str) -> bool:
        return line.startswith("*** ") and line.strip() != _END_OF_FILE

    def _parse_hunk(self) -> Hunk:
        start, anchors = self._at + 1, list[str]()
        while (line := self._peek()) is not None and line.startswith(_HUNK):
            if anchor := _read_anchor(line):
                anchors.append(anchor)
            self._at += 1
        lines: list[PatchLine] = []
        is_at_end = False
        while (line := self._peek()) is not None and not line.startswith(_HUNK) and not self._is_section(line):
            self._at += 1
            if line.strip() == _END_OF_FILE:
                is_at_end = True
                break
            lines.append(self._parse_line(line))
        while lines and lines[-1] == PatchLine(" ", "") and self._lines[self._at - 1] == "":
            lines.pop()  # blank lines between two sections
            self._at -= 1
        self._at += self._count_blank_lines()
        return Hunk(start, tuple(lines), tuple(anchors), is_at_end)

    def _count_blank_lines(self) -> int:
        count = 0
        while self._at + count < len(self._lines) and self._lines[self._at + count] == "":
            count += 1
        return count

    def _parse_line(self, line: str) -> PatchLine:
        if not line:
            return PatchLine(" ", "")
        kind = line[0]
        if kind == " " or kind == "-" or kind == "+":
            return PatchLine(kind, line[1:])
        if kind == "\t":  # the space before a line of the file was left out
            return PatchLine(" ", line)
        self._at -= 1
        raise self._make_fault("each line of a hunk begins with a space, - or +")


def _read_anchor(line: str) -> str:
    """Return the line of the file that a hunk names, or an empty text for a mark alone or one with line numbers."""
    text = line.removeprefix(_HUNK)
    if text.strip().startswith("-") and text.rstrip().endswith(_HUNK):
        return ""
    return text.removeprefix(" ").rstrip().removesuffix(_HUNK).rstrip()


def _strip_wrapper(text: str) -> list[str]:
    """Return the lines of a patch without blank lines, a code fence or a here-document around it."""
    lines = [line.removesuffix("\r") for line in text.strip("\r\n").split("\n")]
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) < 2 or lines[0].strip() == BEGIN:
        return lines
    opening, closing = lines[0].strip(), lines[-1].strip()
    is_fenced = opening.startswith("```") and closing == "```"
    here_document = _HERE_DOCUMENT.fullmatch(opening)
    return lines[1:-1] if is_fenced or (here_document is not None and closing == here_document[1]) else lines
