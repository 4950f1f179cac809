"""Other processes on the same database: readers here see what runs go through there, and the other way round.

What was committed elsewhere is read from the journal, in order, whenever it is heard of; and every few seconds for
all runs that somebody here follows, so that what was not heard costs time and nothing else. Live events are sent
only of runs that somebody elsewhere has said they listen to, which must be said again and again."""

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice

import msgspec

from treadle.domain.envelope import Event, from_json
from treadle.domain.errors import StoreError, TreadleError
from treadle.domain.events import LlmError, LlmResponse, RunEnd, RunRecovered, Token
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub
from treadle.engine.live_relay import LiveReceiver, LiveSender, RelayMessage
from treadle.ports.journal import Journal
from treadle.ports.notifications import Changed, Line

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 5.0
"""How often it is looked how far the runs have come that somebody here follows, and said which these are."""
INTEREST_SECONDS = 3 * POLL_INTERVAL_SECONDS
"""For so long a run counts as listened to after it was said that it is."""
REQUEST_INTERVAL_SECONDS = 0.25
"""Between two requests for the same text, at least."""
MAX_WATCHED_RUNS = 2000
"""Runs whose live events are asked for at once. Of further ones only what is durable is seen."""
PAGE_EVENTS = 200
"""Events that are read at once. Readers who are further behind read the rest themselves."""
MAX_BUFFERED_EVENTS = 1000
"""Live events of a run that wait for the journal to be read."""
ENDS_OF_A_REPLY = (LlmResponse, LlmError, RunRecovered, RunEnd)
"""After these nothing more is said in answer to a request before them."""

_decode = msgspec.json.Decoder(RelayMessage).decode


class FollowedRun:
    """A run that somebody here follows, as far as it was heard of from elsewhere."""

    def __init__(self) -> None:
        self.known = 0
        """The last durable event that was read here; 0: none was."""
        self.heard_of = 0
        """The last of which it is known that it is there."""
        self.reading: asyncio.Task[None] | None = None
        self.later: list[Event] = []
        """Live events that came while the journal was read."""
        self.speech: LiveReceiver | None = None


