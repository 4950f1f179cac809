"""`treadle channels`: chat platforms on which people write to agents."""

from typing import Annotated, cast

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.domain.channels import GRANTS, Grant
from treadle.domain.errors import UsageError
from treadle.operations import channels
from treadle.operations.channel_manager import ApprovedPairing, ChannelView, NewPairing
from treadle.operations.channels import OneChannel, RevokedPerson
from treadle.operations.operation import NoParameters
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.terminal.output import Column, local_time, note, print_list, print_result

group = Group("channels")
ChannelArgument = Annotated[str, Argument(metavar="CHANNEL", help="The name of the channel in config.yaml.")]
GrantOption = Annotated[
    list[str] | None,
    Option(
        "--grant",
        metavar="GRANT",
        help="direct, groups, approve or owner. Repeatable. Default: direct.",
    ),
]
UserOption = Annotated[
    str,
    Option(
        "--user", metavar="USER", help="The user who owns the person's sessions and memories. Default: their own."
    ),
]


@group.command("list")
async def list_channels(json: Json = False) -> int:
    """List the channels, the state of their connections, and the people who may write."""
    from treadle.doctor.channels import read_channels

    home = current_home()
    views = await read_channels(home)
    if views is None:
        async with open_persistent_readonly_caller(home) as caller:
            views = (await caller.call(channels.LIST, NoParameters())).items
    head = (
        *("CHANNEL", "PLATFORM", Column("AGENT", shrinks_to=8), "STATE"),
        *(Column("PEOPLE", shrinks_to=12), Column("UNSENT", is_number=True)),
    )
    empty = "No channels yet. Configure one under `channels:` in config.yaml; docs/channels.md shows how."
    print_list(views, head, _row, json=json, empty=empty)
    for view in () if json else views:
        for person in view.people:
            note(f"{view.name}:{person.sender} {person.name} is {person.user}: {', '.join(person.grants)}")
        for waiting in view.pending:
            note(f"{view.name}: {waiting.name or waiting.sender} waits for `treadle channels approve CODE`")
        if view.recorded is not None and view.recorded.is_held:
            recorded = view.recorded
            since = f"{recorded.status} since {local_time(recorded.since)}"
            said = " ".join(filter(None, (since, recorded.account, recorded.reason)))
            note(f"{view.name}: the server that holds the connection recorded: {said}")
        elif view.reason:
            note(f"{view.name}: {view.reason}")
    return 0


@group.command("test")
async def try_channel(channel: ChannelArgument, json: Json = False) -> int:
    """Log in to the platform of a channel. Nothing is sent."""
    async with open_admin_caller(current_home()) as caller:
        found = await caller.call(channels.TEST, OneChannel(channel))
    print_result(found, f"{channel} works: logged in as {found.account}.", json=json)
    return 0


@group.command("pair")
async def pair(
    channel: ChannelArgument, grant: GrantOption = None, user: UserOption = "", json: Json = False
) -> int:
    """Create a code. The person who sends it to the bot within an hour may write from then on."""
    async with open_admin_caller(current_home()) as caller:
        made = await caller.call(channels.PAIR, NewPairing(channel, _grants(grant), user))
    text = f"Send {made.code} to the bot on {channel} before {local_time(made.expires_at)}."
    print_result(made, text, json=json)
    return 0


@group.command("approve")
async def approve(
    code: Annotated[
        str, Argument(metavar="CODE", help="The code that the bot sent, or CHANNEL:SENDER to change grants.")
    ],
    grant: GrantOption = None,
    user: UserOption = "",
    json: Json = False,
) -> int:
    """Let a person write who was sent a pairing code, or change the grants of a known person."""
    async with open_admin_caller(current_home()) as caller:
        person = await caller.call(channels.APPROVE, ApprovedPairing(code, _grants(grant), user))
    who = f"{person.name or person.sender} ({person.channel}:{person.sender})"
    print_result(person, f"{who} may write now, as {person.user}: {', '.join(person.grants)}.", json=json)
    return 0


@group.command("revoke")
async def revoke(
    channel: ChannelArgument,
    sender: Annotated[str, Argument(metavar="SENDER", help="The platform's ID of the person, as `list` shows it.")],
    json: Json = False,
) -> int:
    """Revoke a person's access. Sessions and memories stay."""
    async with open_admin_caller(current_home()) as caller:
        await caller.call(channels.REVOKE, RevokedPerson(channel, sender))
    revoked = {"channel": channel, "sender": sender, "revoked": True}
    print_result(revoked, f"{sender} may no longer write on {channel}.", json=json)
    return 0


def _grants(given: list[str] | None) -> tuple[Grant, ...]:
    if not given:
        return ("direct",)
    for each in given:
        if each not in GRANTS:
            raise UsageError(f"`{each}` is not a grant; accepted: {', '.join(GRANTS)}.")
    return cast("tuple[Grant, ...]", tuple(given))


def _row(view: ChannelView) -> tuple[str, ...]:
    account = f" as {view.account}" if view.account else ""
    people = ", ".join(person.name or person.sender for person in view.people)
    return view.name, view.platform, view.agent, f"{view.status}{account}", people, str(view.unsent)
