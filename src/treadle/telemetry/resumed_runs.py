"""Announces the runs that a program resumes because an earlier process left them unfinished."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.events import EventData, RunWaiting
from treadle.domain.ids import Instant, RunId

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.2
"""How long resumed runs are gathered for one message."""


class ResumedRuns:
    """Observes claims. A run whose last event is older than this engine continues without anyone having asked."""

    def __init__(self, opened_at: Instant, tell: Callable[[str], None] = logger.warning) -> None:
        self._opened_at = opened_at
        self._tell = tell
        self._found: set[RunId] = set()
        self._waiting: list[RunId] = []
        """Runs that are not announced yet."""
        self.blocked: dict[RunId, str] = {}
        """The runs that cannot continue here, with what each lacks."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def resumed(self) -> frozenset[RunId]:
        """The runs that continue, or have ended since."""
        return frozenset(self._found - self.blocked.keys())

    def take(self, events: Sequence[Event]) -> None:
        """Announce the run that was claimed with these events, once."""
        if not events or events[-1].timestamp >= self._opened_at or events[-1].run_id in self._found:
            return
        last = events[-1]
        self._found.add(last.run_id)
        self._waiting.append(last.run_id)
        self._note(last.run_id, last.data)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self.flush)

    def observe(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        """Note whether a run that was found can continue. Announce one that cannot any more."""
        del first
        run_id = origin.run_id
        if run_id in self._found and drafts and self._note(run_id, drafts[-1].data) and run_id not in self._waiting:
            self._tell_blocked(run_id)

    def _note(self, run_id: RunId, last: EventData) -> bool:
        """Note what a run lacks after an event. Return whether it lacks something."""
        if isinstance(last, RunWaiting) and last.reason == "unavailable":
            self.blocked[run_id] = last.detail
            return True
        self.blocked.pop(run_id, None)
        return False

    def flush(self) -> None:
        """Announce what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        found, self._waiting = self._waiting, []
        if runs := [run_id for run_id in found if run_id not in self.blocked]:
            count = "an unfinished run" if len(runs) == 1 else f"{len(runs)} unfinished runs"
            self._tell(f"Resuming {count} of an earlier process: {', '.join(runs)}")
        for run_id in found:
            if run_id in self.blocked:
                self._tell_blocked(run_id)

    def _tell_blocked(self, run_id: RunId) -> None:
        self._tell(f"{run_id} of an earlier process cannot continue here. {self.blocked[run_id]}")
