"""What was written on Slack while no server was connected. Slack repeats events for some minutes only."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.ports.channel import ChannelError, ChannelRefused, Incoming

logger = logging.getLogger(__name__)

MAX_PLACES = 50
"""Conversations that are remembered, the latest ones."""
PAGE_MESSAGES = 200
MAX_PAGES = 10
"""Pages of one conversation that are read."""
Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


class MissingScope(ChannelError):
    """The app may not call a method."""


class _Position(Struct, frozen=True):
    places: dict[str, str] = {}
    """The last message of each conversation: channels, direct messages, and threads as `CHANNEL/THREAD`."""


class SlackPosition:
    """How far conversations were read, as the cursor of a channel."""

    def __init__(self, cursor: str | None) -> None:
        try:
            self.places = msgspec.json.decode(cursor or "{}", type=_Position).places
        except msgspec.DecodeError:
            self.places = {}

    def note(self, message: Incoming) -> None:
        """Remember a message, the place that it is in, and the channel of a thread."""
        if message.kind != "message" or not (message.is_addressed or message.conversation in self.places):
            return
        channel, _, ts = message.message_id.rpartition("/")
        for place in dict.fromkeys((channel, message.conversation)):
            latest = max(self.places.pop(place, ""), ts)
            self.places[place] = latest
        while len(self.places) > MAX_PLACES:
            self.places.pop(next(iter(self.places)))

    def encode(self) -> str:
        return msgspec.json.encode(_Position(self.places)).decode()


async def read_missed(call: Call, places: dict[str, str]) -> AsyncGenerator[list[dict[str, Any]], None]:
    """Yield the messages of each conversation after the last one that was read, oldest first, as events. A
    conversation that cannot be read is left out."""
    for place, latest in list(places.items()):
        try:
            found = await _read_place(call, place, latest)
        except (ChannelRefused, MissingScope) as error:
            logger.warning("what was written in %s while the channel was away is not read: %s", place, error)
            continue
        if found:
            yield found


async def _read_place(call: Call, place: str, latest: str) -> list[dict[str, Any]]:
    channel, _, thread = place.partition("/")
    method = "conversations.replies" if thread else "conversations.history"
    values: dict[str, Any] = {"channel": channel, "oldest": latest, "limit": PAGE_MESSAGES}
    values |= {"ts": thread} if thread else {}
    found: list[dict[str, Any]] = []
    for _ in range(MAX_PAGES):
        answer = cast("dict[str, Any]", await call(method, values))
        found += cast("list[dict[str, Any]]", answer.get("messages") or [])
        following = cast("dict[str, Any]", answer.get("response_metadata") or {}).get("next_cursor")
        if not following:
            break
        values["cursor"] = following
    fresh = [{"type": "message", **each, "channel": channel} for each in found if str(each.get("ts", "")) > latest]
    return sorted(fresh, key=lambda each: str(each["ts"]))
