"""The dispatcher makes sure that runnable runs are worked on. It provides liveness; the journal provides safety."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from treadle.domain.ids import Instant, RunId

Work = Callable[[RunId], Awaitable[None]]
"""Advance a run as far as possible now. Calling it twice, late or without need must be harmless."""


class Dispatcher(Protocol):
    async def start(self, work: Work) -> None:
        """Start calling `work` for every run that is woken or found runnable."""
        ...

    def wake(self, run_id: RunId, at: Instant) -> None:
        """Schedule work on this run at this time. Never blocks. A wake during work on the run is not lost."""
        ...

    async def stop(self, grace: float = 0.0) -> None:
        """Start no more work, wait `grace` seconds for work in progress, cancel the rest and return when it has
        ended."""
        ...
