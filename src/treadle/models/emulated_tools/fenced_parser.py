"""Replies of models that write their calls as fenced JSON. Exactly that is read as a call: a block that begins and
ends a line, is marked `json` or not at all, and is one JSON object of a tool's name and its arguments. All else is
text: also a call in a block that is marked otherwise or stands in another block, and one without a fence."""

import re
from collections.abc import Container
from typing import Literal

from treadle.domain.events import StopReason
from treadle.domain.messages import ToolUse
from treadle.models.emulated_tools.reply import parse_call

_FENCE = "```"
_FENCED_LINE = re.compile(r"[ \t]{0,16}(`{3,}+)(.*)", re.DOTALL)
_MAY_BE_FENCED = re.compile(r"[ \t]{0,16}`{0,2}")
_FENCE_MARK = re.compile(r"(?:json)?\s*", re.IGNORECASE)
_NAME_KEYS = ("tool", "name")


class FencedParser:
    """Implements `Reading` for fenced JSON. A line is held back only where it begins with a fence, or stands in a
    block that may be a call."""

    def __init__(self, allowed: Container[str]) -> None:
        self.text: list[str] = []
        self.calls: list[ToolUse] = []
        self._allowed = allowed
        self._said: StopReason = "other"
        self._line: list[str] = []
        """The line so far, unless it flows."""
        self._mode: Literal["open", "flows", "held"] = "open"
        """Of the line: not yet known; text, shown as it comes; held back until it is whole."""
        self._block: list[str] = []
        """The lines of a block that may be a call."""
        self._begun = False
        """The object in that block has begun."""
        self._inside = 0
        """How many backticks close the block of something else that we are in; 0: we are in none."""
        self._blanks: list[str] = []
        """Blanks that are text if words follow, or if there is no call."""

    def feed(self, piece: str) -> None:
        *lines, rest = piece.split("\n")
        for line in lines:
            self._add(f"{line}\n")
            self._end_line()
        if rest:
            self._add(rest)

    def end(self, said: StopReason) -> None:
        self._said = said
        self._end_line()
        self._release()
        if not self.calls:
            self.text += self._blanks
            self._blanks.clear()

    def stop(self) -> StopReason:
        return "tool_use" if self.calls and self._said == "end_turn" else self._said

    def _add(self, piece: str) -> None:
        """More of a line."""
        if self._mode == "flows":
            self._say(piece)
            return
        self._line.append(piece)
        if self._mode == "open":
            start = "".join(self._line)
            if _FENCED_LINE.match(start):
                self._mode = "held"
            elif not _MAY_BE_FENCED.fullmatch(start):
                self._mode = "flows"
                self._line.clear()
                self._say(start)

    def _end_line(self) -> None:
        line, mode = "".join(self._line), self._mode
        self._line.clear()
        if mode == "open":
            self._say(line)
        elif mode == "held" and self._block:
            self._go_on(line)
        elif mode == "held" and line:
            self._take_fence(line)
        self._mode = "held" if self._block else "open"

    def _take_fence(self, line: str) -> None:
        """A line that begins with a fence, and is not in a block that may be a call."""
        found = _FENCED_LINE.match(line)
        assert found is not None, "it is why the line was held"
        ticks, rest = len(found.group(1)), found.group(2).strip()
        if self._inside:
            if not rest and ticks >= self._inside:
                self._inside = 0
            self._say(line)
        elif "`" in rest:  # opened and closed in one line
            self._block.append(line)
            if not self._take_block():
                self._release()
        elif ticks == len(_FENCE) and (start := _strip_fence_mark(rest))[:1] in ("", "{"):
            self._block.append(line)
            self._begun = bool(start)
        else:
            self._inside = ticks
            self._say(line)

    def _go_on(self, line: str) -> None:
        """A line of a block that may be a call."""
        self._block.append(line)
        words = line.strip()
        may_be = self._begun or not words or words.startswith("{")
        self._begun = self._begun or bool(words)
        closed = words.endswith(_FENCE)
        if may_be and not closed:
            return
        if not (closed and self._take_block()):
            self._release()
            self._inside = 0 if closed and not words.strip("`") else len(_FENCE)

    def _take_block(self) -> bool:
        """Whether the block is a call: then it has become one."""
        block = "".join(self._block).strip()
        call = parse_call(_strip_fence_mark(block[len(_FENCE) : -len(_FENCE)]), _NAME_KEYS, self._allowed)
        if call is None:
            return False
        self.calls.append(call)
        self._block.clear()
        return True

    def _release(self) -> None:
        """The block is text after all."""
        self._say("".join(self._block))
        self._block.clear()

    def _say(self, text: str) -> None:
        words = text.rstrip()
        blanks = text[len(words) :]
        if words:
            if self.calls and not self.text:  # blank lines between a call and the first words are nobody's
                self._blanks.clear()
                words = words.lstrip("\r\n")
            self.text += (*self._blanks, words)
            self._blanks.clear()
        if blanks:
            self._blanks.append(blanks)


def _strip_fence_mark(text: str) -> str:
    """What follows the mark of a fence."""
    found = _FENCE_MARK.match(text)
    return text[found.end() :] if found else text
