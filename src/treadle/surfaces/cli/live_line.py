"""One line at the bottom of a terminal that says what a run is doing: who is asked, for how long, how many tokens
came, and when a failed request is sent again."""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from treadle.domain.plans import is_finished, summarize_plan
from treadle.domain.transcript import (
    AnswerItem,
    CallItem,
    Change,
    ItemAdded,
    ItemChanged,
    PlanItem,
    RunTotals,
    TextAppended,
    ThinkingItem,
)
from treadle.surfaces.terminal.text import can_overwrite, measure_terminal, one_line, supports_colour

CLEAR = "\r\x1b[K"
DIM, NORMAL = "\x1b[2m", "\x1b[0m"
INTERVAL_SECONDS = 0.5
FIRST_SECONDS = 1.0
"""What takes less than this is not shown."""
CHARACTERS_PER_TOKEN = 4
"""Of English text, about."""


class RunActivity:
    """What a run is doing now, from the changes of its transcript."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._totals = RunTotals()
        self._calls: dict[str, CallItem] = {}
        """The calls in progress."""
        self._received = 0
        """Characters of the reply so far."""
        self._plan = ""
        """The plan in short, until it is finished."""

    def observe(self, changes: Sequence[Change], totals: RunTotals) -> None:
        if totals.asked_at != self._totals.asked_at:
            self._received = 0
        self._totals = totals
        for change in changes:
            match change:
                case TextAppended(field="text" | "arguments", text=text):
                    self._received += len(text)
                case ItemAdded(ThinkingItem(state="writing", text=text) | AnswerItem(state="writing", text=text)):
                    self._received += len(text)
                case ItemAdded(CallItem() as call) | ItemChanged(CallItem() as call):
                    self._calls.pop(call.key, None)
                    if call.state == "running":
                        self._calls[call.key] = call
                case ItemAdded(PlanItem(steps=steps)) | ItemChanged(PlanItem(steps=steps)):
                    self._plan = "" if is_finished(steps) else f"plan {summarize_plan(steps)}"
                case _:
                    pass

    def describe(self) -> str:
        """Return the line, or nothing if there is nothing to wait for or it has only just begun."""
        now, totals = self._clock(), self._totals
        if totals.wake_at is not None:
            left = max(0.0, totals.wake_at - now)
            if totals.waiting_for in (None, "retry"):
                return f"retrying in {left:.0f} s · {totals.failure}"
            return f"continues in {left:.0f} s · {totals.detail}"
        if totals.status == "waiting":
            return ""
        if self._calls:
            since = min(call.started_at or now for call in self._calls.values())
            names = list(dict.fromkeys(call.name for call in self._calls.values()))
            return self._format(", ".join(names), now - since)
        if totals.asked_at is None:
            return ""
        tokens = self._received // CHARACTERS_PER_TOKEN
        received = f"about {tokens:,} tokens" if tokens else "no reply yet"
        return self._format(f"{totals.provider}/{totals.model}", now - totals.asked_at, received)

    def _format(self, subject: str, seconds: float, *facts: str) -> str:
        if seconds < FIRST_SECONDS:
            return ""
        plan = (self._plan,) if self._plan else ()
        return " · ".join((subject, f"{seconds:.0f} s", *facts, "Ctrl-C interrupts", *plan))


class LiveLine:
    """Draws the activity of a run on standard error, below what is printed."""

    def __init__(self, may_draw: Callable[[], bool], out: TextIO | None = None) -> None:
        self._may_draw = may_draw
        """Whether the cursor is at the beginning of a line and no question is open."""
        self._out = sys.stderr if out is None else out
        self._activity = RunActivity()
        self._drawn = ""

    def observe(self, changes: Sequence[Change], totals: RunTotals) -> None:
        """Follow changes. What is printed, or asks a question, comes first: the line is drawn again later."""
        self._activity.observe(changes, totals)
        if any(not isinstance(change, TextAppended) for change in changes):
            self.clear()

    def clear(self) -> None:
        """Remove the line, before something else is printed."""
        if self._drawn:
            self._drawn = ""
            self._out.write(CLEAR)
            self._out.flush()

    def draw(self) -> None:
        if not self._may_draw():
            return
        text = self._activity.describe()
        line = one_line(text, measure_terminal(self._out).columns - 1)
        if line != self._drawn:
            self._drawn = line
            shown = f"{DIM}{line}{NORMAL}" if line and supports_colour(self._out) else line
            self._out.write(f"{CLEAR}{shown}")
            self._out.flush()

    async def watch(self) -> None:
        """Draw for as long as the run is followed."""
        try:
            while True:
                await asyncio.sleep(INTERVAL_SECONDS)
                self.draw()
        finally:
            self.clear()


def can_draw() -> bool:
    """Return whether standard error is a terminal that can overwrite a line."""
    return can_overwrite(sys.stderr)
