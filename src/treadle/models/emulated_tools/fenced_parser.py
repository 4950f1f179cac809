"""Parses replies of models that write their calls as fenced JSON.

A call is a fenced block that starts and ends a line, is marked `json` or has no mark, and contains one JSON object
with the name of a tool and its arguments. Everything else is text, including a call in a block with another mark,
in a nested block, or without a fence."""

import re
from collections.abc import Container
from typing import Literal

from treadle.domain.events import StopReason
from treadle.domain.limits import DEFAULT_MAX_CALLS
from treadle.domain.messages import ToolUse
from treadle.models.emulated_tools.reply import parse_call

_FENCE = "```"
_FENCED_LINE = re.compile(r"[ \t]{0,16}(`{3,}+)(.*)", re.DOTALL)
_MAY_BE_FENCED = re.compile(r"[ \t]{0,16}`{0,2}")
_FENCE_MARK = re.compile(r"(?:json)?\s*", re.IGNORECASE)
_NAME_KEYS = ("tool", "name")


class FencedParser:
    """Implements `ReplyParser` for fenced JSON. A line is held back only if it starts with a fence or is part of a
    block that may be a call."""

    def __init__(self, allowed: Container[str], max_calls: int = DEFAULT_MAX_CALLS) -> None:
        self.text: list[str] = []
        self.calls: list[ToolUse] = []
        self.excess = 0
        self._max_calls = max_calls
        self._allowed = allowed
        self._wire_stop: StopReason = "other"
        self._line: list[str] = []
        """The current line, unless it is passed through as text."""
        self._mode: Literal["open", "flows", "held"] = "open"
        """State of the line. open: undecided. flows: text, shown as it arrives. held: held back until complete."""
        self._block: list[str] = []
        """The lines of a block that may be a call."""
        self._begun = False
        """The JSON object in that block has started."""
        self._inside = 0
        """How many backticks close the other code block that the line is in; 0: none."""
        self._blanks: list[str] = []
        """Whitespace that is text if words follow, or if there is no call."""

    def feed(self, piece: str) -> None:
        *lines, rest = piece.split("\n")
        for line in lines:
            self._add_to_line(f"{line}\n")
            self._end_line()
        if rest:
            self._add_to_line(rest)

    def end(self, stop: StopReason) -> None:
        self._wire_stop = stop
        self._end_line()
        self._release()
        if not self.calls:
            self.text += self._blanks
            self._blanks.clear()

    def stop(self) -> StopReason:
        return "tool_use" if self.calls and self._wire_stop == "end_turn" else self._wire_stop

    def _add_to_line(self, piece: str) -> None:
        """Append to the current line."""
        if self._mode == "flows":
            self._emit(piece)
            return
        self._line.append(piece)
        if self._mode == "open":
            start = "".join(self._line)
            if _FENCED_LINE.match(start):
                self._mode = "held"
            elif not _MAY_BE_FENCED.fullmatch(start):
                self._mode = "flows"
                self._line.clear()
                self._emit(start)

    def _end_line(self) -> None:
        line, mode = "".join(self._line), self._mode
        self._line.clear()
        if mode == "open":
            self._emit(line)
        elif mode == "held" and self._block:
            self._add_block_line(line)
        elif mode == "held" and line:
            self._handle_fence(line)
        self._mode = "held" if self._block else "open"

    def _handle_fence(self, line: str) -> None:
        """Handle a line that starts with a fence and is not in a block that may be a call."""
        found = _FENCED_LINE.match(line)
        assert found is not None, "the line was held because it matched"
        ticks, rest = len(found.group(1)), found.group(2).strip()
        if self._inside:
            if not rest and ticks >= self._inside:
                self._inside = 0
            self._emit(line)
        elif "`" in rest:  # opened and closed in one line
            self._block.append(line)
            if not self._try_call():
                self._release()
        elif ticks == len(_FENCE) and (start := _strip_fence_mark(rest))[:1] in ("", "{"):
            self._block.append(line)
            self._begun = bool(start)
        else:
            self._inside = ticks
            self._emit(line)

    def _add_block_line(self, line: str) -> None:
        """Append a line to a block that may be a call."""
        self._block.append(line)
        words = line.strip()
        may_be = self._begun or not words or words.startswith("{")
        self._begun = self._begun or bool(words)
        closed = words.endswith(_FENCE)
        if may_be and not closed:
            return
        if not (closed and self._try_call()):
            self._release()
            self._inside = 0 if closed and not words.strip("`") else len(_FENCE)

    def _try_call(self) -> bool:
        """Parse the block as a call. Return whether it is one."""
        block = "".join(self._block).strip()
        call = parse_call(_strip_fence_mark(block[len(_FENCE) : -len(_FENCE)]), _NAME_KEYS, self._allowed)
        if call is None:
            return False
        if len(self.calls) < self._max_calls:
            self.calls.append(call)
        else:
            self.excess += 1
        self._block.clear()
        return True

    def _release(self) -> None:
        """Emit the block as text."""
        self._emit("".join(self._block))
        self._block.clear()

    def _emit(self, text: str) -> None:
        words = text.rstrip()
        blanks = text[len(words) :]
        if words:
            if self.calls and not self.text:  # drop blank lines between a call and the first words
                self._blanks.clear()
                words = words.lstrip("\r\n")
            self.text += (*self._blanks, words)
            self._blanks.clear()
        if blanks:
            self._blanks.append(blanks)


def _strip_fence_mark(text: str) -> str:
    """Return the text after the mark of a fence."""
    found = _FENCE_MARK.match(text)
    return text[found.end() :] if found else text
