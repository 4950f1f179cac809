"""Synchronisation with other processes on the same database: readers here see the runs that execute there, and the
reverse.

Events that other processes commit are read from the journal, in order, when a notification arrives. A poll every
few seconds covers lost notifications, so they cost time and nothing else. Live events are sent only for runs that
a reader in another process has asked for, and each process repeats its interest at every poll."""

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice

import msgspec

from treadle.domain.envelope import Event, from_json
from treadle.domain.errors import StoreError, TreadleError
from treadle.domain.events import (
    LlmError,
    LlmResponse,
    RunEnd,
    RunRecovered,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallError,
)
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub
from treadle.engine.live_relay import LiveReceiver, LiveSender, RelayMessage
from treadle.engine.text_blocks import LiveDelta, text_end
from treadle.ports.journal import Journal
from treadle.ports.notifications import Changed, NotificationChannel

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 5.0
"""Poll interval for watched runs. Each poll also announces to the other processes which runs are read here."""
INTEREST_SECONDS = 3 * POLL_INTERVAL_SECONDS
"""How long another process's interest in a run lasts after an announcement."""
REQUEST_INTERVAL_SECONDS = 0.25
"""Minimum interval between two requests to repeat the same text."""
MAX_WATCHED_RUNS = 2000
"""Maximum number of runs whose live events are requested. Readers of further runs see durable events only."""
PAGE_EVENTS = 200
"""Maximum number of events per read. Readers that are further behind read the rest themselves."""
MAX_BUFFERED_EVENTS = 1000
"""Maximum number of live events per run that wait while the journal is read."""
ENDS_OF_A_REPLY = (LlmResponse, LlmError, RunRecovered, RunEnd)
"""Events after which the reply to an earlier request has ended."""

_decode = msgspec.json.Decoder(RelayMessage).decode


class FollowedRun:
    """A run that a reader in this process follows, and how much of it is known here."""

    def __init__(self) -> None:
        self.last_read = 0
        """Sequence of the last durable event that was read here; 0 if none was."""
        self.last_known = 0
        """Sequence of the last event that is known to exist."""
        self.reading: asyncio.Task[None] | None = None
        self.buffered: list[Event] = []
        """Live events that arrived while the journal was read."""
        self.live_text: LiveReceiver | None = None


