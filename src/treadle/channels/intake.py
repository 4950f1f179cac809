"""Intake of messages: each is checked against the access rules, and stored once before it is acknowledged."""

import logging
from collections.abc import Callable, Sequence

from treadle.channels.access import Access
from treadle.channels.incoming import clean_message
from treadle.domain.channels import ChannelConfig
from treadle.ports.channel import Incoming, Outgoing
from treadle.ports.channel_store import ChannelStore
from treadle.ports.clock import Clock

logger = logging.getLogger(__name__)


class Intake:
    """Stores the messages of one channel. Any process may do so; the one that holds the channel handles them."""

    def __init__(
        self, name: str, config: ChannelConfig, store: ChannelStore, clock: Clock, count: Callable[[str], None]
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._count = count
        self._access = Access(name, config, store, clock.now)

    async def accept(self, messages: Sequence[Incoming], cursor: str | None = None) -> list[str]:
        """Store the messages of people who may write. Messages of others cost one read and no model call.

        Return the conversations with new work."""
        accepted: list[Incoming] = []
        replies: list[Outgoing] = []
        for message in [clean_message(each) for each in messages]:
            if await self._store.find_received(self._name, message.message_id) is not None:
                accepted.append(message)  # delivered again: it is stored once, and counts once
                continue
            verdict = await self._access.judge(message)
            if verdict.person is not None:
                accepted.append(message)
            elif verdict.reply:
                replies.append(Outgoing(f"reply/{message.message_id}", message.conversation, verdict.reply))
            else:
                logger.info("channel %s: dropped %s: %s", self._name, message.message_id, verdict.dropped)
            if verdict.dropped is not None:
                self._count("dropped")
        if replies:
            await self._store.finish(self._name, replies, self._clock.now())
        if accepted or cursor is not None:
            stored = await self._store.receive(self._name, accepted, cursor, self._clock.now())
            for _ in stored:
                self._count("received")
        return list(dict.fromkeys(message.conversation for message in (*accepted, *replies)))
