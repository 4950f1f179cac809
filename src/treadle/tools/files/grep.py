"""`grep`: finds lines of files that match a regular expression."""

import asyncio
import os
from collections.abc import Callable, Iterator
from itertools import islice
from threading import Event
from typing import Annotated

from msgspec import Meta, Struct

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.folder_walk import FolderEntry, FolderWalk
from treadle.tools.files.glob import compile_glob
from treadle.tools.files.line_matches import LineMatcher, render_matches
from treadle.tools.files.name_display import display_name
from treadle.tools.files.regex import BadExpression, Expression
from treadle.tools.files.text import find_binary_kind, read_bytes
from treadle.tools.files.workspace import OpenPath, open_call_workspace
from treadle.tools.function import tool

MAX_LINES = 500
MAX_FILES = 1000
MAX_CHARACTERS = 60_000
_BLOCK_BYTES = 4_000_000
"""How many bytes are searched at once."""
_MAX_BYTES = 1_000_000_000
_PLAIN_PATTERN_INSTRUCTIONS = 200
"""Instructions of a plain compiled pattern. A pattern with n times as many may search one n-th of the bytes."""
_LINE_COST_BYTES = 100
"""The cost of examining one line in addition to its bytes, in bytes."""


class GrepRequest(Struct, frozen=True):
    """What to search for, and how to show it."""

    expression: LineMatcher
    names: Expression | None
    anywhere: bool
    """The name pattern has no slash, so it is matched against the file name alone."""
    context_lines: int
    files_only: bool
    counts: bool = False

    def includes(self, path: str) -> bool:
        if self.names is None:
            return True
        return self.names.matches(path.rpartition("/")[2] if self.anywhere else path)


@tool(effect="read", repeatable=True, paths=("path",), needs=("workspace",))
async def grep(
    pattern: str,
    context: ToolContext,
    path: str = ".",
    glob: str | None = None,
    ignore_case: bool = False,
    context_lines: Annotated[int, Meta(ge=0, le=20)] = 0,
    files_only: bool = False,
    count: bool = False,
) -> str:
    """Search files for a regular expression (RE2).

    Args:
        pattern: Regular expression.
        path: File or folder to search.
        glob: Only such files: `*.py`.
        ignore_case: Ignore case.
        context_lines: Lines to show around each match.
        files_only: Return only file names.
        count: Count the matching lines of each file.
    """
    request = _build_request(pattern, glob, ignore_case, context_lines, files_only and not count, count)
    stopped = Event()
    try:
        return await asyncio.to_thread(run_search, context, request, path, stopped)
    finally:
        stopped.set()


def _build_request(
    pattern: str, glob: str | None, ignore_case: bool, context_lines: int, files_only: bool, counts: bool
) -> GrepRequest:
    if not pattern:
        raise ToolError("the pattern is empty. Give a regular expression; to list files use glob.")
    try:
        expression = LineMatcher(pattern, ignore_case)
    except BadExpression as error:
        raise ToolError(
            f"the pattern cannot be used: {error}. Escape what is meant literally with a backslash; look-around "
            "and back-references are not supported."
        ) from None
    names = None if glob is None else compile_glob(glob)
    return GrepRequest(
        expression=expression,
        names=names,
        anywhere=glob is not None and "/" not in glob,
        context_lines=context_lines,
        files_only=files_only,
        counts=counts,
    )


def run_search(context: ToolContext, request: GrepRequest, path: str, stopped: Event) -> str:
    walk = FolderWalk(stopped)
    search = _Search(walk, request, context.hide)
    with open_call_workspace(context) as workspace, walk.start(workspace, path) as (start, entries):
        for entry in entries:
            path = entry.place.path[len(start) :]
            if entry.kind == "private" and (path.endswith("/") or request.includes(path)):
                walk.note_private(entry)
            elif entry.kind == "file" and request.includes(path):
                search.search_file(entry)
            if walk.is_over():
                break
    return search.result()


