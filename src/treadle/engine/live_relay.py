"""The exchange of live events between processes on one database. Events are gathered for a moment and adjacent
text is joined."""

import asyncio
from collections.abc import Collection

import msgspec
from msgspec import Raw, Struct

from treadle.domain.envelope import Event, Origin, to_json
from treadle.domain.events import EventData, ThinkingDelta, Token, ToolCallDelta, ToolCallProgress
from treadle.domain.ids import RunId
from treadle.engine.text_blocks import LiveDelta, LiveOutput, ReplyDelta, TextKey, WrittenReply, text_key
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
        self._reply = WrittenReply()
        self._outputs: dict[TextKey, LiveOutput] = {}
        self._ended_before = 0

    def make_live_events(self) -> list[LiveDelta]:
        return [
            *self._reply.make_live_events(),
            *(data for output in self._outputs.values() for data in output.make_live_events()),
        ]

    def end_before(self, sequence: int) -> None:
        """Note that the replies to all requests before this sequence have ended."""
        self._ended_before = max(self._ended_before, sequence)
        if self._reply.request < self._ended_before:
            self._reply = WrittenReply()

    def end_call(self, call_id: str) -> None:
        """Note that a call has ended."""
        self._outputs = {key: output for key, output in self._outputs.items() if output.call_id != call_id}

    @property
    def has_ended(self) -> bool:
        return not self._reply.request and not self._outputs

    def is_late(self, data: EventData) -> bool:
        """Return whether the event belongs to a request that has been answered."""
        request = getattr(data, "request", None)
        return isinstance(request, int) and request < self._ended_before

    def extract_new(self, data: LiveDelta) -> LiveDelta | None:
        """Return the part of the event that is new, possibly empty, or None if text before it is missing."""
        if isinstance(data, ToolCallProgress):
            return self._extract_output(data)
        reply = self._reply
        if (data.request, data.attempt) < (reply.request, reply.attempt):
            return _with_text(data, data.offset, "")
        if (data.request, data.attempt) > (reply.request, reply.attempt):
            reply = self._reply = WrittenReply(data.request, data.attempt)
        text = reply.find_text(data)
        known = text.length - data.offset
        if known < 0:
            return None
        added = (data.arguments if isinstance(data, ToolCallDelta) else data.text)[known:]
        text.append(added)
        return _with_text(data, text.length - len(added), added)

    def _extract_output(self, data: ToolCallProgress) -> ToolCallProgress | None:
        output = self._outputs.get(text_key(data))
        if output is None:
            output = self._outputs[text_key(data)] = LiveOutput(self.origin, data.start, data.call_id)
            output.length = data.offset  # its beginning may be dropped already
        known = output.length - data.offset
        if known < 0:
            return None
        added = data.text[known:]
        output.append(added)
        return msgspec.structs.replace(data, offset=output.length - len(added), text=added)


def _with_text(data: ReplyDelta, offset: int, text: str) -> ReplyDelta:
    if isinstance(data, ToolCallDelta):
        return msgspec.structs.replace(data, offset=offset, arguments=text)
    return msgspec.structs.replace(data, offset=offset, text=text)
