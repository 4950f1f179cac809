"""The exchange of live events between processes on one database. Events are gathered for a moment and adjacent
text is joined."""

import asyncio
from collections.abc import Collection

import msgspec
from msgspec import Raw, Struct

from treadle.domain.envelope import Event, Origin, to_json
from treadle.domain.events import EventData, ThinkingDelta, Token
from treadle.domain.ids import RunId
from treadle.engine.text_blocks import TextBlocks, make_tokens
from treadle.ports.notifications import NotificationChannel

GATHER_SECONDS = 0.03
"""How long live events wait for more before they are sent."""
MAX_PENDING_BYTES = 2**20
"""Maximum size of text that waits to be sent. If there is more, the channel is down or slow, and all of it is
dropped."""


class RelayMessage(Struct, frozen=True, omit_defaults=True):
    """A message from one process to all others."""

    listens: tuple[RunId, ...] = ()
    """The runs that are read in the sending process."""
    lacks: tuple[RunId, ...] = ()
    """The runs whose live text the sender does not know from its beginning."""
    live: tuple[Raw, ...] = ()
    """Live events, in order."""


_encode = msgspec.json.Encoder().encode


class LiveSender:
    """Sends messages to the other processes, one at a time."""

    def __init__(self, channel: NotificationChannel) -> None:
        self._channel = channel
        self._live: dict[RunId, list[Event]] = {}
        self._size = 0
        self._listens: set[RunId] = set()
        self._lacks: set[RunId] = set()
        self._flush_now = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def send(self, event: Event) -> None:
        """Send a live event of a run that is owned here."""
        self._size += len(event.raw)
        if self._size > MAX_PENDING_BYTES:
            self._live.clear()  # receivers notice the gap and ask for the text
            self._size = 0
        gathered = self._live.setdefault(event.run_id, [])
        joined = _join_pieces(gathered[-1], event) if gathered else None
        if joined is None:
            gathered.append(event)
        else:
            gathered[-1] = joined
        self._start()

    def announce_readers(self, run_ids: Collection[RunId], lacks: Collection[RunId]) -> None:
        """Announce that these runs are read here, and which of them lack the beginning of their live text."""
        self._listens.update(run_ids)
        self._lacks.update(lacks)
        if self._listens:
            self._start()

    def flush(self) -> None:
        """Send what has been gathered now."""
        if self._sending is not None:
            self._flush_now.set()

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})

    def _start(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name="treadle-live-sender")

    async def _send_all(self) -> None:
        try:
            while self._live or self._listens:
                try:
                    async with asyncio.timeout(GATHER_SECONDS):
                        await self._flush_now.wait()
                except TimeoutError:
                    pass
                self._flush_now.clear()
                await self._channel.send([_encode(self._take_message())])
        finally:
            self._sending = None

    def _take_message(self) -> RelayMessage:
        live = [Raw(to_json(_with_bytes(event))) for events in self._live.values() for event in events]
        message = RelayMessage(tuple(self._listens), tuple(self._lacks), tuple(live))
        self._live, self._size = {}, 0
        self._listens.clear()
        self._lacks.clear()
        return message


def _join_pieces(before: Event, event: Event) -> Event | None:
    """Return two pieces of the same text as one if the second follows the first, else None."""
    first, second = before.data, event.data
    if (
        isinstance(first, Token | ThinkingDelta)
        and isinstance(second, Token | ThinkingDelta)
        and type(first) is type(second)
        and (first.request, first.attempt) == (second.request, second.attempt)
        and first.offset + len(first.text) == second.offset
    ):
        return msgspec.structs.replace(
            before, data=msgspec.structs.replace(first, text=first.text + second.text), raw=b""
        )
    return None


def _with_bytes(event: Event) -> Event:
    """Return the event with its encoded bytes, which a joined event lacks."""
    return event if event.raw else msgspec.structs.replace(event, raw=_encode(event.data))


class LiveReceiver:
    """The live text of a run that another process owns, as far as it was received from its beginning. Implements
    `engine.event_hub.LiveText`."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._request = (0, 0)
        """The request that is being answered, and the attempt."""
        self._text = TextBlocks()
        self._ended_before = 0

    def make_tokens(self) -> list[Token]:
        return make_tokens(*self._request, self._text)

    def end_before(self, sequence: int) -> None:
        """Note that the replies to all requests before this sequence have ended."""
        self._ended_before = max(self._ended_before, sequence)

    @property
    def has_ended(self) -> bool:
        return self._request[0] < self._ended_before

    def is_late(self, data: EventData) -> bool:
        """Return whether the event belongs to a request that has been answered."""
        request = getattr(data, "request", None)
        return isinstance(request, int) and request < self._ended_before

    def extract_new(self, token: Token) -> Token | None:
        """Return the part of the token that is new, possibly empty, or None if text before it is missing."""
        if (token.request, token.attempt) < self._request:
            return msgspec.structs.replace(token, text="")
        if (token.request, token.attempt) > self._request:
            self._request, self._text = (token.request, token.attempt), TextBlocks()
        known = self._text.length - token.offset
        if known < 0:
            return None
        added = token.text[known:]
        self._text.append(added)
        return msgspec.structs.replace(token, offset=self._text.length - len(added), text=added)
