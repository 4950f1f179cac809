"""`treadle hooks`: addresses that receive signed messages for agents."""

import sys
from pathlib import Path
from typing import Annotated

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.domain.errors import UsageError
from treadle.domain.webhooks import SignatureScheme
from treadle.operations import inbound_webhooks
from treadle.operations.automation import NewHook, NewHookView
from treadle.operations.operation import NoParameters
from treadle.surfaces.cli.admin_references import find_hook
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import AgentOption, Json
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.terminal.output import Column, note, print_json, print_list, print_result, short_id

HookArgument = Annotated[
    str,
    Argument(
        metavar="HOOK",
        help="The id of the inbound webhook, hok_…, a unique beginning of it, its name, or `last`.",
    ),
]
SecretFile = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="A file with the secret of the sender, such as the signing secret of Slack. `-`: standard input. "
        "Default: a new secret.",
    ),
]
group = Group("hooks")


@group.command("list")
async def list_hooks(json: Json = False) -> int:
    """List inbound webhooks."""
    async with open_persistent_readonly_caller(current_home()) as caller:
        views = (await caller.call(inbound_webhooks.LIST, NoParameters())).items
    head = ("HOOK", "NAME", "AGENT", Column("SESSION", shrinks_to=8), Column("MESSAGE", shrinks_to=12))
    empty = "No inbound webhooks yet. Create one: treadle hooks add NAME --agent NAME"
    print_list(
        views,
        head,
        lambda view: (short_id(view.hook_id), view.name, view.agent, view.session or "", view.message),
        json=json,
        empty=empty,
    )
    return 0


@group.command("add")
async def add_hook(
    name: Annotated[str, Argument(metavar="NAME", help="A name for the sender.")],
    agent: AgentOption = "default",
    message: Annotated[
        str,
        Option(metavar="TEXT", help="The message, with placeholders such as {{payload.issue.title}}."),
    ] = "{{payload}}",
    session: Annotated[
        str | None,
        Option(
            metavar="TEXT",
            help="The session, for example issue-{{payload.issue.number}}. Default: a new session per run.",
        ),
    ] = None,
    scheme: Annotated[
        SignatureScheme, Option(help="How the sender signs: standard (Standard Webhooks), or in its own way.")
    ] = "standard",
    secret_file: SecretFile = None,
    json: Json = False,
) -> int:
    """Create an inbound webhook. Its secret is printed once, on standard output.

    Senders sign requests with it, as the scheme says, and need no access token."""
    secret = None if secret_file is None else read_secret_file(secret_file)
    async with open_admin_caller(current_home()) as caller:
        new = NewHook(name=name, agent=agent, message=message, session=session, scheme=scheme, secret=secret)
        created = await caller.call(inbound_webhooks.CREATE, new)
    return _print_secret(created, json)


@group.command("remove")
async def remove_hook(hook: HookArgument, json: Json = False) -> int:
    """Remove an inbound webhook."""
    async with open_admin_caller(current_home()) as caller:
        hook_id = await find_hook(caller, hook)
        await caller.call(inbound_webhooks.REMOVE, inbound_webhooks.OneHook(hook_id))
    print_result({"hook_id": hook_id, "removed": True}, f"Removed {hook_id}.", json=json)
    return 0


@group.command("rotate")
async def rotate_hook(hook: HookArgument, secret_file: SecretFile = None, json: Json = False) -> int:
    """Replace the secret of an inbound webhook. The new secret is printed once; the old one is invalid."""
    secret = None if secret_file is None else read_secret_file(secret_file)
    async with open_admin_caller(current_home()) as caller:
        hook_id = await find_hook(caller, hook)
        created = await caller.call(inbound_webhooks.ROTATE, inbound_webhooks.RotateHook(hook_id, secret))
    return _print_secret(created, json)


def read_secret_file(name: str) -> str:
    """Return the secret in a file, or on standard input for `-`. An argument would show it to other users."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The secret in {name} cannot be read: {error}. Name another file.") from None
    return text.strip()


def _print_secret(created: NewHookView, json: bool) -> int:
    if json:
        print_json(created)
        return 0
    note(f"Send to {created.path} of `treadle serve`, signed with this secret. It is shown only once:")
    print(created.secret)
    return 0
