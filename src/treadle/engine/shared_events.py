"""Large events that several readers of this process hold, each of them stored once, and the number of readers that
read journals at a time."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

from msgspec import structs

from treadle.domain.envelope import LARGE_EVENT_BYTES, Event
from treadle.domain.ids import EventId, RunId
from treadle.domain.users import UserId
from treadle.ports.journal import Journal, PositionedEvent, Runs

MAX_CONCURRENT_READS = 2
"""Number of readers that read a page of a journal at a time. What they have read is not counted yet."""
FIRST_PAGE, MAX_PAGE = 100, 500
"""Number of events of the first page and of a page of small events."""
PAGE_BYTES = 2**20
"""Maximum size of a page, unless a single event is larger."""

Item = TypeVar("Item")


class SharedEvent(Event, frozen=True, gc=True, weakref=True):
    """An event that is forgotten when no reader holds it."""


class SharedEvents:
    """The large events that readers hold now."""

    def __init__(self) -> None:
        self._events: WeakValueDictionary[tuple[RunId, int, EventId], SharedEvent] = WeakValueDictionary()
        self._gate = asyncio.Semaphore(MAX_CONCURRENT_READS)

    def share(self, event: Event) -> Event:
        """Return the event, or the equal one that another reader holds."""
        if len(event.raw) < LARGE_EVENT_BYTES:
            return event
        key = (event.run_id, event.sequence, event.event_id)
        shared = self._events.get(key)
        if shared is None:
            self._events[key] = shared = SharedEvent(**structs.asdict(event))
        return shared

    async def read(self, journal: Journal, run_id: RunId, after: int, limit: int) -> Sequence[Event]:
        """Return events of a run after a sequence. Callers wait while others read."""
        async with self._gate:
            return [self.share(event) for event in await journal.read(run_id, after, limit)]

    async def read_page(
        self, journal: Journal, run_id: RunId, after: int, limit: int
    ) -> tuple[Sequence[Event], bool]:
        """Return a page of the events of a run after a sequence, and whether there may be more."""
        found = await self.read(journal, run_id, after, limit)
        page = cut_page(found, lambda event: len(event.raw))
        return page, len(found) == limit or len(page) < len(found)

    async def read_feed(
        self, runs: Runs, after: int, agents: Sequence[str] | None, owner: UserId | None
    ) -> Sequence[PositionedEvent]:
        """Return events of many runs after a position. Callers wait while others read."""
        async with self._gate:
            page = cut_page(await runs.after(after, agents, owner=owner), lambda placed: len(placed.event.raw))
            return [PositionedEvent(placed.position, self.share(placed.event)) for placed in page]


def cut_page(page: Sequence[Item], measure: Callable[[Item], int]) -> Sequence[Item]:
    """Return the first items of a page, at least one, that are at most `PAGE_BYTES` together: a reader holds all of
    its page until it has received the last item."""
    size = 0
    for count, item in enumerate(page):
        size += measure(item)
        if size > PAGE_BYTES:
            return page[: max(count, 1)]
    return page


def choose_page_size(page: Sequence[Event]) -> int:
    """Return how many events to read for the next page, judging by the page before."""
    size = sum([len(event.raw) for event in page])
    return max(1, min(MAX_PAGE, PAGE_BYTES * len(page) // max(size, 1)))
