"""What processes on one database tell each other of what is being said: gathered for a moment, and put together."""

import asyncio
from collections.abc import Collection

import msgspec
from msgspec import Raw, Struct

from treadle.domain.envelope import Event, Origin, to_json
from treadle.domain.events import EventData, ThinkingDelta, Token
from treadle.domain.ids import RunId
from treadle.ports.notifications import Line

GATHER_SECONDS = 0.03
"""For so long live events wait for more."""
MAX_PENDING_BYTES = 2**20
"""Of text that waits to be sent. Where there is more, the line is down or slow, and all of it is dropped."""


class RelayMessage(Struct, frozen=True, omit_defaults=True):
    """What one process tells the others."""

    listens: tuple[RunId, ...] = ()
    """To these runs somebody listens there."""
    lacks: tuple[RunId, ...] = ()
    """What is being said in these now was not heard there from its beginning."""
    live: tuple[Raw, ...] = ()
    """Live events, in order."""


_encode = msgspec.json.Encoder().encode


class LiveSender:
    """Tells the others, one message after the other."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._live: dict[RunId, list[Event]] = {}
        self._size = 0
        self._listens: set[RunId] = set()
        self._lacks: set[RunId] = set()
        self._hurry = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def say(self, event: Event) -> None:
        """A live event of a run that is worked on here."""
        self._size += len(event.raw)
        if self._size > MAX_PENDING_BYTES:
            self._live.clear()  # whoever listens finds that something is missing, and asks for it
            self._size = 0
        gathered = self._live.setdefault(event.run_id, [])
        joined = _join_pieces(gathered[-1], event) if gathered else None
        if joined is None:
            gathered.append(event)
        else:
            gathered[-1] = joined
        self._begin()

    def listen(self, run_ids: Collection[RunId], lacks: Collection[RunId]) -> None:
        """Somebody here listens to these, and lacks what is being said in some of them."""
        self._listens.update(run_ids)
        self._lacks.update(lacks)
        if self._listens:
            self._begin()

    def hurry(self) -> None:
        """Wait for nothing more."""
        if self._sending is not None:
            self._hurry.set()

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})

    def _begin(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send(), name="treadle-voice")

    async def _send(self) -> None:
        try:
            while self._live or self._listens:
                try:
                    async with asyncio.timeout(GATHER_SECONDS):
                        await self._hurry.wait()
                except TimeoutError:
                    pass
                self._hurry.clear()
                await self._line.tell([_encode(self._gathered())])
        finally:
            self._sending = None

    def _gathered(self) -> RelayMessage:
        live = [Raw(to_json(_with_bytes(event))) for events in self._live.values() for event in events]
        message = RelayMessage(tuple(self._listens), tuple(self._lacks), tuple(live))
        self._live, self._size = {}, 0
        self._listens.clear()
        self._lacks.clear()
        return message


def _join_pieces(before: Event, event: Event) -> Event | None:
    """Two pieces of the same text as one, where the second follows the first."""
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
    """With its bytes, which one that was joined has not."""
    return event if event.raw else msgspec.structs.replace(event, raw=_encode(event.data))


class LiveReceiver:
    """What is being said in a run that is worked on elsewhere, as far as it was heard from its beginning.
    Implements `engine.hub.Speech`."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._answers = (0, 0)
        """The request that is answered, and which attempt it is."""
        self._text = ""
        self._over = 0

    def so_far(self) -> Token:
        return Token(*self._answers, 0, self._text)

    def end(self, sequence: int) -> None:
        """Nothing more is said in answer to requests before this."""
        self._over = max(self._over, sequence)

    @property
    def is_over(self) -> bool:
        return self._answers[0] < self._over

    def is_late(self, data: EventData) -> bool:
        """Whether this belongs to a request that has been answered."""
        request = getattr(data, "request", None)
        return isinstance(request, int) and request < self._over

    def new_in(self, token: Token) -> Token | None:
        """What the token adds to what was heard, maybe nothing. None: something before it is missing."""
        if (token.request, token.attempt) < self._answers:
            return msgspec.structs.replace(token, text="")
        if (token.request, token.attempt) > self._answers:
            self._answers, self._text = (token.request, token.attempt), ""
        known = len(self._text) - token.offset
        if known < 0:
            return None
        added = token.text[known:]
        self._text += added
        return msgspec.structs.replace(token, offset=len(self._text) - len(added), text=added)
