"""Messages on their way to a platform: stored before they are sent, in order in each conversation, and retried."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from msgspec.structs import replace

from treadle.channels.parts import split_for_channel
from treadle.channels.tasks import TaskSet
from treadle.domain.channels import ChannelConfig
from treadle.domain.durations import parse_duration
from treadle.domain.events import ChannelFailed, ChannelSent, EventData
from treadle.domain.ids import RunId
from treadle.domain.webhooks import retry_delay
from treadle.ports.channel import (
    DEFAULT_COMMAND_PREFIX,
    Channel,
    ChannelBusy,
    ChannelRefused,
    ContentRefused,
    Outgoing,
    UploadChannel,
)
from treadle.ports.channel_store import ChannelStore, OutboxItem
from treadle.ports.clock import Clock

logger = logging.getLogger(__name__)

SEND_SECONDS = 60.0
MAX_BUSY_SECONDS = 300.0
MAX_RETRY_SECONDS = 600.0
TEXT_SUFFIX, REFUSED_SUFFIX = "/text", "/refused"
"""Ends of the keys of parts of a message, and of the notice that it was refused."""
UNKNOWN_ID = "?"
"""The ID of an unfinished message while it is being sent. It stays if the answer of the platform is lost."""
Show = Callable[[RunId, EventData], Awaitable[None]]


class ChannelOutbox:
    """Sends the messages of one channel. Only the process that holds the channel's lease has one."""

    def __init__(
        self,
        name: str,
        config: ChannelConfig,
        store: ChannelStore,
        clock: Clock,
        random: Callable[[], float],
        show: Show,
        count: Callable[[str], None],
    ) -> None:
        self._name = name
        self._give_up = parse_duration(config.give_up)
        self._store = store
        self._clock = clock
        self._random = random
        self._show = show
        self._count = count
        self._tasks = TaskSet()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._channel: Channel | None = None
        self.command_prefix = DEFAULT_COMMAND_PREFIX
        """What people write before a command on the platform, since the first connection."""
        self._attached = asyncio.Event()
        self._free_at = 0.0

    @property
    def channel(self) -> Channel | None:
        """The connected channel."""
        return self._channel

    @property
    def is_free(self) -> bool:
        """Whether the platform has not asked for a pause."""
        return self._clock.monotonic() >= self._free_at

    def attach(self, channel: Channel) -> None:
        self._channel = channel
        self.command_prefix = channel.traits.command_prefix
        self._attached.set()

    def detach(self) -> None:
        self._channel = None
        self._attached.clear()

    async def connection(self) -> Channel:
        """Wait for a connection."""
        while self._channel is None:
            await self._attached.wait()
        return self._channel

    async def wake_all(self) -> None:
        """Send what is ready."""
        for conversation in {item.conversation for item in await self._store.outbox(self._name)}:
            self.wake(conversation)

    def wake(self, conversation: str) -> None:
        """Send what is ready in a conversation."""
        self._tasks.run_again(conversation, lambda: self._drain(conversation))

    async def post(self, message: Outgoing) -> None:
        """Store a message, once for each key, and send it."""
        await self._store.finish(self._name, [message], self._clock.now())
        self.wake(message.conversation)

    async def close(self) -> None:
        await self._tasks.close()

    # ── Drafts ──

    async def stream(self, message: Outgoing, run_id: RunId) -> bool:
        """Show an unfinished message, or more of it. Return False if it could not be shown."""
        if self._channel is None or not self.is_free:
            return False
        async with self._lock(message.conversation):
            if await self._store.outbox(self._name, message.conversation):
                return False  # earlier messages come first
            item = await self._store.draft(self._name, message, run_id, self._clock.now())
            if item.state != "draft":
                return False
            try:
                async with asyncio.timeout(60):
                    if item.message_id not in ("", UNKNOWN_ID):
                        await self._channel.edit(item.message_id, message)
                    else:
                        await self._store.settle(replace(item, message_id=UNKNOWN_ID), self._name)
                        message_id = await self._channel.send(message)
                        await self._store.settle(replace(item, message_id=message_id), self._name)
            except ChannelBusy as error:
                self._free_at = self._clock.monotonic() + min(error.seconds, MAX_BUSY_SECONDS)
                return False
            except Exception as error:
                logger.info("channel %s: an unfinished answer is not shown: %s", self._name, error)
                return False
        return True

    async def wait_for_draft(self, conversation: str) -> None:
        """Wait until an unfinished message that is being sent has its ID, so that its end replaces it."""
        async with self._lock(conversation):
            pass

    async def revise(self, key: str, text: str) -> None:
        """Replace the text of a message that was sent, if that is possible. It is only for information."""
        item = await self._store.find_sent(self._name, key=key)
        if item is None or not item.message_id or self._channel is None or not self._channel.traits.can_edit:
            return
        with suppress(Exception):
            async with asyncio.timeout(30):
                await self._channel.edit(item.message_id, Outgoing(f"{key}/revised", item.conversation, text))

    # ── Sending ──

    async def _drain(self, conversation: str) -> None:
        while items := await self._store.outbox(self._name, conversation):
            for item in items:
                await self._send_until_settled(item)

    async def _send_until_settled(self, item: OutboxItem) -> None:
        if item.retry_at is not None:
            await asyncio.sleep(max(0.0, min(item.retry_at - self._clock.now(), MAX_RETRY_SECONDS)))
        while item.state == "ready":
            channel = await self.connection()
            await asyncio.sleep(max(0.0, self._free_at - self._clock.monotonic()))
            async with self._lock(item.conversation):
                known = await self._store.find_sent(self._name, key=item.key)
                item = item if known is None else replace(item, message_id=known.message_id)
                item = await self._attempt(channel, item)

    async def _attempt(self, channel: Channel, item: OutboxItem) -> OutboxItem:
        attempt = item.attempts + 1
        try:
            async with asyncio.timeout(SEND_SECONDS * (1 + len(item.message.files))):
                message_id = await self._transmit(channel, item)
        except ChannelBusy as error:
            self._free_at = self._clock.monotonic() + min(max(error.seconds, 0.1), MAX_BUSY_SECONDS)
            return item
        except Exception as error:
            return await self._fail(item, error)
        sent = replace(item, state="sent", message_id=message_id, attempts=attempt, retry_at=None, problem="")
        await self._store.settle(sent, self._name)
        self._count("sent")
        if item.run_id is not None:
            await self._show(item.run_id, ChannelSent(self._name, item.conversation, item.key, message_id, attempt))
        return sent

    async def _transmit(self, channel: Channel, item: OutboxItem) -> str:
        """Send a message: a long text in parts, and files after it where they are messages of their own. Each is
        recorded, so that an attempt that failed half-way continues there, also in another process.

        Return the ID of the last text, or of the first file."""
        message = item.message
        texts = [message.text] if channel.traits.combines_files else split_for_channel(channel, message.text)
        if channel.traits.combines_files or (len(texts) <= 1 and not message.files):
            return await self._send_text(channel, item)
        sent: list[str] = []
        for number, text in enumerate(texts):
            suffix = f"/{number}" if number else ""
            buttons = message.buttons if number == len(texts) - 1 else ()
            part = replace(message, key=message.key + suffix, text=text, buttons=buttons, files=())
            piece = replace(item, message=part, message_id="" if number else item.message_id)
            key = f"{item.key}{TEXT_SUFFIX}{suffix}"
            sent.append(await self._send_once(key, item, lambda _, piece=piece: self._send_text(channel, piece)))
        for number, file in enumerate(message.files):
            part = Outgoing(f"{message.key}/file/{number}", message.conversation, "", files=(file,))
            sent.append(await self._send_once(part.key, item, partial(self._send_file, channel, part)))
        return sent[max(0, len(texts) - 1)]

    async def _send_once(self, key: str, item: OutboxItem, send: Callable[[OutboxItem], Awaitable[str]]) -> str:
        """Send a part of a message unless that is recorded, and return its ID."""
        record = await self._store.draft(self._name, Outgoing(key, item.conversation, ""), None, self._clock.now())
        if record.state != "sent":
            message_id = await send(record)
            record = replace(record, state="sent", message_id=message_id)
            await self._store.settle(record, self._name)
        return record.message_id

    async def _send_file(self, channel: Channel, part: Outgoing, record: OutboxItem) -> str:
        if not isinstance(channel, UploadChannel):
            return await channel.send(part)
        if record.message_id and await channel.is_shared(record.message_id):
            return record.message_id  # the attempt before did not learn that it had succeeded
        file_id = await channel.upload(part)
        await self._store.settle(replace(record, message_id=file_id), self._name)
        await channel.share(file_id, part)
        return file_id

    @staticmethod
    async def _send_text(channel: Channel, item: OutboxItem) -> str:
        message_id = item.message_id
        if message_id == UNKNOWN_ID:  # a platform that deduplicates returns the ID of the unfinished message
            can_find = channel.traits.deduplicates and channel.traits.can_edit
            message_id = await channel.send(replace(item.message, is_draft=True)) if can_find else ""
        if message_id and channel.traits.can_edit:
            try:
                await channel.edit(message_id, item.message)
            except ChannelRefused:
                pass  # the person removed the unfinished message
            else:
                return message_id
        return await channel.send(item.message)

    async def _fail(self, item: OutboxItem, error: Exception) -> OutboxItem:
        """Store a failed attempt, and wait before the next one."""
        now, attempts = self._clock.now(), item.attempts + 1
        since = item.first_failed_at or now
        reason = f"{error or type(error).__name__}"[:500]
        is_final = isinstance(error, ChannelRefused) or now - since >= self._give_up
        delay = min(retry_delay(attempts, self._random()), MAX_RETRY_SECONDS)
        retry_at = None if is_final else now + delay
        failed = replace(
            item,
            state="failed" if is_final else "ready",
            attempts=attempts,
            first_failed_at=since,
            retry_at=retry_at,
            problem=reason,
        )
        await self._store.settle(failed, self._name)
        self._count("failed" if is_final else "retried")
        logger.log(
            logging.ERROR if is_final else logging.WARNING,
            "channel %s: message %s was not sent: %s%s",
            *(self._name, item.key, reason, "" if is_final else "; retrying"),
        )
        if item.run_id is not None:
            event = ChannelFailed(
                channel=self._name,
                conversation=item.conversation,
                key=item.key,
                attempt=attempts,
                reason=reason,
                retry_at=retry_at,
            )
            await self._show(item.run_id, event)
        if isinstance(error, ContentRefused) and not item.key.endswith(REFUSED_SUFFIX):
            notice = Outgoing(f"{item.key}{REFUSED_SUFFIX}", item.conversation, _describe_refusal(item, reason))
            await self._store.finish(self._name, [notice], now)
        if not is_final:
            await asyncio.sleep(delay)
        return failed

    def _lock(self, conversation: str) -> asyncio.Lock:
        return self._locks.setdefault(conversation, asyncio.Lock())


def _describe_refusal(item: OutboxItem, reason: str) -> str:
    """Return what a person is told instead of a message that the platform does not accept."""
    where = "" if item.run_id is None else f" The dashboard shows it: run {item.run_id}."
    return f"I could not send you a message, because the platform refuses it: {reason[:200]}.{where}"
