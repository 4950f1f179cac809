"""The commands `treadle hooks`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option

hooks_app = Group("hooks")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
HookArgument = Annotated[str, Argument(metavar="HOOK", help="The id of the inbound webhook, hok_…")]


@hooks_app.command("list")
def list_hooks(json: Json = False) -> None:
    """List inbound webhooks."""
    from treadle.surfaces.cli import inbound_webhooks, process

    process.perform(partial(inbound_webhooks.list_hooks, json))


@hooks_app.command("add")
def add_hook(
    name: Annotated[str, Argument(metavar="NAME", help="A name for the sender.")],
    agent: Annotated[
        str,
        Option("-a", "--agent", metavar="NAME", help="The agent.", suggest=completion.agent_names),
    ] = "default",
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
