"""What can be typed after `treadle hooks`. Each command imports its work when it is called."""

from functools import partial
from typing import Annotated

import typer

from treadle.surfaces.cli import completion

hooks_app = typer.Typer(help="Let others send messages to agents, signed.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
HookArgument = Annotated[str, typer.Argument(metavar="HOOK", help="The id of a hook: hok_…")]


@hooks_app.command("list")
def list_hooks(json: Json = False) -> None:
    """List the hooks."""
    from treadle.surfaces.cli import inbound_webhooks, process

    process.perform(partial(inbound_webhooks.list_hooks, json))


@hooks_app.command("add")
def add_hook(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who sends there, for you to know it by.")],
    agent: Annotated[
        str,
        typer.Option("-a", "--agent", metavar="NAME", help="The agent.", autocompletion=completion.agent_names),
    ] = "default",
    message: Annotated[
        str,
        typer.Option(metavar="TEXT", help="What the agent is told, with places such as {{payload.issue.title}}."),
    ] = "{{payload}}",
    session: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The session, such as issue-{{payload.issue.number}}; without it each run begins its own.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make an address that others can send to. Its secret is printed this once, on standard output.

    They sign with it as Standard Webhooks has it, and need no access token."""
    from treadle.surfaces.cli import inbound_webhooks, process

    process.perform(
        partial(inbound_webhooks.add_hook, inbound_webhooks.Wanted(name, agent, message, session), json)
    )


@hooks_app.command("remove")
def remove_hook(hook_id: HookArgument, json: Json = False) -> None:
    """Take nothing any more from a hook."""
    from treadle.surfaces.cli import inbound_webhooks, process

    process.perform(partial(inbound_webhooks.remove_hook, hook_id, json))


@hooks_app.command("rotate")
def rotate_hook(hook_id: HookArgument, json: Json = False) -> None:
    """Give a hook another secret, printed this once; the one before is worth nothing then."""
    from treadle.surfaces.cli import inbound_webhooks, process

    process.perform(partial(inbound_webhooks.rotate_hook, hook_id, json))
