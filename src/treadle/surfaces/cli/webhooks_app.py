"""The commands `treadle webhooks`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option

webhooks_app = Group("webhooks")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
WebhookArgument = Annotated[str, Argument(metavar="WEBHOOK", help="The id of the webhook, whk_…")]


@webhooks_app.command("list")
def list_webhooks(json: Json = False) -> None:
    """List webhooks and their delivery state."""
    from treadle.surfaces.cli import process, webhooks

    process.perform(partial(webhooks.list_webhooks, json))


@webhooks_app.command("add")
def add_webhook(
    url: Annotated[str, Argument(metavar="URL", help="The address, https://…")],
    event: Annotated[
        list[str] | None,
        Option(
            "-e",
            "--event",
            metavar="TYPE",
            help="Only these event types, for example run_end or tool_call_*. Repeatable.",
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="Only this agent. Repeatable.",
            suggest=completion.agent_names,
        ),
    ] = None,
    attempts: Annotated[
        int | None,
        Option(min=1, max=100, metavar="N", help="Maximum attempts per event. Default: attempts for 3 days."),
    ] = None,
    json: Json = False,
) -> None:
    """Send new events to an address while `treadle serve` runs, at least once and in order.

    The secret that signs them is printed once, on standard output."""
    from treadle.surfaces.cli import process, webhooks

    wanted = webhooks.Wanted(url, tuple(event or ()), tuple(agent or ()), attempts)
    process.perform(partial(webhooks.add_webhook, wanted, json))


@webhooks_app.command("remove")
def remove_webhook(webhook_id: WebhookArgument, json: Json = False) -> None:
    """Remove a webhook."""
    from treadle.surfaces.cli import process, webhooks

    process.perform(partial(webhooks.remove_webhook, webhook_id, json))


@webhooks_app.command("dead")
def list_dead(webhook_id: WebhookArgument, json: Json = False) -> None:
    """List undeliverable events, oldest first."""
    from treadle.surfaces.cli import process, webhooks

    process.perform(partial(webhooks.list_dead, webhook_id, json))


@webhooks_app.command("retry")
def retry_dead(
    webhook_id: WebhookArgument,
    event: Annotated[str | None, Option(metavar="EVENT", help="Only this event, evt_…. Default: all.")] = None,
    json: Json = False,
) -> None:
    """Retry undeliverable events and enable the webhook again."""
    from treadle.surfaces.cli import process, webhooks

    process.perform(partial(webhooks.retry_dead, webhook_id, event, json))
