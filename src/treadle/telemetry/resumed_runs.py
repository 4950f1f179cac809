"""Announces the runs that a program resumes because an earlier process left them unfinished."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from treadle.domain.envelope import Event
from treadle.domain.ids import Instant, RunId

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.2
"""How long resumed runs are gathered for one message."""


class ResumedRuns:
    """Observes claims. A run whose last event is older than this engine continues without anyone having asked."""

    def __init__(self, opened_at: Instant, tell: Callable[[str], None] = logger.warning) -> None:
        self._opened_at = opened_at
        self._tell = tell
        self._announced: set[RunId] = set()
        self._waiting: list[RunId] = []
        self._timer: asyncio.TimerHandle | None = None

    def take(self, events: Sequence[Event]) -> None:
        """Announce the run that was claimed with these events, once."""
        if not events or events[-1].timestamp >= self._opened_at or events[-1].run_id in self._announced:
            return
        self._announced.add(events[-1].run_id)
        self._waiting.append(events[-1].run_id)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self.flush)

    def flush(self) -> None:
        """Announce what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            runs, self._waiting = self._waiting, []
            count = "an unfinished run" if len(runs) == 1 else f"{len(runs)} unfinished runs"
            self._tell(f"Resuming {count} of an earlier process: {', '.join(runs)}")
