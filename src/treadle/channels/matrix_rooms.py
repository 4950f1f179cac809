"""Rooms of Matrix: invitations to them, and the messages that a synchronisation leaves out."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

import aiohttp
from nio import (  # pyright: ignore[reportMissingTypeStubs] -- it has none
    AsyncClient,
    JoinError,
    MessageDirection,
    RoomMessagesResponse,
)

from treadle.ports.channel import ChannelBusy

logger = logging.getLogger(__name__)

PAGE_EVENTS = 100
MAX_REFUSALS = 3
"""How often a homeserver may refuse a page before the rest of the gap is given up."""
REFUSAL_SECONDS = 1.0
JOIN_SECONDS = 60.0
JOINS_AT_ONCE = 16
MAX_INVITATIONS = 100
MAX_INVITATIONS_OF_ONE = 5
"""Invitations of one user that wait. Further ones are left out until the next connection shows them again."""
JOIN_AGAIN_SECONDS = 600.0


async def read_gap(client: AsyncClient, room_id: str, since: str, end: str) -> AsyncGenerator[list[Any], None]:
    """Yield the events of a room between two positions, oldest first, in pages. A synchronisation has only the last
    events of a room. Raise ChannelBusy if the homeserver asks for a pause."""
    position, refusals = since, 0
    while True:
        answer = await client.room_messages(room_id, position, end, MessageDirection.front, PAGE_EVENTS)
        if not isinstance(answer, RoomMessagesResponse):
            if answer.status_code == "M_LIMIT_EXCEEDED":
                raise ChannelBusy(str(answer), (answer.retry_after_ms or 5000) / 1000)
            refusals += 1
            if refusals >= MAX_REFUSALS:
                logger.error("messages of %s after %s are lost: the homeserver says %s", room_id, position, answer)
                return
            await asyncio.sleep(REFUSAL_SECONDS)
            continue
        events = cast("list[Any]", answer.chunk)
        yield [each for each in events if getattr(each, "room_id", "") in ("", None, room_id)]
        if not answer.end or answer.end == position:
            return
        position = answer.end


class Invitations:
    """Joins rooms in the background: a join can take minutes, and must not hold up the messages of others. Those to
    which one user has invited are joined one after another."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._tried: dict[str, float] = {}
        self._waiting: Counter[str] = Counter()
        """Invitations in progress of each user."""
        self._free = asyncio.Semaphore(JOINS_AT_ONCE)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def accept(self, room_id: str, invitation: Sequence[Any]) -> None:
        """Join a room, unless that is in progress or was tried just now. `invitation` has the events of it."""
        now = time.monotonic()
        self._tried = {room: at for room, at in self._tried.items() if now - at < JOIN_AGAIN_SECONDS}
        if room_id in self._tasks or room_id in self._tried:
            return
        user = self._find_sender(invitation)
        if len(self._tasks) >= MAX_INVITATIONS or self._waiting[user] >= MAX_INVITATIONS_OF_ONE:
            logger.warning("the invitation of %s to %s is left out: too many others wait", user, room_id)
            return
        self._tried[room_id] = now
        self._waiting[user] += 1
        self._tasks[room_id] = asyncio.create_task(self._join(room_id, user))

    def _find_sender(self, invitation: Sequence[Any]) -> str:
        found = [each for each in invitation if getattr(each, "state_key", None) == self._client.user_id]
        return str(found[-1].sender) if found else ""

    async def _join(self, room_id: str, user: str) -> None:
        try:
            async with self._turns.setdefault(user, asyncio.Lock()), self._free, asyncio.timeout(JOIN_SECONDS):
                answer = await self._client.join(room_id)
            if isinstance(answer, JoinError):
                logger.warning("the room %s was not joined: %s", room_id, answer)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            logger.warning("the room %s was not joined: %s", room_id, error or type(error).__name__)
        finally:
            self._tasks.pop(room_id, None)
            self._waiting[user] -= 1
            self._waiting += Counter()  # forget users without invitations

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
