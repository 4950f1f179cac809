"""Chat channels: their state, and the people who may write."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from treadle.domain.channels import DEFAULT_GRANTS, ChannelStatus, Grant, Mode
from treadle.domain.users import UserId
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page


class ChannelPersonView(Struct, frozen=True):
    """A person who may write on a channel."""

    channel: str
    sender: str
    """The platform's ID of the person."""
    name: str
    user: UserId
    """The user who owns the sessions and memories of the person."""
    grants: tuple[Grant, ...]
    added_at: datetime


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


class OneChannel(Struct, frozen=True, forbid_unknown_fields=True):
    channel: str


class ChannelAccountView(Struct, frozen=True):
    channel: str
    account: str


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


class RevokedPerson(Struct, frozen=True, forbid_unknown_fields=True):
    channel: str
    sender: str


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


LIST = Operation(
    "channels.list", "GET", "/v1/channels", scope="admin", request=NoParameters, response=Page[ChannelView]
)
TEST = Operation(
    "channels.test",
    "POST",
    "/v1/channels/{channel}/test",
    scope="admin",
    request=OneChannel,
    response=ChannelAccountView,
    errors=(404, 409),
)
PAIR = Operation(
    "channels.pair",
    "POST",
    "/v1/channels/{channel}/pair",
    scope="admin",
    request=NewPairing,
    response=PairingView,
    status=201,
    errors=(404,),
)
APPROVE = Operation(
    "channels.approve",
    "POST",
    "/v1/channels/approve",
    scope="admin",
    request=ApprovedPairing,
    response=ChannelPersonView,
    errors=(404,),
)
REVOKE = Operation(
    "channels.revoke",
    "POST",
    "/v1/channels/{channel}/revoke",
    scope="admin",
    request=RevokedPerson,
    response=type(None),
    errors=(404,),
)

WEBHOOK = Operation(
    "channels.webhook",
    "POST",
    "/v1/channels/{channel}/webhook",
    scope=None,
    request=OneChannel,
    response=type(None),
    status=200,
    summary="Post a message of a platform",
    description="For platforms that post to the service, such as Telegram in webhook mode. The request carries the "
    "secret that the platform was given. What it holds is stored once, before the answer.",
)


@LIST.handler
async def list_channels(context: Context, request: NoParameters) -> Page[ChannelView]:
    """List chat channels.

    With their connections, as the process that answers has them, and the people who may write."""
    return Page(tuple(await context.channels().list()))


@TEST.handler
async def try_channel(context: Context, request: OneChannel) -> ChannelAccountView:
    """Log in to a channel's platform.

    Nothing is sent."""
    return ChannelAccountView(request.channel, await context.channels().test(request.channel))


@PAIR.handler
async def create_pairing(context: Context, request: NewPairing) -> PairingView:
    """Create a pairing code.

    The person who sends it to the bot within an hour may write from then on."""
    return await context.channels().pair(request)


@APPROVE.handler
async def approve_pairing(context: Context, request: ApprovedPairing) -> ChannelPersonView:
    """Approve a pairing code.

    The sender to whom the bot sent it may write from then on. For a person who is known, this sets the grants."""
    return await context.channels().approve(request)


@REVOKE.handler
async def revoke_person(context: Context, request: RevokedPerson) -> None:
    """Revoke a person's access to a channel.

    The sessions and memories stay. Runs in progress continue."""
    await context.channels().revoke(request.channel, request.sender)
