"""Protocol of the chat channels of a home, with the values that it takes and returns. The `channels` package
implements it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from treadle.domain.channels import DEFAULT_GRANTS, ChannelStatus, Grant, Mode, PersonFields


class ChannelPersonView(PersonFields[datetime], frozen=True):
    """A person who may write on a channel."""


class PendingPersonView(Struct, frozen=True):
    """A sender who waits for approval, without the code."""

    sender: str
    name: str
    expires_at: datetime


class RecordedStateView(Struct, frozen=True):
    """What the process that holds the connection of a channel last recorded. It was not checked just now."""

    status: ChannelStatus
    account: str
    reason: str
    """Why it is not connected. If it is connected: why the connection is of limited use."""
    since: datetime
    """When the status began."""
    recorded_at: datetime
    is_held: bool | None
    """Whether a process holds the connection now, as the database sees it. With SQLite null."""


class ChannelView(Struct, frozen=True):
    """A configured channel. The state of its connection is that of the process that answers."""

    name: str
    platform: str
    agent: str
    mode: Mode
    status: ChannelStatus
    account: str
    """The account that it is connected as."""
    reason: str
    """Why it is not connected. If it is connected: why the connection is of limited use."""
    retry_at: datetime | None
    unread: int
    """Messages that are stored and not handled yet."""
    running: int
    """Messages whose answer is in progress."""
    unsent: int
    """Messages that wait to be sent."""
    failed: int
    """Messages that were given up in the last 30 days."""
    people: tuple[ChannelPersonView, ...]
    pending: tuple[PendingPersonView, ...]
    since: datetime | None = None
    """When the status began, if the process that answers holds the connection."""
    recorded: RecordedStateView | None = None
    """What another process recorded, if the process that answers does not hold the connection."""


class NewPairing(Struct, frozen=True, forbid_unknown_fields=True):
    channel: str
    grants: tuple[Grant, ...] = DEFAULT_GRANTS
    user: str = ""
    """The user that the person becomes. Default: a user of their own."""


class PairingView(Struct, frozen=True):
    channel: str
    code: str
    """The person sends it to the bot."""
    expires_at: datetime


class ApprovedPairing(Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    grants: tuple[Grant, ...] = DEFAULT_GRANTS
    user: str = ""
    """The user that the person becomes. Default: a user of their own."""


class ChannelManager(Protocol):
    """The channels of a home. The `channels` package implements it."""

    async def list(self) -> Sequence[ChannelView]: ...

    async def test(self, channel: str) -> str:
        """Log in to the platform, and return the account. Raise InvalidState if that fails."""
        ...

    async def pair(self, request: NewPairing) -> PairingView: ...

    async def approve(self, request: ApprovedPairing) -> ChannelPersonView: ...

    async def revoke(self, channel: str, sender: str) -> None: ...

    async def deliver(self, channel: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Store what a platform posted to the webhook of a channel. Return False if it does not come from there."""
        ...

    def run_in_background(self) -> AbstractAsyncContextManager[None]:
        """Receive and send messages while the context manager is entered."""
        ...