class ClusterSync:
    """Implements `ports.line.Hearer` and `engine.hub.Others`."""

    def __init__(self, hub: EventHub, journal: Journal, line: Line) -> None:
        self._hub = hub
        self._journal = journal
        self._line = line
        self._voice = LiveSender(line)
        self._followed: dict[RunId, FollowedRun] = {}
        self._listened_to: dict[RunId, float] = {}
        """The runs that others listen to, and until when that holds."""
        self._lacks: dict[RunId, float] = {}
        """The runs in which something may be said now that was not heard from its beginning, and since when it is
        asked for."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._look = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        await self._line.open(self)
        self._hub.others = self
        self._tasks.add(asyncio.create_task(self._look_forever(), name="treadle-elsewhere"))

    async def close(self) -> None:
        self._hub.others = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._voice.close()
        await self._line.close()

    # ── What the hub tells and asks ──

    def listen_to(self, run_id: RunId) -> bool:
        until = self._listened_to.get(run_id)
        return until is not None and self._loop.time() < until

    def show(self, event: Event) -> None:
        self._voice.say(event)

    def hurry(self) -> None:
        self._voice.hurry()

    def watch(self, run_id: RunId) -> None:
        if run_id not in self._hub.owned() and self._hub.text_in_flight(run_id) is None:
            self._ask_for(run_id)

    # ── What is heard ──

    def changed(self, runs: Sequence[Changed]) -> None:
        for run in runs:
            if run.delivered:
                self._hub.delivered(run.run_id)
            else:
                self._hub.left_to_others(run.run_id)
            self._hub.changed_elsewhere(run.run_id)
            if self._hub.is_watched(run.run_id):
                self._read_up_to(run.run_id, run.sequence)
            else:
                self._leave(run.run_id)

    def missed(self) -> None:
        for run_id in tuple(self._hub.owned()):
            self._hub.delivered(run_id)
        watched = self._hub.watched()
        self._hub.changed_elsewhere(*watched)
        self._lacks |= dict.fromkeys(self._hub.read_here().difference(self._hub.owned()), self._loop.time())
        self._look.set()

    def told(self, message: bytes) -> None:
        try:
            said = _decode(message)
            events = [from_json(bytes(raw)) for raw in said.live]
        except msgspec.MsgspecError:
            return  # of a later version
        self._listened_to |= dict.fromkeys(said.listens, self._loop.time() + INTEREST_SECONDS)
        for run_id in said.lacks:
            if (whole := self._hub.said_here(run_id)) is not None:
                self._voice.say(whole)
        for event in events:
            if self._hub.is_read(event.run_id) and event.run_id not in self._hub.owned():
                self._overhear(event)

    # ── Following ──

    def _read_up_to(self, run_id: RunId, sequence: int) -> None:
        followed = self._followed.setdefault(run_id, FollowedRun())
        followed.heard_of = max(followed.heard_of, sequence)
        if followed.reading is None and followed.heard_of > followed.known:
            followed.reading = asyncio.create_task(self._read(run_id, followed), name=f"treadle-read-{run_id}")
            self._tasks.add(followed.reading)
            followed.reading.add_done_callback(self._tasks.discard)

    async def _read(self, run_id: RunId, followed: FollowedRun) -> None:
        """Read what is not known yet, show it, and then what was said live meanwhile."""
        later = list[Event]()
        try:
            while followed.heard_of > followed.known and self._hub.is_watched(run_id):
                await self._read_page(run_id, followed)
            later = followed.later
        except TreadleError as error:  # the next look finds what is missing
            logger.debug("%s cannot be read now: %s", run_id, error)
        except Exception:
            logger.exception("what happens elsewhere in %s cannot be shown", run_id)
        finally:
            followed.later, followed.reading = [], None
        if self._followed.get(run_id) is followed:
            for event in later:
                if event.sequence <= followed.known:
                    self._overhear(event)

    async def _read_page(self, run_id: RunId, followed: FollowedRun) -> None:
        wanted, behind = followed.heard_of, self._hub.behind(run_id)
        after = min(followed.known or wanted - 1, wanted - 1 if behind is None else behind)
        after = max(after, wanted - PAGE_EVENTS)
        events, known = await self._journal.read(run_id, after, PAGE_EVENTS), followed.known
        skipped = after if 0 < followed.known < after else 0
        followed.known = max(followed.known, events[-1].sequence if events else 0)
        if followed.known < followed.heard_of == wanted:
            followed.heard_of = followed.known  # it is not there, whoever has said so
        if events:
            speech = followed.speech = followed.speech or LiveReceiver(events[0].origin)
            speech.end(
                max(
                    (event.sequence for event in events if isinstance(event.data, ENDS_OF_A_REPLY)), default=skipped
                )
            )
            if speech.is_over and run_id not in self._hub.owned():
                self._hub.speaking(run_id, None)
        self._hub.heard(events, known)

    def _overhear(self, event: Event) -> None:
        """Show a live event behind the durable one that it belongs to, and no text twice or with a gap."""
        run_id = event.run_id
        self._read_up_to(run_id, event.sequence)
        followed = self._followed[run_id]
        if followed.reading is not None:
            if len(followed.later) < MAX_BUFFERED_EVENTS:
                followed.later.append(event)
            return
        speech = followed.speech = followed.speech or LiveReceiver(event.origin)
        if speech.is_late(event.data):
            return
        if not isinstance(event.data, Token):
            self._hub.overheard(event)
            return
        news = speech.new_in(event.data)
        if news is None:
            self._ask_for(run_id)
        elif news.text:
            self._lacks.pop(run_id, None)
            self._hub.speaking(run_id, speech)
            self._hub.overheard(self._hub.event(event.origin, event.sequence, news))

    def _ask_for(self, run_id: RunId) -> None:
        """Have what is being said there repeated, unless that was asked for just now; and again at every look."""
        now = self._loop.time()
        if now - self._lacks.get(run_id, -REQUEST_INTERVAL_SECONDS) >= REQUEST_INTERVAL_SECONDS:
            self._lacks[run_id] = now
            self._voice.listen((run_id,), (run_id,))
            self._voice.hurry()

    def _leave(self, run_id: RunId) -> None:
        """Nobody here follows it any more."""
        self._lacks.pop(run_id, None)
        left = self._followed.pop(run_id, None)
        if left is not None and run_id not in self._hub.owned():
            self._hub.speaking(run_id, None)

    # ── Looking by itself ──

    async def _look_forever(self) -> None:
        while True:
            try:
                await self._look_once()
            except StoreError as error:
                logger.debug("it cannot be looked what happens elsewhere: %s", error)
            except Exception:
                logger.exception("it could not be looked what happens elsewhere; it is tried again")
            try:
                async with asyncio.timeout(POLL_INTERVAL_SECONDS):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()

    async def _look_once(self) -> None:
        now = self._loop.time()
        self._listened_to = {run_id: until for run_id, until in self._listened_to.items() if until > now}
        for run_id in [run_id for run_id in self._followed if not self._hub.is_watched(run_id)]:
            self._leave(run_id)
        self._hub.changed_elsewhere()  # somebody may wait for anything at all, and it was not heard
        watched, owned = self._hub.watched(), self._hub.owned()
        read = self._hub.read_here()
        self._lacks = {run_id: since for run_id, since in self._lacks.items() if run_id in read}
        self._voice.listen(tuple(islice(read.difference(owned), MAX_WATCHED_RUNS)), self._lacks)
        if watched or owned:
            for place in await self._line.places([*watched.union(owned)]):
                self._find(place)

    def _find(self, place: Changed) -> None:
        """A run that is followed or worked on here has come so far."""
        run_id, sequence = place.run_id, place.sequence
        if run_id in self._hub.owned():
            if sequence > self._hub.committed_here(run_id):
                self._hub.delivered(run_id)
            behind = self._hub.behind(run_id)
            if behind is None or behind >= sequence:
                return
            if run_id in self._followed:
                self._followed[run_id].known = min(self._followed[run_id].known, behind)
        if self._hub.is_watched(run_id):
            self._read_up_to(run_id, sequence)
