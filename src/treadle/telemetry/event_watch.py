"""Passes every commit to watchers, together with the earlier events of its run.

Events of a run that another process started, or this one before a restart, are passed on when the run is resumed
here, or read from the journal. So what watchers report does not depend on which process was running."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId

logger = logging.getLogger(__name__)

Earlier = Callable[[RunId, int], Awaitable[Sequence[Event]]]
"""Reads the events of a run after a sequence, a page at a time; the last page is empty."""

UNREAD_MESSAGE = "the beginning of %s could not be read; its telemetry is incomplete"


class Watcher(Protocol):
    """Receives events. Must not block."""

    def remember(self, event: Event) -> None:
        """Take note of an event that was committed before this process watched. It was reported then."""
        ...

    def observe(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        """Report events that are committed now; the first has the sequence `first`."""
        ...

    def forget(self, run_id: RunId) -> None:
        """Drop a run that another process continues and watches. If it comes back, `remember` is called again."""
        ...


class Watch:
    """Observes a hub, and passes every commit to its watchers, each run from its beginning."""

    def __init__(self, watchers: Sequence[Watcher], earlier: Earlier) -> None:
        self._watchers = tuple(watchers)
        self._earlier = earlier
        self._known: set[RunId] = set()
        self._behind: dict[RunId, list[tuple[Origin, int, Sequence[Draft]]]] = {}
        """Commits that arrived while the beginning of their run was being read."""
        self._reading: set[asyncio.Task[None]] = set()
        self._left: set[RunId] = set()
        """Runs that another process continued meanwhile."""

    def __call__(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        run_id = origin.run_id
        if run_id not in self._known:
            if first != 1:
                self._catch_up(origin, first, drafts)
                return
            self._known.add(run_id)
        self._show(origin, first, drafts)

    def take(self, events: Sequence[Event]) -> None:
        """Start watching a run that this process works on, given all of its events."""
        if events and (run_id := events[0].run_id) not in self._known and run_id not in self._behind:
            self._known.add(run_id)
            try:
                self._remember(events)
            except Exception:
                logger.exception(UNREAD_MESSAGE, run_id)

    def forget(self, run_id: RunId) -> None:
        """Stop watching a run that another process continues."""
        if run_id in self._behind:
            self._left.add(run_id)
        elif run_id in self._known:
            self._known.discard(run_id)
            for watcher in self._watchers:
                watcher.forget(run_id)

    async def close(self) -> None:
        """Wait until all commits have been passed on."""
        while self._reading:
            await asyncio.wait(self._reading)

    def _show(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        for watcher in self._watchers:
            try:
                watcher.observe(origin, first, drafts)
            except Exception:
                logger.exception(
                    "%s failed on events of %s; the run continues", type(watcher).__name__, origin.run_id
                )
        if drafts and type(drafts[-1].data) is RunEnd:
            self._known.discard(origin.run_id)

    def _catch_up(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        behind = self._behind.get(origin.run_id)
        if behind is not None:
            behind.append((origin, first, drafts))
            return
        self._behind[origin.run_id] = [(origin, first, drafts)]
        task = asyncio.get_running_loop().create_task(self._read(origin.run_id, first))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read(self, run_id: RunId, first: int) -> None:
        try:
            await self._read_up_to(run_id, first)
        except Exception:
            logger.exception(UNREAD_MESSAGE, run_id)
        self._known.add(run_id)
        for commit in self._behind.pop(run_id):
            self._show(*commit)
        if run_id in self._left:
            self._left.discard(run_id)
            self.forget(run_id)

    async def _read_up_to(self, run_id: RunId, first: int) -> None:
        last = 0
        while page := await self._earlier(run_id, last):
            before = [event for event in page if event.sequence < first]
            self._remember(before)
            if len(before) < len(page):
                return
            last = page[-1].sequence

    def _remember(self, events: Sequence[Event]) -> None:
        for event in events:
            for watcher in self._watchers:
                watcher.remember(event)