class ClusterSync:
    """Implements `ports.notifications.NotificationListener` and `engine.event_hub.OtherProcesses`."""

    def __init__(self, hub: EventHub, journal: Journal, channel: NotificationChannel) -> None:
        self._hub = hub
        self._journal = journal
        self._channel = channel
        self._sender = LiveSender(channel)
        self._followed: dict[RunId, FollowedRun] = {}
        self._interested_until: dict[RunId, float] = {}
        """The runs that other processes are interested in, and until when."""
        self._incomplete: dict[RunId, float] = {}
        """The runs whose live text is not known from its beginning, and when it was last requested."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._poll_now = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        await self._channel.open(self)
        self._hub.other_processes = self
        self._tasks.add(asyncio.create_task(self._poll_forever(), name="treadle-cluster-sync"))

    async def close(self) -> None:
        self._hub.other_processes = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._sender.close()
        await self._channel.close()

    # ── OtherProcesses ──

    def is_interested(self, run_id: RunId) -> bool:
        until = self._interested_until.get(run_id)
        return until is not None and self._loop.time() < until

    def send_live(self, event: Event) -> None:
        self._sender.send(event)

    def flush(self) -> None:
        self._sender.flush()

    def request_live(self, run_id: RunId) -> None:
        if run_id not in self._hub.list_owned_runs() and not self._hub.has_live_text(run_id):
            self._request_text(run_id)

    # ── NotificationListener ──

    def on_changed(self, runs: Sequence[Changed]) -> None:
        for run in runs:
            if run.delivered:
                self._hub.on_delivered(run.run_id)
            else:
                self._hub.notify_taken_elsewhere(run.run_id)
            self._hub.notify_changed(run.run_id)
            self._hub.notify_of_news(run)
            if self._hub.is_watched(run.run_id):
                self._read_until(run.run_id, run.sequence)
            else:
                self._unfollow(run.run_id)

    def on_missed(self) -> None:
        for run_id in tuple(self._hub.list_owned_runs()):
            self._hub.on_delivered(run_id)
        watched = self._hub.list_watched_runs()
        self._hub.notify_changed(*watched)
        self._incomplete |= dict.fromkeys(
            self._hub.list_read_runs().difference(self._hub.list_owned_runs()), self._loop.time()
        )
        self._hub.notify_of_definitions()
        self._poll_now.set()

    def on_definitions_changed(self) -> None:
        self._hub.notify_of_definitions()

    def on_message(self, message: bytes) -> None:
        try:
            relayed = _decode(message)
            events = [from_json(bytes(raw)) for raw in relayed.live]
        except msgspec.MsgspecError:
            return  # sent by a later version
        self._interested_until |= dict.fromkeys(relayed.listens, self._loop.time() + INTEREST_SECONDS)
        for run_id in relayed.lacks:
            for whole in self._hub.list_live_events(run_id):
                self._sender.send(whole)
        for event in events:
            if self._hub.has_reader(event.run_id) and event.run_id not in self._hub.list_owned_runs():
                self._receive_live(event)

    # ── Following runs ──

    def _read_until(self, run_id: RunId, sequence: int) -> None:
        followed = self._followed.setdefault(run_id, FollowedRun())
        followed.last_known = max(followed.last_known, sequence)
        if followed.reading is None and followed.last_known > followed.last_read:
            followed.reading = asyncio.create_task(self._read(run_id, followed), name=f"treadle-read-{run_id}")
            self._tasks.add(followed.reading)
            followed.reading.add_done_callback(self._tasks.discard)

    async def _read(self, run_id: RunId, followed: FollowedRun) -> None:
        """Read and publish the events that are not known yet, then the live events that arrived meanwhile."""
        buffered = list[Event]()
        try:
            while followed.last_known > followed.last_read and self._hub.is_watched(run_id):
                await self._read_page(run_id, followed)
            buffered = followed.buffered
        except TreadleError as error:  # the next poll reads what is missing
            logger.debug("run %s: cannot read the journal now: %s", run_id, error)
        except Exception:
            logger.exception("run %s: cannot publish the events of another process", run_id)
        finally:
            followed.buffered, followed.reading = [], None
        if self._followed.get(run_id) is followed:
            for event in buffered:
                if event.sequence <= followed.last_read:
                    self._receive_live(event)

    async def _read_page(self, run_id: RunId, followed: FollowedRun) -> None:
        wanted, behind = followed.last_known, self._hub.slowest_position(run_id)
        after = min(followed.last_read or wanted - 1, wanted - 1 if behind is None else behind)
        after = max(after, wanted - PAGE_EVENTS)
        events, known = await self._journal.read(run_id, after, PAGE_EVENTS), followed.last_read
        skipped = after if 0 < followed.last_read < after else 0
        followed.last_read = max(followed.last_read, events[-1].sequence if events else 0)
        if followed.last_read < followed.last_known == wanted:
            followed.last_known = followed.last_read  # the announced event does not exist
        if events:
            live_text = followed.live_text = followed.live_text or LiveReceiver(events[0].origin)
            live_text.end_before(
                max(
                    (event.sequence for event in events if isinstance(event.data, ENDS_OF_A_REPLY)), default=skipped
                )
            )
            for event in events:
                if isinstance(event.data, ToolCallEnd | ToolCallError):
                    live_text.end_call(event.data.call_id)
            if live_text.has_ended and run_id not in self._hub.list_owned_runs():
                self._hub.set_live_text(run_id, None)
        self._hub.publish_committed(events, known)

    def _receive_live(self, event: Event) -> None:
        """Publish a live event after the durable event that it belongs to, with no text repeated or missing."""
        run_id = event.run_id
        self._read_until(run_id, event.sequence)
        followed = self._followed[run_id]
        if followed.reading is not None:
            if len(followed.buffered) < MAX_BUFFERED_EVENTS:
                followed.buffered.append(event)
            return
        live_text = followed.live_text = followed.live_text or LiveReceiver(event.origin)
        if live_text.is_late(event.data):
            return
        if not isinstance(event.data, LiveDelta):
            self._hub.publish_live(event)
            return
        added = live_text.extract_new(event.data)
        if added is None:
            self._request_text(run_id)
        elif text_end(added) > added.offset or isinstance(added, ToolCallDelta):
            self._incomplete.pop(run_id, None)
            self._hub.set_live_text(run_id, live_text)
            self._hub.publish_live(self._hub.make_event(event.origin, event.sequence, added))

    def _request_text(self, run_id: RunId) -> None:
        """Ask for the live text from its beginning, at most once per interval. Every poll asks again."""
        now = self._loop.time()
        if now - self._incomplete.get(run_id, -REQUEST_INTERVAL_SECONDS) >= REQUEST_INTERVAL_SECONDS:
            self._incomplete[run_id] = now
            self._sender.announce_readers((run_id,), (run_id,))
            self._sender.flush()

    def _unfollow(self, run_id: RunId) -> None:
        """Forget a run that no reader here follows any more."""
        self._incomplete.pop(run_id, None)
        left = self._followed.pop(run_id, None)
        if left is not None and run_id not in self._hub.list_owned_runs():
            self._hub.set_live_text(run_id, None)

    # ── Polling ──

    async def _poll_forever(self) -> None:
        while True:
            try:
                await self._poll()
            except StoreError as error:
                logger.debug("polling other processes failed: %s", error)
            except Exception:
                logger.exception("polling other processes failed; retrying")
            try:
                async with asyncio.timeout(POLL_INTERVAL_SECONDS):
                    await self._poll_now.wait()
            except TimeoutError:
                pass
            self._poll_now.clear()

    async def _poll(self) -> None:
        now = self._loop.time()
        self._interested_until = {run_id: until for run_id, until in self._interested_until.items() if until > now}
        for run_id in [run_id for run_id in self._followed if not self._hub.is_watched(run_id)]:
            self._unfollow(run_id)
        self._hub.notify_changed()  # notifications about any run may have been lost
        watched, owned = self._hub.list_watched_runs(), self._hub.list_owned_runs()
        read = self._hub.list_read_runs()
        self._incomplete = {run_id: since for run_id, since in self._incomplete.items() if run_id in read}
        self._sender.announce_readers(tuple(islice(read.difference(owned), MAX_WATCHED_RUNS)), self._incomplete)
        if watched or owned:
            for position in await self._channel.positions([*watched.union(owned)]):
                self._apply_position(position)

    def _apply_position(self, position: Changed) -> None:
        """Catch up with the position of a run that is read or owned here."""
        run_id, sequence = position.run_id, position.sequence
        if run_id in self._hub.list_owned_runs():
            if sequence > self._hub.committed_position(run_id):
                self._hub.on_delivered(run_id)
            behind = self._hub.slowest_position(run_id)
            if behind is None or behind >= sequence:
                return
            if run_id in self._followed:
                self._followed[run_id].last_read = min(self._followed[run_id].last_read, behind)
        if self._hub.is_watched(run_id):
            self._read_until(run_id, sequence)
