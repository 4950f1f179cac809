"""What can be typed after `treadle hooks`. Each command imports its work when it is called."""

from functools import partial
from typing import Annotated

import typer

from treadle.surfaces.cli import completion

hooks_app = typer.Typer(help="Manage inbound webhooks: signed requests that start runs.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
HookArgument = Annotated[str, typer.Argument(metavar="HOOK", help="The id of the inbound webhook, hok_…")]


@hooks_app.command("list")
def list_hooks(json: Json = False) -> None:
    """List inbound webhooks."""
    from treadle.surfaces.cli import inbound_webhooks, process

    process.perform(partial(inbound_webhooks.list_hooks, json))


@hooks_app.command("add")
def add_hook(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for the sender.")],
    agent: Annotated[
        str,
        typer.Option("-a", "--agent", metavar="NAME", help="The agent.", autocompletion=completion.agent_names),
    ] = "default",
    message: Annotated[
        str,
        typer.Option(metavar="TEXT", help="The message, with placeholders such as {{payload.issue.title}}."),
    ] = "{{payload}}",
    session: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The session, for example issue-{{payload.issue.number}}. Default: a new session per run.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create an inbound webhook. Its secret is printed once, on standard output.

    Senders sign requests with it (Standard Webhooks) and need no access token."""
    from treadle.surfaces.cli import inbound_webhooks, process

    process.perform(
        partial(inbound_webhooks.add_hook, inbound_webhooks.Wanted(name, agent, message, session), json)
    )


@hooks_app.command("remove")
def remove_hook(hook_id: HookArgument, json: Json = False) -> None:
    """Remove an inbound webhook."""
    from treadle.surfaces.cli import inbound_webhooks, process

    process.perform(partial(inbound_webhooks.remove_hook, hook_id, json))


@hooks_app.command("rotate")
def rotate_hook(hook_id: HookArgument, json: Json = False) -> None:
    """Replace the secret of an inbound webhook. The new secret is printed once; the old one is invalid."""
    from treadle.surfaces.cli import inbound_webhooks, process

    process.perform(partial(inbound_webhooks.rotate_hook, hook_id, json))
