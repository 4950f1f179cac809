"""Chat channels: their state, and the people who may write."""

from msgspec import Struct

from treadle.operations.channel_manager import (
    ApprovedPairing,
    ChannelPersonView,
    ChannelView,
    NewPairing,
    PairingView,
)
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page


class OneChannel(Struct, frozen=True, forbid_unknown_fields=True):
    channel: str


class ChannelAccountView(Struct, frozen=True):
    channel: str
    account: str


class RevokedPerson(Struct, frozen=True, forbid_unknown_fields=True):
    channel: str
    sender: str


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
