"""What was written on Slack while no server was connected. Slack repeats events for some minutes only.

All conversations are read in the background, first those that were used last. How far that is, is part of the
channel's cursor, so the next server continues. A new message in a conversation waits until what was missed there is
read, so the order is kept."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.ports.channel import ChannelError, ChannelRefused, Incoming, Receiver

logger = logging.getLogger(__name__)

PAGE_MESSAGES = 200
MAX_PAGES = 100
"""Pages of one conversation that are read."""
PAGE_PLACES = 200
"""Conversations that are listed at once, and that a cursor names."""
KINDS = ("im", "private_channel", "public_channel", "mpim")
"""The kinds of conversations, which are listed one after another: an app may lack the scope of one. Cursors hold a
position in this order."""
OVERLAP_SECONDS = 120.0
"""Events may arrive in another order than they were written, so a little more than the gap is read."""
NOTED_SECONDS = 60.0
"""How often messages that do not concern the bot are noted."""
MAX_AGE_SECONDS = 29 * 86_400.0
"""Older messages are not read: their IDs may be forgotten, and they would be answered again."""
MAX_GAPS = 4
BURST_PLACES = 20
PACE_SECONDS = 1.2
"""The pause before each conversation after the first ones: Slack allows about 50 requests a minute, and some are
left for conversations in which people write."""
PAUSES_SECONDS = (5.0, 10.0, 20.0, 40.0, 80.0)
"""Pauses before a conversation is tried again."""
RETRY_SECONDS = 60.0
Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
Event = dict[str, Any]


class MissingScope(ChannelError):
    """The app may not call a method."""


class _Gap(Struct):
    """A time without a server, and how far it was read. Its conversations are listed in stages: those used last,
    all others with messages, and those of each kind, also unknown ones."""

    since: str
    """The timestamp of the last message before it."""
    stage: int = 0
    page: str = ""
    """Where the next page of the stage begins."""
    left: list[str] = []
    """Conversations of the current page that are not read yet: channels, and threads as `CHANNEL/THREAD`."""


class _Cursor(Struct):
    seen: str = ""
    gaps: list[_Gap] = []


class SlackPosition:
    """How far Slack was read, as the cursor of a channel."""

    def __init__(self, cursor: str | None) -> None:
        try:
            found = msgspec.json.decode(cursor or "{}", type=_Cursor)
        except msgspec.DecodeError:
            found = _Cursor()
        self.seen = found.seen
        """The timestamp of the last message."""
        self.gaps = found.gaps

    def open_gap(self, now: float) -> None:
        """Begin to read what was missed since the last message. At the first connection nothing was missed."""
        if not self.seen:
            self.seen = f"{now:.6f}"
            return
        since = max(_read_time(self.seen) - OVERLAP_SECONDS, now - MAX_AGE_SECONDS)
        self.gaps.append(_Gap(f"{since:.6f}"))
        if len(self.gaps) > MAX_GAPS:
            self.gaps[-2:] = [_Gap(self.gaps[-2].since)]

    def note(self, message: Incoming) -> None:
        """Remember the time of a message."""
        ts = message.message_id.rpartition("/")[2]
        is_later = message.is_addressed or _read_time(ts) - _read_time(self.seen) >= NOTED_SECONDS
        if message.kind == "message" and is_later:
            self.seen = max(self.seen, ts)

    def encode(self) -> str:
        return msgspec.json.encode(_Cursor(self.seen, self.gaps)).decode()


def _read_time(ts: str) -> float:
    try:
        return float(ts or 0)
    except ValueError:
        return 0.0


class CatchUp:
    """Reads what was missed. `deliver` passes on events and stores the position, in one transaction."""

    def __init__(
        self,
        call: Call,
        receiver: Receiver,
        position: SlackPosition,
        deliver: Callable[[Sequence[Event]], Awaitable[None]],
    ) -> None:
        self._call = call
        self._receiver = receiver
        self._position = position
        self._deliver = deliver
        self._read: set[str] = set()
        """Conversations that were read since the connection, which covers all gaps."""
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._held: set[asyncio.Task[None]] = set()
        self._count = 0
        self._task = asyncio.create_task(self._run())

    @property
    def is_over(self) -> bool:
        return not self._position.gaps and not self._held

    def hold(self, message: Incoming, accept: Callable[[], Awaitable[None]]) -> None:
        """Accept a new message after what was missed in its conversation."""

        async def work() -> None:
            channel = message.conversation.partition("/")[0]
            async with self._turns[channel]:
                try:
                    for place in dict.fromkeys((channel, message.conversation)):
                        await self._read_place(place)
                    await accept()
                except Exception as error:  # Slack delivers it again
                    logger.error("the message %s was not stored: %s", message.message_id, error)

        task = asyncio.create_task(work())
        self._held.add(task)
        task.add_done_callback(self._held.discard)

    async def close(self) -> None:
        tasks = (self._task, *self._held)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _run(self) -> None:
        while self._position.gaps:
            try:
                await self._read_gap(self._position.gaps[0])
            except Exception as error:
                logger.error("what was written while the channel was away is not read yet; retrying: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._position.gaps.pop(0)
            await self._deliver(())

    async def _read_gap(self, gap: _Gap) -> None:
        while True:
            while gap.left:
                await self._read_next(gap)
            if gap.stage >= 2 + len(KINDS):
                return
            gap.left = [each for each in await self._list_places(gap) if each not in self._read]

    async def _read_next(self, gap: _Gap) -> None:
        place = gap.left[0]
        if place not in self._read:
            self._count += 1
            if self._count > BURST_PLACES:
                await asyncio.sleep(PACE_SECONDS)
        async with self._turns[place.partition("/")[0]]:
            await self._deliver(await self._read_missed(place))
            self._read.add(place)
        gap.left.pop(0)  # only now: a new message may store the position at any time

    # ── Conversations ──

    async def _list_places(self, gap: _Gap) -> Sequence[str]:
        """Return the next page of conversations, and note where the page after it begins."""
        if gap.stage == 0:
            latest = await self._receiver.conversations(None, PAGE_PLACES)
            gap.stage = 1
            return latest
        if gap.stage == 1:
            found = await self._receiver.conversations(gap.page, PAGE_PLACES)
            following = found[-1] if len(found) == PAGE_PLACES else ""
        else:
            found, following = await self._list_kind(KINDS[gap.stage - 2], gap.page)
        gap.stage, gap.page = (gap.stage if following else gap.stage + 1), following
        return found

    async def _list_kind(self, kind: str, page: str) -> tuple[list[str], str]:
        values = {"types": kind, "limit": PAGE_PLACES, "exclude_archived": "true", "cursor": page}
        try:
            answer = cast("dict[str, Any]", await self._call("users.conversations", values))
        except (ChannelRefused, MissingScope) as error:
            logger.warning("conversations of the kind %s are not read, except known ones: %s", kind, error)
            return [], ""
        channels = cast("list[dict[str, Any]]", answer.get("channels") or [])
        return [str(each["id"]) for each in channels], _find_following(answer)

    # ── Messages ──

    async def _read_place(self, place: str) -> None:
        """Pass on what was missed in a conversation, unless that was done."""
        if place not in self._read and self._position.gaps:
            await self._deliver(await self._read_missed(place))
            self._read.add(place)

    async def _read_missed(self, place: str) -> list[Event]:
        """Return what was missed in a conversation, oldest first. It is nothing if the conversation cannot be
        read."""
        if place in self._read:
            return []
        since = self._position.gaps[0].since
        for pause in (*PAUSES_SECONDS, None):
            try:
                return await read_place(self._call, place, since)
            except (ChannelRefused, MissingScope) as error:
                logger.warning("what was written in %s while the channel was away is not read: %s", place, error)
                return []
            except ChannelError as error:
                if pause is None:
                    logger.error("what was written in %s while the channel was away is lost: %s", place, error)
                    return []
                await asyncio.sleep(pause)
        return []


async def read_place(call: Call, place: str, since: str) -> list[Event]:
    """Return the messages of a conversation after a time, oldest first. Those of a channel include the threads that
    were begun since then."""
    channel, _, thread = place.partition("/")
    if thread:
        found = await _read_pages(call, "conversations.replies", {"channel": channel, "ts": thread}, since)
    else:
        found = await _read_pages(call, "conversations.history", {"channel": channel}, since)
        begun = [str(each["ts"]) for each in found if str(each.get("latest_reply", "")) > since]
        for ts in begun:
            found += await _read_pages(call, "conversations.replies", {"channel": channel, "ts": ts}, since)
    messages: dict[str, Event] = {}
    for each in found:
        ts = str(each.get("ts", ""))
        if ts > since:
            # The first message of a thread names itself. It did not when it was written.
            own = {} if each.get("thread_ts") != ts else {"thread_ts": None}
            messages[ts] = {"type": "message", **each, **own, "channel": channel}
    return [messages[ts] for ts in sorted(messages)]


async def _read_pages(call: Call, method: str, values: dict[str, Any], since: str) -> list[Event]:
    values = {**values, "oldest": since, "limit": PAGE_MESSAGES}
    found: list[Event] = []
    for _ in range(MAX_PAGES):
        answer = cast("dict[str, Any]", await call(method, values))
        found += cast("list[Event]", answer.get("messages") or [])
        if not (following := _find_following(answer)):
            return found
        values["cursor"] = following
    logger.error(
        "%s has more than %d messages since %s; the rest is not read", values["channel"], len(found), since
    )
    return found


def _find_following(answer: dict[str, Any]) -> str:
    """Return where the page after an answer begins; empty after the last one."""
    return str(cast("dict[str, Any]", answer.get("response_metadata") or {}).get("next_cursor") or "")
