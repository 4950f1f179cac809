"""Delivery of events to the readers in this process: durable events after their commit, live events at once.

A reader that falls behind is cut off with a reset from which it can resume. A run never waits for a reader."""

import asyncio
import logging
from collections.abc import Callable, Generator, KeysView, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from treadle.domain.envelope import Draft, Event, Origin, make_draft
from treadle.domain.errors import StoreError
from treadle.domain.events import (
    AgentWaiting,
    EventData,
    RunEnd,
    RunQueued,
    RunWaiting,
    StreamReset,
    ToolCallProgress,
)
from treadle.domain.ids import Instant, RunId
from treadle.engine.shared_events import SharedEvents
from treadle.engine.subscription import MAX_BACKLOG_EVENTS, UNCOUNTED, MemoryAccount, Pace, Subscription
from treadle.engine.text_blocks import LiveDelta
from treadle.ports.clock import Clock, Ids

if TYPE_CHECKING:
    from treadle.ports.notifications import Changed

logger = logging.getLogger(__name__)

_Waiter = TypeVar("_Waiter")

EndedRun = tuple[Origin, RunEnd]
PausedRun = tuple[Origin, RunEnd | RunWaiting | AgentWaiting]
PAUSES = (RunEnd, RunWaiting, AgentWaiting)
"""What a run commits last when it ends, or when it or a run below it begins to wait."""
Observer = Callable[[Origin, int, Sequence[Draft]], None]
"""Receives everything that is committed, in commit order: the origin, the sequence of the first event, and the
events. An observer must not block, and its exceptions are logged and ignored."""


class LiveText(Protocol):
    """Text that a model or a tool is writing now."""

    @property
    def origin(self) -> Origin: ...

    def make_live_events(self) -> list[LiveDelta]:
        """Return the whole text from its beginning as live events; none if there is no text."""
        ...


class Listener(Protocol):
    """A reader of runs in this process. Its methods never block."""

    last: int
    """Sequence of the last durable event that the reader has or was offered."""
    catching_up: bool
    """True while the reader reads what was committed before it came."""

    def offer(self, events: Sequence[Event]) -> None:
        """Give the reader durable events of one run, in order."""
        ...

    def show(self, event: Event) -> None:
        """Give the reader a live event."""
        ...

    def fail(self, error: StoreError) -> None:
        """Report that no more events will come."""
        ...


class ClientWait(Protocol):
    """A run in memory that waits for its client, or did a moment ago."""

    is_open: bool
    """Whether the run waits now."""

    @property
    def queued(self) -> RunQueued | None:
        """How the run was queued, with its agent, its owner and the token that brought its tools."""
        ...

    async def receive(self, call_id: str, make: Callable[[], Draft]) -> int | None:
        """Give the run the result of a call and return its sequence as soon as it is committed.

        Return None if it was not, because the run does not wait for this result here: then the result must be
        delivered to the journal."""
        ...


class OtherProcesses(Protocol):
    """The other processes on the same database. Its methods never block."""

    def is_interested(self, run_id: RunId) -> bool:
        """Return whether a reader in another process would see a live event of this run."""
        ...

    def send_live(self, event: Event) -> None:
        """Send them a live event soon."""
        ...

    def flush(self) -> None:
        """Send them now what has been gathered."""
        ...

    def request_live(self, run_id: RunId) -> None:
        """Ask for the live events of a run that a reader here has begun to read."""
        ...


