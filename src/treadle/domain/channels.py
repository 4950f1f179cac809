"""Chat channels: their settings, the people who may write, and who owns what they start."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Generic, Literal

from msgspec import Struct

from treadle.domain.durations import parse_duration
from treadle.domain.ids import Instant, Time
from treadle.domain.users import LOCAL_USER, UserId, check_user

Mode = Literal["steer", "queue", "interrupt"]
"""What a message does while a run of its conversation is in progress."""
Grant = Literal["direct", "groups", "approve", "owner"]
"""direct: write to the agent. groups: mention it in groups. approve: decide approvals. owner: be the local user."""
GRANTS: tuple[Grant, ...] = ("direct", "groups", "approve", "owner")
DEFAULT_GRANTS: tuple[Grant, ...] = ("direct",)
ChannelStatus = Literal["starting", "connected", "waiting", "failed", "stopped"]
"""waiting: another process holds the connection. failed: the connection is lost and is being retried."""

CODE_CHARACTERS = 8
CODE_SECONDS = 3600.0
"""How long a pairing code is valid."""
MAX_PENDING_CODES = 3
"""Unknown senders of one channel that have a code at the same time. Others get no answer."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class Recipient(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A person or group to which agents can send messages."""

    to: str
    """The conversation: a chat ID, a room, a Slack channel or user, or a mail address."""
    agents: tuple[str, ...] = ()
    """The agents whose tool `send_message` may send there."""
    approval: Literal["ask", "auto"] = "ask"
    """`ask`: every message of an agent needs an approval. `auto`: the approval rules of the agent decide."""


class ChannelLimits(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of a channel."""

    messages_per_minute: int = 20
    """Messages that one person may send in a minute. Further ones are dropped with a notice."""
    attachments: int = 8
    """Attachments of one message that the agent gets."""
    attachment_bytes: int = 5_000_000
    """Bytes of one attachment."""
    sent_files: int = 5
    """Files that one answer or one call of `send_message` may send."""
    sent_file_bytes: int = 10_000_000
    """Bytes of one file that is sent. The platform may accept less."""
    bot_answers: int = 4
    """Answers to bots in one conversation without a message from a person in between."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, found {getattr(self, name)}")


class ChannelConfig(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A channel: an account on a platform through which people write to an agent."""

    platform: str = ""
    """`telegram`, `matrix`, `slack`, `email`, or an adapter of an installed package. Default: the name of the
    channel."""
    agent: str = "default"
    """The agent that answers."""
    mode: Mode = "steer"
    """What a message does while a run is in progress. `steer`: the run reads it at its next step. `queue`: it
    starts a run after the current one. `interrupt`: the run stops what it does and reads it."""
    streaming: bool = True
    """Show the answer while it is written, on platforms that can edit messages."""
    bots: Literal["ignore", "answer"] = "ignore"
    """What happens to messages of bots."""
    give_up: float | str = "1d"
    """How long a message that cannot be sent is retried: seconds, or text such as `1d`."""
    recipients: dict[str, Recipient] = {}
    """Named people and groups to which schedules and agents can send."""
    limits: ChannelLimits = ChannelLimits()
    """The limits of the channel."""
    settings: dict[str, Any] = {}
    """The settings of the platform. Secrets are given as `{{vault:NAME}}`."""
    enabled: bool = True
    """Whether `treadle serve` connects to it."""

    def __post_init__(self) -> None:
        if parse_duration(self.give_up) <= 0:
            raise ValueError(f"give_up must be above 0, found {self.give_up}")


class PersonFields(Struct, Generic[Time], frozen=True):
    """A person who may write on a channel."""

    channel: str
    sender: str
    """The platform's ID of the person."""
    name: str
    user: UserId
    """The user who owns the sessions and memories of the person."""
    grants: tuple[Grant, ...]
    added_at: Time


class Person(PersonFields[Instant], frozen=True):
    """A person as they are stored."""

    def may(self, grant: Grant) -> bool:
        return grant in self.grants


class PairingCode(Struct, frozen=True):
    """A code that pairs a person with a channel: sent to an unknown sender, or created for one in advance."""

    code: str
    channel: str
    sender: str
    """Empty if it is for the person who sends it."""
    name: str
    conversation: str
    expires_at: float
    user: UserId = ""
    """The user that the person becomes; empty for a user of their own."""
    grants: tuple[Grant, ...] = ()


def check_channel_names(channels: Mapping[str, ChannelConfig]) -> None:
    """Raise ValueError for a name that cannot be used in addresses such as `telegram:alice`."""
    for name in channels:
        if not _NAME.fullmatch(name):
            raise ValueError(f"channels: the name `{name}` must be 1 to 32 letters, digits, dashes or underscores")


def name_user(channel: str, sender: str) -> UserId:
    """Return the user that a person of a channel is, unless an existing one was chosen."""
    name = f"{channel}|{sender}"
    try:
        check_user(name)
    except ValueError:
        return f"{channel}|{blake2b(sender.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"
    return name


def choose_user(channel: str, sender: str, user: str, grants: tuple[Grant, ...]) -> UserId:
    """Return the user that a person becomes when paired."""
    return LOCAL_USER if "owner" in grants else user or name_user(channel, sender)


def find_recipient(channels: Mapping[str, ChannelConfig], target: str) -> tuple[str, Recipient]:
    """Return the channel and the recipient that `CHANNEL:NAME` stands for. Raise ValueError if it is not
    configured: a mistyped name must not become an address."""
    channel, _, name = target.partition(":")
    recipient = channels[channel].recipients.get(name) if channel in channels else None
    if recipient is None:
        known = ", ".join(f"{each}:{one}" for each, config in channels.items() for one in config.recipients)
        raise ValueError(
            f"`{target[:100]}` is not a recipient; known: {known or 'none'}. Name it in `recipients` of the channel"
        )
    return channel, recipient
