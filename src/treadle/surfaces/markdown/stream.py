"""Markdown while it is being written: finished blocks are drawn once, only the last one is drawn again."""

import re

from treadle.surfaces.markdown.blocks import BlockRenderer, make_parser
from treadle.surfaces.markdown.code import highlight
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.markdown.wrapping import Line, clean

MAX_OPEN_CHARACTERS = 4_000
"""A block that grows longer is finished in parts, so that the cost of an update stays bounded."""
FENCE_CONTEXT_LINES = 8
"""Lines before the new ones that the highlighter reads again, to know where it is."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`\n]*)$")
_ITEM = re.compile(r"( {0,3})(?:[-*+]|\d{1,9}[.)]) ")


class _Fence:
    """A code block that is not closed yet."""

    def __init__(self, opening: str, mark: str, info: str) -> None:
        self.indent = len(opening) - len(opening.lstrip(" "))
        self.mark = mark
        self.info = info.strip()
        self.recent: list[str] = []
        """The last complete lines, for the highlighter."""

    def is_closed_by(self, line: str) -> bool:
        return len(line.strip()) >= len(self.mark) and self.may_be_closed_by(line)

    def may_be_closed_by(self, beginning: str) -> bool:
        """Return whether a line that begins like this may close the block."""
        text = beginning.strip()
        return set(text) == {self.mark[0]} and len(beginning) - len(beginning.lstrip(" ")) < 4


class MarkdownStream:
    """A message that grows. `lines` returns all of it; what is finished keeps its lines."""

    def __init__(self, width: int, palette: Palette) -> None:
        self._width = width
        self._palette = palette
        self._renderer = BlockRenderer(palette)
        self._done: list[Line] = []
        self._open_text = ""
        self._open_lines: list[Line] = []
        self._fence: _Fence | None = None
        self._table = ""
        """The head of a table of which rows are finished already."""
        self._joins = False
        """Whether what follows continues the block before, without an empty line."""
        self._changed = False

    @property
    def lines(self) -> list[Line]:
        """All lines as of the last update."""
        return [*self._done, *self._open_lines]

    @property
    def open_lines(self) -> list[Line]:
        return self._open_lines

    @property
    def finished_lines(self) -> list[Line]:
        return self._done

    def append(self, text: str) -> None:
        """Add text. It is drawn at the next update."""
        self._open_text += text
        self._changed = True

    def update(self) -> None:
        """Draw what was added."""
        if not self._changed:
            return
        self._changed = False
        while self._advance():
            pass
        self._draw_open()

    def finish(self) -> None:
        """Draw the rest: nothing will be added."""
        self.update()
        if self._fence is not None and self._open_text:
            self.append("\n")
            self.update()
        self._done.extend(self._open_lines)
        self._open_text, self._open_lines, self._fence, self._table = "", [], None, ""

    # ── Finished parts ──

    def _advance(self) -> bool:
        """Move what is finished out of the open text. Return whether there may be more."""
        if self._fence is not None:
            return self._advance_fence(self._fence)
        starts = self._block_starts()
        if self._opens_fence(starts):
            return True
        if len(starts) > 1:
            cut = starts[-1]
            self._finish_lines(self._take(cut))
            self._table, self._joins = "", False
            return self._opens_fence([0])
        if len(self._open_text) > MAX_OPEN_CHARACTERS:
            return self._finish_part()
        return False

    def _block_starts(self) -> list[int]:
        """Return where the top-level blocks of the open text begin."""
        if not self._open_text.strip():
            return [0]
        tokens = make_parser().parse(self._table + self._open_text)
        head = self._table.count("\n")
        rows = [token.map[0] - head for token in tokens if token.level == 0 and token.map and token.nesting >= 0]
        offsets = _line_offsets(self._open_text)
        return [offsets[max(0, row)] for row in rows if row < len(offsets)] or [0]

    def _opens_fence(self, starts: list[int]) -> bool:
        """Enter the code block that the last block begins, once its first line is complete."""
        start = starts[-1]
        end = self._open_text.find("\n", start)
        opening = self._open_text[start:end] if end >= 0 else ""
        found = _FENCE.match(opening)
        if found is None:
            return False
        if before := self._take(start):
            self._finish_lines(before)
            self._joins, self._table = False, ""
        self._take(len(opening) + 1)
        self._fence = _Fence(opening, found[1], found[2])
        self._separate()
        return True

    def _advance_fence(self, fence: _Fence) -> bool:
        """Finish the complete lines of a code block. Return whether it was closed."""
        complete = self._open_text.rfind("\n") + 1
        rows = self._open_text[:complete].split("\n")[:-1]
        closing = next((index for index, row in enumerate(rows) if fence.is_closed_by(row)), None)
        taken = rows if closing is None else rows[:closing]
        if taken:
            shown = [row[min(fence.indent, len(row) - len(row.lstrip(" "))) :] for row in taken]
            self._done.extend(self._draw_code(fence, shown))
            fence.recent = [*fence.recent, *shown][-FENCE_CONTEXT_LINES:]
        self._take(sum(len(row) + 1 for row in (taken if closing is None else rows[: closing + 1])))
        if closing is None:
            return False
        self._fence, self._joins = None, False
        return True

    def _draw_code(self, fence: _Fence, rows: list[str]) -> list[Line]:
        drawn = highlight("\n".join([*fence.recent, *rows]), fence.info, self._palette)
        return self._renderer.code_lines(drawn[len(fence.recent) :][: len(rows)], self._width)

    def _finish_part(self) -> bool:
        """Finish the beginning of one long block."""
        text = self._open_text
        lines = text.split("\n")
        if len(lines) > 2 and "|" in lines[0] and set(lines[1]) <= set("|-: ") and not self._table:
            self._table = "\n".join(lines[:2]) + "\n"
        cut = self._part_end(text, lines)
        if cut <= 0:
            return False
        self._finish_lines(self._take(cut))
        self._joins = True
        return False

    def _part_end(self, text: str, lines: list[str]) -> int:
        if self._table:
            return text.rfind("\n") + 1
        if _ITEM.match(lines[0]):
            cut, position, margin = 0, 0, len(lines[0]) - len(lines[0].lstrip(" "))
            for line in lines[:-1]:
                found = _ITEM.match(line)
                if position and found is not None and len(found[1]) == margin:
                    cut = position
                position += len(line) + 1
            if cut:
                return cut
        if "\n" in text:
            return text.rfind("\n") + 1
        return text.rfind(" ") + 1 or len(text)

    def _take(self, count: int) -> str:
        taken, self._open_text = self._open_text[:count], self._open_text[count:]
        return taken

    def _finish_lines(self, source: str) -> None:
        lines = self._draw(source)
        if lines:
            self._separate()
            self._done.extend(lines)

    def _separate(self) -> None:
        """Add the empty line between two blocks."""
        if self._done and not self._joins:
            self._done.append([])

    # ── The open part ──

    def _draw_open(self) -> None:
        if self._fence is not None:
            row = [(clean(self._open_text), self._palette.block)]  # highlighted once it is complete
            is_shown = self._open_text and not self._fence.may_be_closed_by(self._open_text)
            self._open_lines = self._renderer.code_lines([row], self._width) if is_shown else []
            return
        lines = self._draw(self._open_text)
        self._open_lines = [[], *lines] if lines and self._done and not self._joins else lines

    def _draw(self, source: str) -> list[Line]:
        if not source.strip():
            return []
        lines = self._renderer.render(make_parser().parse(self._table + source), self._width)
        if self._table and self._joins:
            head = self._renderer.render(make_parser().parse(self._table), self._width)
            return lines[len(head) :]
        return lines


def _line_offsets(text: str) -> list[int]:
    offsets, position = [0], 0
    while (position := text.find("\n", position) + 1) > 0:
        offsets.append(position)
    return offsets
