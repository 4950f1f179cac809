"""The line between processes over PostgreSQL: a connection that listens, and is made anew whenever it is lost.

What is committed is told by `write_all` itself, on one channel; what processes tell each other goes over another,
in as many parts as it takes, for a notification has less than 8000 bytes."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from treadle.domain.ids import RunId
from treadle.ports.notifications import Changed, NotificationListener
from treadle.stores.postgres.connection import SQL
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresConnection, PostgresRow

logger = logging.getLogger(__name__)

COMMITS_CHANNEL, MESSAGES_CHANNEL = "treadle", "treadle_talk"
MAX_PART_BYTES = 7800
"""Of a message in one notification, beside its head."""
MAX_INCOMPLETE_MESSAGES = 100
"""Of messages that have not come to their end. Where there are more, those who have sent them are dead."""
POLL_INTERVAL_SECONDS, REPLY_TIMEOUT_SECONDS = 5.0, 5.0
"""How often the connection is tried where nothing else is asked on it, and how long an answer may take."""
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.1, 3.0


class _CommitNotice(Struct, frozen=True):
    by: str
    runs: tuple[tuple[RunId, int, bool], ...]


_decode_notice = msgspec.json.Decoder(_CommitNotice).decode


class PostgresNotifications:
    """Implements `ports.notifications.NotificationChannel`. `name` is that of the writer of this process.

    Notifications of that writer are ignored: the process knows them."""

    def __init__(self, database: PostgresDatabase, name: str) -> None:
        self._database = database
        self._name = name
        self._listener: NotificationListener | None = None
        self._connection: PostgresConnection | None = None
        self._asking = asyncio.Lock()
        self._down = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._said = 0
        self._halves: dict[str, list[str]] = {}

    async def open(self, listener: NotificationListener) -> None:
        self._listener = listener
        await self._connect()
        self._keeping = asyncio.create_task(self._keep(), name="treadle-line")

    async def send(self, messages: Sequence[bytes]) -> None:
        sent = [part for message in messages for part in self._parts(message)]
        await self._ask("tell", MESSAGES_CHANNEL, sent)

    async def positions(self, run_ids: Sequence[RunId]) -> Sequence[Changed]:
        found = await self._database.rows("places", list(run_ids))  # not on the line: it may be down
        return [Changed(row[0], row[1]) for row in found]

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        self._drop()

    # ── The connection ──

    async def _keep(self) -> None:
        """See to it that there is a connection, for as long as this is open."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._down.wait(), POLL_INTERVAL_SECONDS)
            if not self._down.is_set():
                await self._ask("still_there")
            if self._down.is_set():
                await self._connect_again()

    async def _connect_again(self) -> None:
        pause = FIRST_BACKOFF_SECONDS
        while True:
            try:
                return await self._connect()
            except Exception as error:  # whatever it is: who gives up here hears nothing for ever
                if pause == FIRST_BACKOFF_SECONDS:
                    logger.warning("other processes are not heard until the database is back: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

    async def _connect(self) -> None:
        connection = await self._database.connect()
        self._down.clear()
        self._connection = connection
        connection.add_termination_listener(self._lost)
        try:
            async with self._asking:
                await connection.add_listener(COMMITS_CHANNEL, self._heard_news)
                await connection.add_listener(MESSAGES_CHANNEL, self._heard_talk)
        except BaseException:
            self._lost(connection)
            raise
        self._halves.clear()
        if self._listener is not None:
            self._listener.on_missed()

    async def _ask(self, statement: str, *values: object) -> Sequence[PostgresRow]:
        async with self._asking:
            connection = self._connection
            if connection is None:
                return ()
            try:
                return await connection.fetch(SQL[statement], *values, timeout=REPLY_TIMEOUT_SECONDS)
            except Exception as error:  # the driver has words of its own for a connection that is closed meanwhile
                logger.debug("the line is down: %s", error)
                self._lost(connection)
                return ()

    def _lost(self, connection: PostgresConnection) -> None:
        if connection is self._connection:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._down.set()
        if connection is not None:
            connection.terminate()

    # ── What is heard ──

    def _heard_news(self, connection: PostgresConnection, process: int, channel: str, payload: str) -> None:
        del connection, process, channel
        try:
            news = _decode_notice(payload)
        except msgspec.MsgspecError:
            return  # of a later version, or of somebody who has nothing to do with us
        if news.by != self._name and self._listener is not None:
            self._listener.on_changed([Changed(*note) for note in news.runs])

    def _heard_talk(self, connection: PostgresConnection, process: int, channel: str, payload: str) -> None:
        del connection, process, channel
        head, _, part = payload.partition("\n")
        match head.split():
            case [name, number, place, count] if name != self._name and self._listener is not None:
                message = self._whole(f"{name} {number}", place, count, part)
                if message is not None:
                    self._listener.on_message(message.encode())
            case _:
                pass

    def _parts(self, message: bytes) -> list[str]:
        self._said += 1
        texts, begin = list[str](), 0
        while begin < len(message):
            end = begin + MAX_PART_BYTES
            while end < len(message) and message[end] & 0xC0 == 0x80:  # not within a character
                end -= 1
            texts.append(message[begin:end].decode())
            begin = end
        head = f"{self._name} {self._said}"
        return [f"{head} {place} {len(texts)}\n{text}" for place, text in enumerate(texts)]

    def _whole(self, whose: str, place: str, count: str, part: str) -> str | None:
        """The message that this part completes. They come in order; one of which some are missing is forgotten."""
        if (place, count) == ("0", "1"):
            return part
        if place == "0":
            if len(self._halves) >= MAX_INCOMPLETE_MESSAGES:
                self._halves.clear()
            self._halves[whose] = []
        parts = self._halves.get(whose)
        if parts is None or str(len(parts)) != place:
            self._halves.pop(whose, None)
            return None
        parts.append(part)
        if str(len(parts)) != count:
            return None
        del self._halves[whose]
        return "".join(parts)
