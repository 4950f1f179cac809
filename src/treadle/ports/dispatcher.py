"""The dispatcher: sees to it that runnable runs are looked at. All liveness lives here, and no safety."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from treadle.domain.ids import Instant, RunId

Work = Callable[[RunId], Awaitable[None]]
"""Carry a run as far as it can go now. Looking at a run twice, late or in vain must be harmless."""


class Dispatcher(Protocol):
    async def start(self, work: Work) -> None:
        """Begin to call `work` for every run that is woken or found runnable."""
        ...

    def wake(self, run_id: RunId, at: Instant) -> None:
        """Look at this run then. Never blocks; a wake while the run is being worked on is not lost."""
        ...

    async def stop(self, grace: float = 0.0) -> None:
        """Begin nothing more, wait so many seconds for the work under way, then stop it, and return when it has let
        go."""
        ...
