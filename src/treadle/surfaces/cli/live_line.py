"""One line at the bottom of a terminal that says what a run is doing: who is asked, for how long, how many tokens
came, and when a failed request is sent again."""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import TextIO

from treadle.domain.envelope import Event
from treadle.domain.events import (
    LlmError,
    LlmRequest,
    LlmResponse,
    LlmRetry,
    RunEnd,
    RunWaiting,
    ThinkingDelta,
    Token,
    ToolCallBlocked,
    ToolCallEnd,
    ToolCallError,
    ToolCallStart,
)
from treadle.surfaces.cli.terminal import can_overwrite, measure_terminal, one_line, supports_colour

CLEAR = "\r\x1b[K"
DIM, NORMAL = "\x1b[2m", "\x1b[0m"
INTERVAL_SECONDS = 0.5
FIRST_SECONDS = 1.0
"""What takes less than this is not shown."""
CHARACTERS_PER_TOKEN = 4
"""Of English text, about."""


class RunActivity:
    """What a run is doing now, from its events."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._model = ""
        self._calls: dict[str, str] = {}
        self._since = clock()
        self._received = 0
        """Characters of the reply so far."""
        self._retries_at: float | None = None
        self._continues_at: float | None = None
        self._failure = ""

    def observe(self, event: Event) -> None:
        match event.data:
            case Token(text=text) | ThinkingDelta(text=text):
                self._received += len(text)
            case LlmRequest(provider=provider, model=model):
                self._begin(f"{provider}/{model}")
            case RunWaiting(reason="retry"):
                pass  # the countdown of the retry goes on
            case RunWaiting(detail=detail, wake_at=float() as wake_at):
                self._begin("")
                self._failure, self._continues_at = detail, self._clock() + wake_at - event.timestamp
            case LlmResponse() | RunWaiting() | RunEnd():
                self._begin("")
            case LlmError(message=message):
                self._failure = message
            case LlmRetry(delay_ms=delay_ms):
                self._begin("")
                self._retries_at = self._clock() + delay_ms / 1000
            case ToolCallStart(call_id=call_id, name=name):
                self._since = self._since if self._calls else self._clock()
                self._calls[call_id] = name
            case ToolCallEnd(call_id=call_id) | ToolCallError(call_id=call_id) | ToolCallBlocked(call_id=call_id):
                self._calls.pop(call_id, None)
            case _:
                pass

    def _begin(self, model: str) -> None:
        self._model, self._since, self._received = model, self._clock(), 0
        self._calls, self._retries_at, self._continues_at = {}, None, None

    def describe(self) -> str:
        """Return the line, or nothing if there is nothing to wait for or it has only just begun."""
        now = self._clock()
        if self._retries_at is not None:
            return f"retrying in {max(0.0, self._retries_at - now):.0f} s · {self._failure}"
        if self._continues_at is not None:
            return f"continues in {max(0.0, self._continues_at - now):.0f} s · {self._failure}"
        seconds = now - self._since
        if seconds < FIRST_SECONDS:
            return ""
        if self._calls:
            names = list(dict.fromkeys(self._calls.values()))
            return f"{', '.join(names)} · {seconds:.0f} s · Ctrl-C interrupts"
        if not self._model:
            return ""
        tokens = self._received // CHARACTERS_PER_TOKEN
        received = f"about {tokens:,} tokens" if tokens else "no reply yet"
        return f"{self._model} · {seconds:.0f} s · {received} · Ctrl-C interrupts"


class LiveLine:
    """Draws the activity of a run on standard error, below what is printed."""

    def __init__(self, may_draw: Callable[[], bool], out: TextIO | None = None) -> None:
        self._may_draw = may_draw
        """Whether the cursor is at the beginning of a line and no question is open."""
        self._out = sys.stderr if out is None else out
        self._activity = RunActivity()
        self._drawn = ""

    def observe(self, event: Event) -> None:
        """Follow an event. What is stored may be printed, or may ask a question: the line is drawn again later."""
        self._activity.observe(event)
        if event.durable:
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
