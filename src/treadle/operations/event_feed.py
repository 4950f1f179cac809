"""The events of many runs in one stream: durable ones in the order of commits, and live ones on request."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence

from msgspec import Struct

from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError
from treadle.domain.events import LlmError, LlmResponse, RunEnd
from treadle.domain.ids import RunId
from treadle.domain.users import UserId
from treadle.engine.event_hub import EventHub
from treadle.engine.subscription import MAX_BACKLOG_EVENTS
from treadle.engine.text_blocks import LiveDelta, text_end, text_key
from treadle.operations.run_stream import ShownTexts, is_already_shown
from treadle.ports.journal import PositionedEvent, RunFilter, Runs

GATHER_SECONDS = 0.02
"""How long live events are collected, so that fewer pieces are sent. Durable events never wait."""
MAX_RUNS_IN_PROGRESS = 1000
"""How many runs in progress are listened to from the start. Later ones are listened to when they are queued."""

ENDED_RUNS = 100
"""How many runs are listened to after their end, the latest ones."""


class Missed(Struct, frozen=True):
    """Live events that were dropped because the reader is too slow. The durable events are complete."""

    events: int


async def durable_feed(
    hub: EventHub, runs: Runs, after: int | None, agents: Sequence[str] | None, owner: UserId | None
) -> AsyncGenerator[Sequence[PositionedEvent], None]:
    """Yield what is committed after a position (None: from now on), of all runs or of some agents or one owner."""
    is_part = agents is not None or owner is not None
    with hub.watch_commits() as news:
        last = await runs.position() if after is None else after
        while True:
            hub.raise_if_lost()
            news.clear()
            reached = await runs.position() if is_part else 0
            while page := await hub.shared.read_feed(runs, last, agents, owner):
                yield page
                last = page[-1].position
            last = max(last, reached)  # the events of other runs are not looked at again
            await news.wait()


async def live_feed(
    hub: EventHub, runs: Runs, after: int | None, agents: Sequence[str] | None, owner: UserId | None
) -> AsyncGenerator[Sequence[PositionedEvent | Event | Missed], None]:
    """Yield the same, with the live events of each run after the durable event that they belong to, and how many of
    them a slow reader has missed."""
    with hub.watch_commits() as news, LiveEvents(hub, news) as live:
        last = await runs.position() if after is None else after
        wanted = RunFilter(
            None if agents is None else tuple(agents), unfinished=True, owners=None if owner is None else (owner,)
        )
        for record in await runs.find(wanted, MAX_RUNS_IN_PROGRESS):
            live.listen_to(record.origin.run_id, record.sequence)
        changes, is_caught_up = -1, False
        while True:
            hub.raise_if_lost()
            news.clear()
            if hub.changes != changes:  # a token alone needs no look at the journal
                changes = hub.changes
                reached = await runs.position()
                while page := await hub.shared.read_feed(runs, last, agents, owner):
                    if missed := live.take_missed():
                        yield (missed,)
                    if is_caught_up and (events := live.take()):  # these were shown before the page was committed
                        yield events
                    for part in live.with_live(page):
                        yield part
                    last = page[-1].position
                last, is_caught_up = max(last, reached), True
            if missed := live.take_missed():
                yield (missed,)
            if events := live.take():
                yield events
            await news.wait()
            if hub.changes == changes:
                await asyncio.sleep(GATHER_SECONDS)


class LiveEvents:
    """The live events of the runs in progress. Implements `engine.event_hub.Listener`.

    An event is held until the reader has the durable event that it belongs to. A reader that is too slow loses live
    events, never durable ones, and is sent their number: the whole text comes with `llm_response`."""

    catching_up = True
    """The durable events come from the journal, so the hub does not offer any."""
    last = 0

    def __init__(self, hub: EventHub, news: asyncio.Event) -> None:
        self._hub = hub
        self._news = news
        self._seen: dict[RunId, int] = {}
        """The last durable event of each run in progress that the reader has."""
        self._texts: dict[RunId, ShownTexts] = {}
        """The texts in progress when a run was first listened to, which the reader got in one piece."""
        self._events: list[Event] = []
        self._missed = 0
        self._ended: deque[RunId] = deque()

    def __enter__(self) -> "LiveEvents":
        return self

    def __exit__(self, *_: object) -> None:
        for run_id in tuple(self._seen):
            self._leave(run_id)

    def listen_to(self, run_id: RunId, seen: int) -> None:
        if run_id in self._seen:
            return
        self._seen[run_id] = seen
        self._hub.add_reader(run_id, self)
        for event in self._hub.list_live_events(run_id):
            if isinstance(event.data, LiveDelta):
                self._texts.setdefault(run_id, {})[text_key(event.data)] = text_end(event.data)
                self._events.append(event)

    def with_live(self, page: Sequence[PositionedEvent]) -> Iterator[Sequence[PositionedEvent | Event]]:
        """Yield a page in parts, with the live events that are held for a response in front of it."""
        start = 0
        for place, placed in enumerate(page):
            event = placed.event
            if isinstance(event.data, LlmResponse) and any(held.run_id == event.run_id for held in self._events):
                self.follow(page[start:place])
                yield page[start:place]
                yield self.take()
                start = place
        self.follow(page[start:])
        yield page[start:]

    def follow(self, page: Sequence[PositionedEvent]) -> None:
        """Listen to the runs of a page."""
        for placed in page:
            event = placed.event
            if isinstance(event.data, LlmResponse | LlmError):  # what is held was written before it
                self._events = [held for held in self._events if held.run_id != event.run_id]
            self.listen_to(event.run_id, event.sequence)
            self._seen[event.run_id] = max(event.sequence, self._seen[event.run_id])
            if isinstance(event.data, RunEnd):
                self._keep_ended(event.run_id)

    def take(self) -> list[Event]:
        """Return the events that may be shown now."""
        seen = self._seen
        shown = [event for event in self._events if event.sequence <= seen.get(event.run_id, -1)]
        self._events = [event for event in self._events if event.sequence > seen.get(event.run_id, event.sequence)]
        return shown

    def take_missed(self) -> Missed | None:
        """Return how many events were dropped since the last time; None if none were."""
        missed, self._missed = self._missed, 0
        return Missed(missed) if missed else None

    def _keep_ended(self, run_id: RunId) -> None:
        """Listen to an ended run for a while: its answer is sent to channels and webhooks after its end."""
        self._ended.append(run_id)
        if len(self._ended) > ENDED_RUNS:
            self._leave(self._ended.popleft())

    def _leave(self, run_id: RunId) -> None:
        if self._seen.pop(run_id, None) is not None:
            self._texts.pop(run_id, None)
            self._hub.remove_reader(run_id, self)

    # ── Listener ──

    def offer(self, events: Sequence[Event]) -> None:
        pass

    def show(self, event: Event) -> None:
        if is_already_shown(event, self._texts.get(event.run_id, {})):
            return
        if len(self._events) >= MAX_BACKLOG_EVENTS:
            self._missed += len(self._events)
            self._events.clear()
        self._events.append(event)
        self._news.set()

    def fail(self, error: StoreError) -> None:
        self._news.set()
