"""Who may write on a channel: pairing codes, grants, limits, and the end of loops between bots."""

import secrets
from collections import deque
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from treadle.domain.channels import (
    CODE_CHARACTERS,
    CODE_SECONDS,
    MAX_PENDING_CODES,
    ChannelConfig,
    PairingCode,
    Person,
    choose_user,
)
from treadle.domain.ids import Instant
from treadle.ports.channel import Incoming
from treadle.ports.channel_store import ChannelStore

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Letters and digits that cannot be mistaken for each other."""
WINDOW_SECONDS = 60.0
MAX_TRACKED_SENDERS = 10_000

DropReason = Literal["distrusted", "bot", "not addressed", "unknown sender", "no grant", "too many", "loop"]


class Verdict(Struct, frozen=True):
    """What happens to a message: it is accepted (`person`), answered (`reply`), or dropped."""

    person: Person | None = None
    reply: str = ""
    dropped: DropReason | None = None


def make_code() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARACTERS))


class Access:
    """Decides on messages of one channel. No model is involved."""

    def __init__(
        self,
        channel: str,
        config: ChannelConfig,
        store: ChannelStore,
        now: Callable[[], Instant],
        new_code: Callable[[], str] = make_code,
    ) -> None:
        self._channel = channel
        self._config = config
        self._store = store
        self._now = now
        self._new_code = new_code
        self._recent: dict[str, deque[Instant]] = {}
        self._bot_turns: dict[str, int] = {}

    async def judge(self, message: Incoming) -> Verdict:
        if message.distrust:
            return Verdict(dropped="distrusted")
        if message.is_bot and self._config.bots == "ignore":
            return Verdict(dropped="bot")
        if not message.is_direct and not message.is_addressed and not await self._is_reply(message):
            return Verdict(dropped="not addressed")
        person = await self._store.person(self._channel, message.sender)
        if person is None:
            return await self._answer_unknown_sender(message)
        if not person.may("direct" if message.is_direct else "groups"):
            return Verdict(dropped="no grant")
        match message.kind:
            case "press" | "delete":
                return Verdict(person)
            case "edit":  # further edits are not read, and need no notice
                return Verdict(person) if self._check_rate(message) is None else Verdict(dropped="too many")
            case "message":
                if self._is_loop(message):
                    return Verdict(dropped="loop")
                return self._check_rate(message) or Verdict(person)

    async def _is_reply(self, message: Incoming) -> bool:
        """Return whether a message replies to one that was sent to its conversation."""
        if not message.reply_to:
            return False
        sent = await self._store.find_sent(
            self._channel, message_id=message.reply_to, conversation=message.conversation
        )
        return sent is not None

    # ── Unknown senders ──

    async def _answer_unknown_sender(self, message: Incoming) -> Verdict:
        """Answer an unknown sender with a code at most, and only in a direct message."""
        if not message.is_direct or message.is_bot or message.kind != "message":
            return Verdict(dropped="unknown sender")
        now = self._now()
        codes = [code for code in await self._store.codes(now) if code.channel == self._channel]
        invited = next(
            (code for code in codes if not code.sender and code.code == message.text.strip().upper()), None
        )
        if invited is not None and await self._store.remove_code(invited.code):
            return await self._add_person(message, invited, now)
        pending = [code for code in codes if code.sender]
        if len(pending) >= MAX_PENDING_CODES or any(code.sender == message.sender for code in pending):
            return Verdict(dropped="unknown sender")
        code = PairingCode(
            code=self._new_code(),
            channel=self._channel,
            sender=message.sender,
            name=message.sender_name[:100],
            conversation=message.conversation,
            expires_at=now + CODE_SECONDS,
        )
        await self._store.add_code(code)
        return Verdict(
            reply=f"Your pairing code is `{code.code}`. Give it to the operator of this bot, who lets you in with "
            f"`treadle channels approve {code.code}`. It is valid for one hour."
        )

    async def _add_person(self, message: Incoming, code: PairingCode, now: Instant) -> Verdict:
        user = choose_user(self._channel, message.sender, code.user, code.grants)
        name = code.name or message.sender_name[:100]
        await self._store.save_person(
            Person(
                channel=self._channel, sender=message.sender, name=name, user=user, grants=code.grants, added_at=now
            )
        )
        return Verdict(reply="You are paired. Write what you need.")

    # ── Limits ──

    def _is_loop(self, message: Incoming) -> bool:
        """Return whether a bot has been answered too often without a message from a person in between."""
        if not message.is_bot:
            self._bot_turns.pop(message.conversation, None)
            return False
        turns = self._bot_turns[message.conversation] = self._bot_turns.get(message.conversation, 0) + 1
        return turns > self._config.limits.bot_answers

    def _check_rate(self, message: Incoming) -> Verdict | None:
        now, limit = self._now(), self._config.limits.messages_per_minute
        if len(self._recent) > MAX_TRACKED_SENDERS:
            self._recent = {key: times for key, times in self._recent.items() if now - times[-1] < WINDOW_SECONDS}
        times = self._recent.setdefault(message.sender, deque())
        while times and now - times[0] >= WINDOW_SECONDS:
            times.popleft()
        times.append(now)
        if len(times) <= limit:
            return None
        if len(times) == limit + 1:
            return Verdict(
                reply=f"You sent more than {limit} messages within a minute. The last one was not read. "
                "Wait a minute, then send it again."
            )
        times.pop()  # what is dropped does not extend the wait
        return Verdict(dropped="too many")