class EventHub:
    """Implements `ports.journal.Publisher` for the readers and workers of this process."""

    def __init__(self, clock: Clock, ids: Ids, on_wake: Callable[[RunId, Instant], None]) -> None:
        self._clock = clock
        self._ids = ids
        self.on_wake = on_wake
        self._readers: dict[RunId, list[Listener]] = {}
        self._ends: dict[RunId, list[asyncio.Future[EndedRun]]] = {}
        self._pauses: dict[RunId, list[asyncio.Future[PausedRun]]] = {}
        self._paused: set[RunId] = set()
        """Runs that were submitted here, whose last commit was a pause."""
        self._error: StoreError | None = None
        self._pace = Pace()
        self.shared = SharedEvents()
        self._unfinished: set[RunId] = set()
        """Runs that were submitted here and have not ended."""
        self._owners: dict[RunId, Callable[[], None]] = {}
        self._positions: dict[RunId, int] = {}
        """Sequence of the last event that this process committed to each run that it owns."""
        self.client_waits: dict[RunId, ClientWait] = {}
        """Runs owned here that have waited for their clients, which may deliver to them directly."""
        self._live_texts: dict[RunId, LiveText] = {}
        self._live_outputs: dict[RunId, dict[str, LiveText]] = {}
        """What calls in progress have printed, by call."""
        self.observers: list[Observer] = []
        self.handover_observers: list[Callable[[RunId], None]] = []
        """Called for runs that another process has claimed, whose further commits are not observed here."""
        self.news_observers: list[Callable[[Changed], None]] = []
        """Called for runs to which another process has committed, or which it has woken."""
        self.definition_observers: list[Callable[[], None]] = []
        """Called when definitions of agents or skills in the database may have changed."""
        self.claim_observers: list[Callable[[Sequence[Event]], None]] = []
        """Called with all events of a run when it is claimed here, so that observers need not read them."""
        self._commit_waiters: set[asyncio.Event] = set()
        self.changes = 0
        """Counts the commits that this process knows of."""
        self.other_processes: OtherProcesses | None = None
        """None if no other process can use this database."""

    # ── Publisher ──

    def on_committed(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        run_id = origin.run_id
        self.changes += 1
        for waiter in self._commit_waiters:
            waiter.set()
        for observer in self.observers:
            try:
                observer(origin, first, drafts)
            except Exception:
                logger.exception("an observer of events failed; the run goes on")
        readers = self._readers.get(run_id)
        if readers and drafts:
            events = [
                self.shared.share(
                    Event(
                        event_id=made.event_id,
                        timestamp=made.timestamp,
                        origin=origin,
                        sequence=sequence,
                        type=made.type,
                        data=made.data,
                        raw=made.raw,
                    )
                )
                for sequence, made in enumerate(drafts, first)
            ]
            for reader in tuple(readers):
                reader.offer(events)
        if run_id in self._owners:
            self._positions[run_id] = first + len(drafts) - 1
        if first == 1:
            self._unfinished.add(run_id)
        if drafts:
            last = drafts[-1].data
            if isinstance(last, PAUSES):
                if run_id in self._unfinished:
                    self._paused.add(run_id)
                self._resolve_pauses(origin, last)
                if isinstance(last, RunEnd):
                    self._resolve_end(origin, last)
            elif run_id in self._owners:  # what is delivered to a run that waits changes nothing yet
                self._paused.discard(run_id)

    def _resolve_pauses(self, origin: Origin, pause: RunEnd | RunWaiting | AgentWaiting) -> None:
        # A run is not told that one below it lacks something, so all that are awaited are looked at again.
        is_blocked = isinstance(pause, RunWaiting) and pause.reason == "unavailable"
        for run_id in tuple(self._pauses) if is_blocked else (origin.run_id,):
            for waiter in self._pauses.pop(run_id, ()):
                if not waiter.done():
                    waiter.set_result((origin, pause))

    def _resolve_end(self, origin: Origin, end: RunEnd) -> None:
        self._unfinished.discard(origin.run_id)
        self._paused.discard(origin.run_id)
        for waiter in self._ends.pop(origin.run_id, ()):
            if not waiter.done():
                waiter.set_result((origin, end))

    def on_delivered(self, run_id: RunId) -> None:
        owner = self._owners.get(run_id)
        if owner is not None:
            owner()

    def wake(self, run_id: RunId, at: Instant) -> None:
        self.on_wake(run_id, at)

    def on_lost(self, error: StoreError) -> None:
        self._error = error
        for waiters in (*self._ends.values(), *self._pauses.values()):
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
        for readers in self._readers.values():
            for reader in readers:
                reader.fail(error)
        for waiter in self._commit_waiters:
            waiter.set()

    # ── For cluster_sync ──

    def publish_committed(self, events: Sequence[Event], known: int) -> None:
        """Offer events that another process has committed, all of one run, to each reader here that lacks them.

        Events up to `known` were offered before. Observers are not called: the process that owns the run has its
        own."""
        if not events:
            return
        run_id = events[0].run_id
        for reader in tuple(self._readers.get(run_id, ())):
            if reader.catching_up and run_id in self._owners:
                continue  # live text belongs between this process's commits; the next poll offers the events
            after = known if reader.catching_up else reader.last
            if lacking := [event for event in events if event.sequence > after]:
                reader.offer(lacking)
        pauses = [event.data for event in events if isinstance(event.data, PAUSES)]
        if pauses:
            self._resolve_pauses(events[-1].origin, pauses[-1])
        if isinstance(end := events[-1].data, RunEnd):
            self._resolve_end(events[-1].origin, end)

    def notify_changed(self, *run_ids: RunId) -> None:
        """Wake everything that waits for a commit. Whether these runs have ended is unknown from now on."""
        self._unfinished.difference_update(run_ids)
        self._paused.difference_update(run_ids)
        self.changes += 1
        for waiter in self._commit_waiters:
            waiter.set()

    def notify_of_news(self, run: "Changed") -> None:
        """Report that another process has committed to a run, or has woken it."""
        for observe in self.news_observers:
            observe(run)

    def notify_of_definitions(self) -> None:
        """Report that another process may have changed definitions of agents or skills."""
        for observe in self.definition_observers:
            observe()

    def notify_taken_elsewhere(self, run_id: RunId) -> None:
        """Report that another process works on the run."""
        if run_id not in self._owners:
            for forget in self.handover_observers:
                forget(run_id)

    def publish_live(self, event: Event) -> None:
        """Show a live event to the readers in this process."""
        for reader in tuple(self._readers.get(event.run_id, ())):
            reader.show(event)

    def list_watched_runs(self) -> set[RunId]:
        """Return the runs that are read here or whose end is awaited here."""
        return {*self._readers, *self._ends, *self._pauses}

    def list_read_runs(self) -> set[RunId]:
        """Return the runs that are read here."""
        return {*self._readers}

    def has_reader(self, run_id: RunId) -> bool:
        return run_id in self._readers

    def is_watched(self, run_id: RunId) -> bool:
        return run_id in self._readers or run_id in self._ends or run_id in self._pauses

    def slowest_position(self, run_id: RunId) -> int | None:
        """Return the sequence up to which all readers of the run have its events.

        Return None if the run has no readers, or only readers that are still catching up."""
        readers = self._readers.get(run_id, ())
        return min((reader.last for reader in readers if not reader.catching_up), default=None)

    def list_owned_runs(self) -> KeysView[RunId]:
        """Return the runs that this process owns."""
        return self._owners.keys()

    def committed_position(self, run_id: RunId) -> int:
        """Return the sequence of the last event that this process committed to a run that it owns; 0 if there is
        none."""
        return self._positions.get(run_id, 0)

    # ── For workers ──

    def has_readers(self, run_id: RunId) -> bool:
        """Return whether any reader would see a live event of this run."""
        return run_id in self._readers or (
            self.other_processes is not None and self.other_processes.is_interested(run_id)
        )

    def show_live(self, origin: Origin, sequence: int, data: EventData) -> None:
        """Show a live event to all current readers, here and in other processes."""
        run_id = origin.run_id
        if not self.has_readers(run_id):
            return
        event = self.make_event(origin, sequence, data)
        self.publish_live(event)
        if self.other_processes is not None and self.other_processes.is_interested(run_id):
            self.other_processes.send_live(event)

    def set_live_text(self, run_id: RunId, live_text: LiveText | None) -> None:
        """Set or clear the live text of a run. A reader that joins later gets it from its beginning."""
        if live_text is None:
            self._live_texts.pop(run_id, None)
            if self.other_processes is not None:
                self.other_processes.flush()
        else:
            self._live_texts[run_id] = live_text

    def set_live_output(self, run_id: RunId, call_id: str, output: LiveText | None) -> None:
        """Set or clear the output of a call in progress."""
        if output is not None:
            self._live_outputs.setdefault(run_id, {})[call_id] = output
        elif (outputs := self._live_outputs.get(run_id)) is not None:
            outputs.pop(call_id, None)
            if not outputs:
                del self._live_outputs[run_id]

    def set_owner(self, run_id: RunId, on_delivery: Callable[[], None]) -> None:
        """Call `on_delivery` whenever something is delivered to a run that is owned here."""
        self._owners[run_id] = on_delivery

    def notify_claimed(self, events: Sequence[Event]) -> None:
        """Report that a run was claimed here, with all events that are on record."""
        for take in self.claim_observers:
            take(events)

    def remove_owner(self, run_id: RunId, on_delivery: Callable[[], None]) -> None:
        """Forget an owner, if it is still the current one."""
        if self._owners.get(run_id) == on_delivery:
            del self._owners[run_id]
            self.client_waits.pop(run_id, None)
            self._positions.pop(run_id, None)
            self._live_texts.pop(run_id, None)
            self._live_outputs.pop(run_id, None)

    # ── For readers ──

    def subscribe(
        self,
        run_id: RunId,
        backlog: int = MAX_BACKLOG_EVENTS,
        gather_seconds: float = 0.0,
        memory: MemoryAccount = UNCOUNTED,
    ) -> Subscription:
        """Return a new reader of a run.

        Live events are gathered for `gather_seconds`. Durable events wait only when the process is behind."""
        self.raise_if_lost()
        reader = Subscription(partial(self.remove_reader, run_id), self._pace, backlog, gather_seconds, memory)
        self.add_reader(run_id, reader)
        return reader

    def add_reader(self, run_id: RunId, reader: Listener) -> None:
        """Give a reader the events of a run until it is removed."""
        self._readers.setdefault(run_id, []).append(reader)
        if self.other_processes is not None:
            self.other_processes.request_live(run_id)

    def remove_reader(self, run_id: RunId, reader: Listener) -> None:
        readers = self._readers.get(run_id, [])
        if reader in readers:
            readers.remove(reader)
        if not readers:
            self._readers.pop(run_id, None)

    @contextmanager
    def watch_commits(self) -> Generator[asyncio.Event]:
        """Yield an event that is set at every commit. The caller clears it, and calls `raise_if_lost`."""
        waiter = asyncio.Event()
        self._commit_waiters.add(waiter)
        try:
            yield waiter
        finally:
            self._commit_waiters.discard(waiter)

    def raise_if_lost(self) -> None:
        """Raise the error that ended the connection to the store, if there is one."""
        if self._error is not None:
            raise self._error

    def await_end(self, run_id: RunId) -> "asyncio.Future[EndedRun]":
        """Return a future that is done when the end of the run is committed. It is never done if that happened
        before."""
        self.raise_if_lost()
        waiter: asyncio.Future[EndedRun] = asyncio.get_running_loop().create_future()
        self._ends.setdefault(run_id, []).append(waiter)
        return waiter

    def stop_awaiting_end(self, run_id: RunId, waiter: "asyncio.Future[EndedRun]") -> None:
        _remove(self._ends, run_id, waiter)

    def await_pause(self, run_id: RunId) -> "asyncio.Future[PausedRun]":
        """Return a future that is done when the next pause of the run is committed."""
        self.raise_if_lost()
        waiter: asyncio.Future[PausedRun] = asyncio.get_running_loop().create_future()
        self._pauses.setdefault(run_id, []).append(waiter)
        return waiter

    def stop_awaiting_pause(self, run_id: RunId, waiter: "asyncio.Future[PausedRun]") -> None:
        _remove(self._pauses, run_id, waiter)

    def is_in_progress(self, run_id: RunId) -> bool:
        """Return whether this process knows, without reading the journal, that the run neither waits nor has
        ended."""
        return run_id in self._unfinished and run_id not in self._paused

    def is_unfinished(self, run_id: RunId) -> bool:
        """Return whether this process knows, without reading the journal, that the run has not ended."""
        return run_id in self._unfinished

    def has_live_text(self, run_id: RunId) -> bool:
        return run_id in self._live_texts

    def list_live_data(self, run_id: RunId) -> list[LiveDelta]:
        """Return the live text of a run and the output of its calls, each from its beginning."""
        return [data for text in self._list_live_texts(run_id) for data in text.make_live_events()]

    def list_live_events(self, run_id: RunId) -> list[Event]:
        """Return the live text of a run that is owned here, and the output of its calls, as events."""
        if run_id not in self._owners:
            return []
        return [
            self.make_event(text.origin, durable_sequence(data), data)
            for text in self._list_live_texts(run_id)
            for data in text.make_live_events()
        ]

    def _list_live_texts(self, run_id: RunId) -> list[LiveText]:
        reply = self._live_texts.get(run_id)
        return [*([] if reply is None else [reply]), *self._live_outputs.get(run_id, {}).values()]

    def make_event(self, origin: Origin, sequence: int, data: EventData) -> Event:
        """Return a live event with a new ID."""
        made = make_draft(self._ids("evt"), self._clock.now(), data)
        return Event(
            event_id=made.event_id,
            timestamp=made.timestamp,
            origin=origin,
            sequence=sequence,
            type=made.type,
            data=data,
            raw=made.raw,
        )


def durable_sequence(data: LiveDelta) -> int:
    """Return the sequence of the durable event that a live event belongs to."""
    return data.start if isinstance(data, ToolCallProgress) else data.request


def make_stream_reset(after: int) -> StreamReset:
    """Return the event that tells a reader that it was cut off."""
    return StreamReset(after, f"The reader fell too far behind; subscribe again after {after}.")


def _remove(waiting: dict[RunId, list[_Waiter]], run_id: RunId, waiter: _Waiter) -> None:
    waiters = waiting.get(run_id, [])
    if waiter in waiters:
        waiters.remove(waiter)
    if not waiters:
        waiting.pop(run_id, None)