class _Search:
    def __init__(self, walk: FolderWalk, request: GrepRequest, hide: Callable[[str], str]) -> None:
        self._walk = walk
        self._hide = hide
        self._request = request
        self._shown: list[str] = []
        self._files = 0
        self._lines = 0
        self._characters = 0
        self._bytes = 0
        weight = 1 + request.expression.size // _PLAIN_PATTERN_INSTRUCTIONS
        self._most_bytes = _MAX_BYTES // weight

    def search_file(self, entry: FolderEntry) -> None:
        try:
            descriptor = entry.place.open()
        except ToolError:  # removed meanwhile, or not readable
            return
        try:
            if self._request.counts:
                self._count_matches(descriptor, entry.place)
            else:
                self._blocks(descriptor, entry.place)
        finally:
            os.close(descriptor)

    def result(self) -> str:
        if not self._files:
            return "\n".join(["No line matches.", *self._walk.notes("some further on")])
        many = "1 file" if self._files == 1 else f"{self._files} files"
        if self._request.files_only:
            total = f"[{many}]"
        else:
            total = f"[{self._lines} matching {'line' if self._lines == 1 else 'lines'} in {many}]"
        return "\n".join([*self._shown, total, *self._walk.notes("more")])

    def _count_matches(self, descriptor: int, place: OpenPath) -> None:
        """Show the number of matching lines of a file, if there are any."""
        matching = 0
        for index, block in enumerate(_read_blocks(descriptor)):
            if (index == 0 and find_binary_kind(block) is not None) or self._walk.is_over():
                break
            self._count(len(block))
            text = block.replace(b"\r\n", b"\n")
            matching += sum(1 for _ in self._request.expression.find_lines(text, 1, self._count_line))
        if matching:
            self._lines += matching
            self._show_file(place, f": {matching}")

    def _blocks(self, descriptor: int, place: OpenPath) -> None:
        named = False
        number = 1
        for index, block in enumerate(_read_blocks(descriptor)):
            if index == 0 and find_binary_kind(block) is not None:
                return
            self._count(len(block))
            text = block.replace(b"\r\n", b"\n")
            hits = list(islice(self._request.expression.find_lines(text, number, self._count_line), self._room()))
            if hits and not named:
                self._show_file(place)
                named = True
            if self._walk.is_over() and not hits:
                return
            if named and self._request.files_only:
                return
            self._show(render_matches(text, hits, self._request.context_lines, self._hide), len(hits))
            number += text.count(b"\n")

    def _room(self) -> int:
        return 1 if self._request.files_only else MAX_LINES - self._lines

    def _count_line(self) -> bool:
        """Count one more examined line, and return whether to stop."""
        self._count(_LINE_COST_BYTES)
        return self._walk.is_over()

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._most_bytes:
            self._walk.cut = f"more than {self._most_bytes:,} bytes were searched"

    def _show_file(self, place: OpenPath, note: str = "") -> None:
        self._files += 1
        name = f"{display_name(place.path)}{note}"
        separate = self._shown and not (self._request.files_only or self._request.counts)
        self._shown.append(f"\n{name}" if separate else name)
        if self._files >= MAX_FILES:
            self._walk.cut = f"there are {MAX_FILES:,} files or more"

    def _show(self, lines: list[str], matching: int) -> None:
        self._lines += matching
        self._shown += lines
        self._characters += sum(map(len, lines))
        if self._lines >= MAX_LINES:
            self._walk.cut = f"{MAX_LINES} lines are shown"
        elif self._characters >= MAX_CHARACTERS:
            self._walk.cut = f"{MAX_CHARACTERS:,} characters are shown"


def _read_blocks(descriptor: int) -> Iterator[bytes]:
    """Yield the file in pieces of complete lines, unless a line is longer than a piece."""
    rest = b""
    while piece := read_bytes(descriptor, _BLOCK_BYTES):
        block = rest + piece
        end = block.rfind(b"\n") + 1 or len(block)
        rest = block[end:]
        yield block[:end]
    if rest:
        yield rest
