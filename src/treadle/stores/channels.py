"""People, conversations and messages of chat channels, on either database."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.domain.channels import CODE_SECONDS, PairingCode, Person
from treadle.domain.ids import Instant, RunId
from treadle.domain.messages import make_sendable
from treadle.ports.channel import Incoming, Outgoing
from treadle.ports.channel_store import ChannelConversation, ChannelState, InboxItem, OutboxItem

Statement = tuple[str, tuple[Any, ...]]
"""The name of a statement, and its values."""
Rows = Sequence[Sequence[Any]]
_encode = msgspec.json.Encoder().encode
_decode_incoming = msgspec.json.Decoder(Incoming).decode
_decode_outgoing = msgspec.json.Decoder(Outgoing).decode


class ChannelTables(ABC):
    """Implements `ports.channel.ChannelStore` with named statements, which both databases have."""

    @abstractmethod
    async def perform(self, *statements: Statement) -> Sequence[Rows]:
        """Run statements in one transaction, and return the rows of each. It is safe to run them twice."""

    async def _rows(self, name: str, *values: Any) -> Rows:
        return (await self.perform((name, values)))[0]

    async def _row(self, name: str, *values: Any) -> Sequence[Any] | None:
        found = await self._rows(name, *values)
        return found[0] if found else None

    # ── People ──

    async def people(self, channel: str | None = None) -> Sequence[Person]:
        return [_to_person(row) for row in await self._rows("channel_people", channel, None)]

    async def person(self, channel: str, sender: str) -> Person | None:
        row = await self._row("channel_people", channel, sender)
        return None if row is None else _to_person(row)

    async def save_person(self, person: Person) -> None:
        values = (person.channel, person.sender, person.name, person.user, _text(person.grants), person.added_at)
        await self._rows("keep_channel_person", *values)

    async def remove_person(self, channel: str, sender: str) -> bool:
        return await self._row("remove_channel_person", channel, sender) is not None

    async def codes(self, now: Instant) -> Sequence[PairingCode]:
        found = await self._rows("channel_codes")
        codes = [PairingCode(*row[:7], grants=tuple(msgspec.json.decode(row[7]))) for row in found]
        return [code for code in codes if code.expires_at > now]

    async def add_code(self, code: PairingCode) -> None:
        values = (code.code, code.channel, code.sender, code.name, code.conversation, code.expires_at, code.user)
        expired = ("expire_channel_codes", (code.expires_at - CODE_SECONDS,))
        await self.perform(expired, ("add_channel_code", (*values, _text(code.grants))))

    async def remove_code(self, code: str) -> bool:
        return await self._row("remove_channel_code", code) is not None

    # ── Conversations ──

    async def conversation(self, channel: str, conversation: str) -> ChannelConversation | None:
        row = await self._row("channel_conversation", channel, conversation)
        return None if row is None else ChannelConversation(*row[:4], is_direct=bool(row[4]))

    async def save_conversation(self, conversation: ChannelConversation) -> None:
        await self._rows("keep_channel_conversation", *msgspec.structs.astuple(conversation))

    async def conversations(self, channel: str, after: str | None, limit: int) -> Sequence[str]:
        if after is None:
            found = await self._rows("channel_latest_conversations", channel, limit)
        else:
            found = await self._rows("channel_conversations_after", channel, after, limit)
        return [row[0] for row in found]

    # ── State ──

    async def states(self) -> Sequence[ChannelState]:
        return [
            ChannelState(*row[:7], is_held=None if row[7] is None else bool(row[7]))
            for row in await self._rows("channel_states")
        ]

    async def save_state(self, state: ChannelState) -> None:
        await self._rows("keep_channel_state", *msgspec.structs.astuple(state)[:7])

    # ── Received ──

    async def cursor(self, channel: str) -> str | None:
        row = await self._row("channel_cursor", channel)
        return None if row is None else row[0]

    async def receive(
        self, channel: str, messages: Sequence[Incoming], cursor: str | None, now: Instant
    ) -> Sequence[Incoming]:
        statements: list[Statement] = [
            ("receive_channel_message", (channel, each.message_id, each.conversation, now, _encode_message(each)))
            for each in messages
        ]
        if cursor is not None:
            statements.append(("keep_channel_cursor", (channel, cursor)))
        found = await self.perform(*statements) if statements else ()
        return [each for each, rows in zip(messages, found, strict=False) if rows]

    async def inbox(self, channel: str, conversation: str | None = None) -> Sequence[InboxItem]:
        return [_to_inbox_item(row) for row in await self._rows("channel_inbox", channel, conversation)]

    async def find_received(self, channel: str, message_id: str) -> InboxItem | None:
        row = await self._row("channel_received", channel, message_id)
        return None if row is None else _to_inbox_item(row)

    async def replace_received(self, channel: str, message: Incoming) -> bool:
        values = (channel, message.message_id, _encode_message(message))
        return await self._row("replace_channel_message", *values) is not None

    async def start(self, channel: str, message_id: str, run_id: RunId) -> None:
        await self._rows("start_channel_message", channel, message_id, run_id)

    async def watch(self, channel: str, message: Incoming, run_id: RunId, now: Instant) -> None:
        values = (channel, message.message_id, message.conversation, now, _encode_message(message))
        started = ("start_channel_message", (channel, message.message_id, run_id))
        await self.perform(("receive_channel_message", values), started)

    # ── Sent ──

    async def finish(
        self,
        channel: str,
        messages: Sequence[Outgoing],
        now: Instant,
        *,
        message_id: str | None = None,
        run_id: RunId | None = None,
    ) -> None:
        statements: list[Statement] = [
            (
                "add_channel_output",
                (channel, each.key, each.conversation, "ready", now, _encode_message(each), run_id),
            )
            for each in messages
        ]
        if message_id is not None or run_id is not None:
            statements.append(("finish_channel_messages", (channel, message_id, run_id)))
        if run_id is not None:
            statements.append(("close_channel_drafts", (channel, run_id)))
        await self.perform(*statements)

    async def draft(self, channel: str, message: Outgoing, run_id: RunId | None, now: Instant) -> OutboxItem:
        values = (channel, message.key, message.conversation, "draft", now, _encode_message(message), run_id)
        found = ("channel_output", (channel, message.key, None, ""))
        [_, [row]] = await self.perform(("add_channel_output", values), found)
        return _to_outbox_item(row)

    async def outbox(self, channel: str, conversation: str | None = None) -> Sequence[OutboxItem]:
        return [_to_outbox_item(row) for row in await self._rows("channel_outbox", channel, conversation)]

    async def find_sent(
        self, channel: str, *, key: str | None = None, message_id: str | None = None, conversation: str = ""
    ) -> OutboxItem | None:
        row = await self._row("channel_output", channel, key, message_id, conversation)
        return None if row is None else _to_outbox_item(row)

    async def settle(self, item: OutboxItem, channel: str) -> None:
        is_over = item.state in ("sent", "failed")
        kept = Outgoing(item.key, item.conversation, "", item.message.buttons) if is_over else item.message
        results = (item.message_id, item.attempts, item.first_failed_at, item.retry_at, item.problem)
        await self._rows("settle_channel_output", item.number, channel, item.state, *results, _encode_message(kept))

    async def counts(self, channel: str) -> Mapping[str, int]:
        return {str(state): int(count) for state, count in await self._rows("channel_counts", channel)}

    async def forget_before(self, before: Instant, now: Instant) -> None:
        await self.perform(
            ("forget_channel_inbox", (before,)),
            ("forget_channel_outbox", (before,)),
            ("expire_channel_codes", (now,)),
            ("forget_channel_conversations", ()),
        )


def _text(value: object) -> str:
    return _encode(value).decode()


def _encode_message(message: Incoming | Outgoing) -> str:
    """Return a message as JSON text. What no text can hold is replaced."""
    try:
        return _text(message)
    except UnicodeEncodeError:
        return _text(msgspec.structs.replace(message, text=make_sendable(message.text)))


def _to_person(row: Sequence[Any]) -> Person:
    return Person(*row[:4], grants=tuple(msgspec.json.decode(row[4])), added_at=row[5])


def _to_inbox_item(row: Sequence[Any]) -> InboxItem:
    number, content, state, run_id = row
    return InboxItem(number, _decode_incoming(content), state, run_id)


def _to_outbox_item(row: Sequence[Any]) -> OutboxItem:
    number, key, conversation, state, content, *rest = row
    return OutboxItem(number, key, conversation, state, _decode_outgoing(content), *rest)
