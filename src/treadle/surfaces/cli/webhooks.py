"""`treadle webhooks`: addresses that events are sent to."""

import os
import time
from datetime import datetime

from msgspec import Struct

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.config.home import Home
from treadle.domain.ids import EventId
from treadle.domain.webhooks import WebhookId
from treadle.operations import webhooks
from treadle.operations.operation import NoParameters
from treadle.operations.webhooks import NewWebhook, WebhookView
from treadle.surfaces.cli.connection import administering
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json


class Wanted(Struct, frozen=True):
    """What was asked for on the command line."""

    url: str
    events: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    attempts: int | None = None


async def list_webhooks(json: bool) -> int:
    async with open_persistent_readonly_caller(_home()) as caller:
        views = (await caller.call(webhooks.LIST, NoParameters())).items
    if json:
        for view in views:
            print_json(view)
    elif views:
        rows = [(view.webhook_id, view.url, " ".join(view.events), _agents(view), _state(view)) for view in views]
        print_table(("WEBHOOK", "URL", "EVENTS", "AGENTS", "STATE"), rows)
    else:
        note("no webhooks yet; make one with: treadle webhooks add URL --event run_end")
    return 0


async def add_webhook(wanted: Wanted, json: bool) -> int:
    home = _home()
    for agent in wanted.agents:
        home.refuse_unknown(agent)
    new = NewWebhook(wanted.url, wanted.events or ("*",), wanted.agents or None, wanted.attempts)
    async with administering(home) as caller:
        made = await caller.call(webhooks.CREATE, new)
    if json:
        print_json(made)
        return 0
    note(f"{made.webhook_id} is signed with this secret; this is the only time that it is shown:")
    print(made.secret)
    return 0


async def remove_webhook(webhook_id: str, json: bool) -> int:
    async with administering(_home()) as caller:
        await caller.call(webhooks.REMOVE, webhooks.OneWebhook(WebhookId(webhook_id)))
    if json:
        print_json({"webhook_id": webhook_id, "removed": True})
    else:
        note(f"{webhook_id} is removed")
    return 0


async def list_dead(webhook_id: str, json: bool) -> int:
    async with open_persistent_readonly_caller(_home()) as caller:
        letters = (await caller.call(webhooks.DEAD, webhooks.OneWebhook(WebhookId(webhook_id)))).items
    if json:
        for letter in letters:
            print_json(letter)
    elif letters:
        rows = [
            (each.event_id, each.type, each.run_id, str(each.attempts), _date(each.died_at), each.reason)
            for each in letters
        ]
        print_table(("EVENT", "TYPE", "RUN", "ATTEMPTS", "GIVEN UP", "WHY"), rows)
    else:
        note(f"{webhook_id} has given up nothing")
    return 0


async def retry_dead(webhook_id: str, event: str | None, json: bool) -> int:
    async with administering(_home()) as caller:
        wanted = webhooks.RetryEvents(WebhookId(webhook_id), None if event is None else EventId(event))
        retried = await caller.call(webhooks.RETRY, wanted)
    if json:
        print_json(retried)
    else:
        note(f"{retried.events} events of {webhook_id} are tried again by `treadle serve`")
    return 0


def _agents(view: WebhookView) -> str:
    return "all" if view.agents is None else ", ".join(view.agents)


def _state(view: WebhookView) -> str:
    if view.disabled:
        return "disabled: the receiver is gone (410)"
    if view.attempts:
        again = "" if view.retry_at is None else f", again {_date(view.retry_at)}"
        return f"{view.problem} ({view.attempts} attempts{again})"
    return "nothing was sent yet" if view.delivered_at is None else f"latest {_date(view.delivered_at)}"


def _date(at: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at.timestamp()))


def _home() -> Home:
    return Home.from_environment(os.environ)
