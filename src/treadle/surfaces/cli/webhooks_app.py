"""What can be typed after `treadle webhooks`. Each command imports its work when it is called."""

from functools import partial
from typing import Annotated

import typer

from treadle.surfaces.cli import completion

webhooks_app = typer.Typer(help="Send events to others, signed.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
WebhookArgument = Annotated[str, typer.Argument(metavar="WEBHOOK", help="The id of a webhook: whk_…")]


@webhooks_app.command("list")
def list_webhooks(json: Json = False) -> None:
    """List the webhooks, and how far each has come."""
    from treadle.surfaces.cli import process, webhooks

    process.perform(partial(webhooks.list_webhooks, json))


@webhooks_app.command("add")
def add_webhook(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to: https://…")],
    event: Annotated[
        list[str] | None,
        typer.Option(
            "-e", "--event", metavar="TYPE", help="Only such events: run_end, tool_call_*; may be repeated."
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="Only of this agent; may be repeated.",
            autocompletion=completion.agent_names,
        ),
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option(min=1, max=100, metavar="N", help="Give an event up after so many; without it, after 3 days."),
    ] = None,
    json: Json = False,
) -> None:
    """Send events to an address from now on, while `treadle serve` runs: at least once, and in order.

    The secret that they are signed with is printed this once, on standard output."""
    from treadle.surfaces.cli import process, webhooks

    wanted = webhooks.Wanted(url, tuple(event or ()), tuple(agent or ()), attempts)
    process.perform(partial(webhooks.add_webhook, wanted, json))


@webhooks_app.command("remove")
def remove_webhook(webhook_id: WebhookArgument, json: Json = False) -> None:
    """Send nothing there any more."""
    from treadle.surfaces.cli import process, webhooks

    process.perform(partial(webhooks.remove_webhook, webhook_id, json))


@webhooks_app.command("dead")
def list_dead(webhook_id: WebhookArgument, json: Json = False) -> None:
    """List the events that were given up, the oldest first."""
    from treadle.surfaces.cli import process, webhooks

    process.perform(partial(webhooks.list_dead, webhook_id, json))


@webhooks_app.command("retry")
def retry_dead(
    webhook_id: WebhookArgument,
    event: Annotated[
        str | None, typer.Option(metavar="EVENT", help="Only this one: evt_…; without it all of them.")
    ] = None,
    json: Json = False,
) -> None:
    """Try again what was given up; a webhook that was disabled goes on."""
    from treadle.surfaces.cli import process, webhooks

    process.perform(partial(webhooks.retry_dead, webhook_id, event, json))
