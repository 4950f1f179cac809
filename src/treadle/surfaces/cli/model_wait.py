"""Notes about a model that does not answer yet: a local model may read a long prompt for minutes."""

import asyncio
import time
from collections.abc import Callable, Sequence

from treadle.domain.transcript import Change, RunTotals

NOTICES = (10, 30, 60, 120, 300)
"""Seconds after which a note is printed; after the last, again each time that many have passed."""


class ModelWait:
    """Follows a run and prints a note while a request has no reply."""

    def __init__(self, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._note = note
        self._clock = clock
        self._model = ""
        self._asked_at: float | None = None
        self._since: float | None = None
        self._printed = 0
        self._changed = asyncio.Event()

    def observe(self, changes: Sequence[Change], totals: RunTotals) -> None:
        """Follow changes. Any change after a request ends the wait."""
        if totals.asked_at is not None and totals.asked_at != self._asked_at:
            self._model, self._since, self._printed = f"{totals.provider}/{totals.model}", self._clock(), 0
            self._changed.set()
        elif changes and self._since is not None:
            self._since = None
            self._changed.set()
        self._asked_at = totals.asked_at

    def next_notice(self) -> float | None:
        """Return the seconds until the next note; None while no request is open."""
        if self._since is None:
            return None
        return self._since + _moment(self._printed) - self._clock()

    def notice(self) -> None:
        """Print how long the request has had no reply, if it is time to."""
        left = self.next_notice()
        if left is not None and left <= 0:
            self._note(
                f"Waiting for {self._model}: no reply for {_moment(self._printed):.0f} s (Ctrl-C interrupts)"
            )
            self._printed += 1

    async def watch(self) -> None:
        """Print notes for as long as the run is followed."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(self.next_notice()):
                    await self._changed.wait()
            except TimeoutError:
                self.notice()


def _moment(printed: int) -> float:
    beyond = max(0, printed - len(NOTICES) + 1)
    return NOTICES[min(printed, len(NOTICES) - 1)] + beyond * NOTICES[-1]
