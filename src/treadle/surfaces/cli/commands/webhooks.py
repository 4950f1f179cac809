"""`treadle webhooks`: addresses that events are sent to."""

from typing import Annotated

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.operations import webhooks
from treadle.operations.automation import NewWebhook, WebhookView
from treadle.operations.operation import NoParameters
from treadle.surfaces.cli import completion
from treadle.surfaces.cli.admin_references import find_dead_event, find_webhook
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.terminal.output import (
    Column,
    format_count,
    note,
    print_json,
    print_list,
    print_result,
    short_id,
    when,
)

WebhookArgument = Annotated[
    str,
    Argument(metavar="WEBHOOK", help="The id of the webhook, whk_…, a unique beginning of it, or `last`."),
]
group = Group("webhooks")


@group.command("list")
async def list_webhooks(json: Json = False) -> int:
    """List webhooks and their delivery state."""
    async with open_persistent_readonly_caller(current_home()) as caller:
        views = (await caller.call(webhooks.LIST, NoParameters())).items
    head = (
        *("WEBHOOK", Column("URL", shrinks_to=20), Column("EVENTS", shrinks_to=12)),
        *(Column("AGENTS", shrinks_to=6, is_optional=True), Column("STATE", shrinks_to=16)),
    )
    empty = "No webhooks yet. Create one: treadle webhooks add URL --event run_end"
    print_list(views, head, _row, json=json, empty=empty)
    return 0


@group.command("add")
async def add_webhook(
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
) -> int:
    """Send new events to an address while `treadle serve` runs, at least once and in order.

    The secret that signs them is printed once, on standard output."""
    home = current_home()
    for name in agent or ():
        home.refuse_unknown(name)
    new = NewWebhook(url, tuple(event or ("*",)), tuple(agent) if agent else None, attempts)
    async with open_admin_caller(home) as caller:
        created = await caller.call(webhooks.CREATE, new)
    if json:
        print_json(created)
        return 0
    note(f"{created.webhook_id} is signed with this secret. It is shown only once:")
    print(created.secret)
    return 0


@group.command("remove")
async def remove_webhook(webhook: WebhookArgument, json: Json = False) -> int:
    """Remove a webhook."""
    async with open_admin_caller(current_home()) as caller:
        webhook_id = await find_webhook(caller, webhook)
        await caller.call(webhooks.REMOVE, webhooks.OneWebhook(webhook_id))
    print_result({"webhook_id": webhook_id, "removed": True}, f"Removed {webhook_id}.", json=json)
    return 0


@group.command("dead")
async def list_dead(webhook: WebhookArgument, json: Json = False) -> int:
    """List undeliverable events, oldest first."""
    async with open_persistent_readonly_caller(current_home()) as caller:
        webhook_id = await find_webhook(caller, webhook)
        letters = (await caller.call(webhooks.DEAD, webhooks.OneWebhook(webhook_id))).items
    head = (
        *("EVENT", Column("TYPE", shrinks_to=8), Column("RUN", is_optional=True)),
        *(Column("ATTEMPTS", is_number=True), "GIVEN UP", Column("WHY", shrinks_to=16)),
    )
    print_list(
        letters,
        head,
        lambda each: (
            short_id(each.event_id),
            each.type,
            short_id(each.run_id),
            str(each.attempts),
            when(each.died_at),
            each.reason,
        ),
        json=json,
        empty=f"{webhook_id} has no undeliverable events.",
    )
    return 0


@group.command("retry")
async def retry_dead(
    webhook: WebhookArgument,
    event: Annotated[
        str | None,
        Option(metavar="EVENT", help="Only this event: its id, evt_…, a beginning of it, or `last`. Default: all."),
    ] = None,
    json: Json = False,
) -> int:
    """Retry undeliverable events and enable the webhook again."""
    async with open_admin_caller(current_home()) as caller:
        webhook_id = await find_webhook(caller, webhook)
        event_id = None if event is None else await find_dead_event(caller, webhook_id, event)
        retried = await caller.call(webhooks.RETRY, webhooks.RetryEvents(webhook_id, event_id))
    text = f"`treadle serve` retries {format_count(retried.events, 'event')} of {webhook_id}."
    print_result(retried, text, json=json)
    return 0


def _row(view: WebhookView) -> tuple[str, ...]:
    agents = "all" if view.agents is None else ", ".join(view.agents)
    return short_id(view.webhook_id), view.url, " ".join(view.events), agents, _state(view)


def _state(view: WebhookView) -> str:
    if view.disabled:
        return "disabled: the receiver is gone (410)"
    if view.attempts:
        again = "" if view.retry_at is None else f", next {when(view.retry_at)}"
        return f"{view.problem} ({format_count(view.attempts, 'attempt')}{again})"
    return "nothing sent yet" if view.delivered_at is None else f"delivered {when(view.delivered_at)}"
