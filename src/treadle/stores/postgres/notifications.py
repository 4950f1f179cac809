"""Notifications between processes over PostgreSQL, on a dedicated connection that reconnects when it is lost.

`write_all` sends commit notices on one channel. Messages between processes use another, split into parts, because
the payload of a notification is limited to 8000 bytes."""

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
"""Bytes of a message in one notification, not counting the header."""
MAX_INCOMPLETE_MESSAGES = 100
"""Incomplete messages kept in memory. With more of them, their senders are dead."""
POLL_INTERVAL_SECONDS, REPLY_TIMEOUT_SECONDS = 5.0, 5.0
"""How often an idle connection is checked, and how long a reply may take."""
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.1, 3.0


class _CommitNotice(Struct, frozen=True):
    by: str
    runs: tuple[Changed, ...]
    definitions: bool = False
    """Whether a version of an agent or a shared skill was stored."""


_decode_notice = msgspec.json.Decoder(_CommitNotice).decode


class PostgresNotifications:
    """Implements `ports.notifications.NotificationChannel`. Notices of the writer `name` are ignored."""

    def __init__(self, database: PostgresDatabase, name: str) -> None:
        self._database = database
        self._name = name
        self._listener: NotificationListener | None = None
        self._connection: PostgresConnection | None = None
        self._query_lock = asyncio.Lock()
        self._down = asyncio.Event()
        self._keep_task: asyncio.Task[None] | None = None
        self._sent_count = 0
        self._incomplete: dict[str, list[str]] = {}

    async def open(self, listener: NotificationListener) -> None:
        self._listener = listener
        await self._connect()
        self._keep_task = asyncio.create_task(self._keep_connected(), name="treadle-notifications")

    async def send(self, messages: Sequence[bytes]) -> None:
        sent = [part for message in messages for part in self._split_message(message)]
        await self._execute("tell", MESSAGES_CHANNEL, sent)

    async def positions(self, run_ids: Sequence[RunId]) -> Sequence[Changed]:
        found = await self._database.rows("places", list(run_ids))  # the dedicated connection may be down
        return [Changed(row[0], row[1]) for row in found]

    async def close(self) -> None:
        if self._keep_task is not None:
            self._keep_task.cancel()
            await asyncio.wait({self._keep_task})
        self._drop()

    # ── Connection ──

    async def _keep_connected(self) -> None:
        """Reconnect whenever the connection is lost, until closed."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._down.wait(), POLL_INTERVAL_SECONDS)
            if not self._down.is_set():
                await self._execute("still_there")
            if self._down.is_set():
                await self._connect_again()

    async def _connect_again(self) -> None:
        pause = FIRST_BACKOFF_SECONDS
        while True:
            try:
                return await self._connect()
            except Exception as error:  # any error: without a retry this process would never hear again
                if pause == FIRST_BACKOFF_SECONDS:
                    logger.warning("no notifications from other processes until the database is back: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

    async def _connect(self) -> None:
        connection = await self._database.connect()
        self._down.clear()
        self._connection = connection
        connection.add_termination_listener(self._on_connection_lost)
        try:
            async with self._query_lock:
                await connection.add_listener(COMMITS_CHANNEL, self._on_commit_notice)
                await connection.add_listener(MESSAGES_CHANNEL, self._on_message_part)
        except BaseException:
            self._on_connection_lost(connection)
            raise
        self._incomplete.clear()
        if self._listener is not None:
            self._listener.on_missed()

    async def _execute(self, statement: str, *values: object) -> Sequence[PostgresRow]:
        async with self._query_lock:
            connection = self._connection
            if connection is None:
                return ()
            try:
                return await connection.fetch(SQL[statement], *values, timeout=REPLY_TIMEOUT_SECONDS)
            except Exception as error:  # the driver raises various errors when the connection closes
                logger.debug("the notification connection is down: %s", error)
                self._on_connection_lost(connection)
                return ()

    def _on_connection_lost(self, connection: PostgresConnection) -> None:
        if connection is self._connection:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._down.set()
        if connection is not None:
            connection.terminate()

    # ── Received notifications ──

    def _on_commit_notice(self, connection: PostgresConnection, process: int, channel: str, payload: str) -> None:
        del connection, process, channel
        try:
            notice = _decode_notice(payload)
        except msgspec.MsgspecError:
            return  # from a later version, or from another application
        if notice.by != self._name and self._listener is not None:
            self._listener.on_changed(notice.runs)
            if notice.definitions:
                self._listener.on_definitions_changed()

    def _on_message_part(self, connection: PostgresConnection, process: int, channel: str, payload: str) -> None:
        del connection, process, channel
        head, _, part = payload.partition("\n")
        match head.split():
            case [name, number, place, count] if name != self._name and self._listener is not None:
                message = self._complete_message(f"{name} {number}", place, count, part)
                if message is not None:
                    self._listener.on_message(message.encode())
            case _:
                pass

    def _split_message(self, message: bytes) -> list[str]:
        self._sent_count += 1
        texts, begin = list[str](), 0
        while begin < len(message):
            end = begin + MAX_PART_BYTES
            while end < len(message) and message[end] & 0xC0 == 0x80:  # do not split a character
                end -= 1
            texts.append(message[begin:end].decode())
            begin = end
        head = f"{self._name} {self._sent_count}"
        return [f"{head} {place} {len(texts)}\n{text}" for place, text in enumerate(texts)]

    def _complete_message(self, sender: str, place: str, count: str, part: str) -> str | None:
        """Return the message that this part completes, or None. Parts arrive in order; a message with missing parts
        is dropped."""
        if (place, count) == ("0", "1"):
            return part
        if place == "0":
            if len(self._incomplete) >= MAX_INCOMPLETE_MESSAGES:
                self._incomplete.clear()
            self._incomplete[sender] = []
        parts = self._incomplete.get(sender)
        if parts is None or str(len(parts)) != place:
            self._incomplete.pop(sender, None)
            return None
        parts.append(part)
        if str(len(parts)) != count:
            return None
        del self._incomplete[sender]
        return "".join(parts)
