"""`treadle webhooks`: addresses that events are sent to."""

import os
import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from treadle.bootstrap.automation import look_at_automation, own_automation
from treadle.config.home import Home
from treadle.domain.webhooks import WebhookId
from treadle.operations.automation import NewWebhook, WebhookKeeping, WebhookView
from treadle.surfaces.cli.connection import kept_up
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from treadle.remote.connection import Connection


class Wanted(Struct, frozen=True):
    """What was asked for on the command line."""

    url: str
    events: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    attempts: int | None = None


async def list_webhooks(json: bool) -> int:
    async with look_at_automation(_home()) as books:
        views = await books.webhooks.list()
    if json:
        for view in views:
            _print_json(view)
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
    async with _webhooks(home) as webhooks:
        made = await webhooks.add(new)
    if json:
        _print_json(made)
        return 0
    note(f"{made.webhook_id} is signed with this secret; this is the only time that it is shown:")
    print(made.secret)
    return 0


async def remove_webhook(webhook_id: str, json: bool) -> int:
    async with _webhooks(_home()) as webhooks:
        await webhooks.remove(WebhookId(webhook_id))
    if json:
        _print_json({"webhook_id": webhook_id, "removed": True})
    else:
        note(f"{webhook_id} is removed")
    return 0


async def list_dead(webhook_id: str, json: bool) -> int:
    async with look_at_automation(_home()) as books:
        letters = await books.webhooks.dead(WebhookId(webhook_id))
    if json:
        for letter in letters:
            _print_json(letter)
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
    async with _webhooks(_home()) as webhooks:
        count = await webhooks.retry(WebhookId(webhook_id), event)
    if json:
        _print_json({"webhook_id": webhook_id, "events": count})
    else:
        note(f"{count} events of {webhook_id} are tried again by `treadle serve`")
    return 0


def _webhooks(home: Home) -> AbstractAsyncContextManager[WebhookKeeping]:
    def attached(connection: "Connection") -> WebhookKeeping:
        from treadle.remote.automation import RemoteWebhooks

        return RemoteWebhooks(connection)

    @asynccontextmanager
    async def own() -> "AsyncGenerator[WebhookKeeping, None]":
        async with own_automation(home) as books:
            yield books.webhooks

    return kept_up(own, attached)


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


def _print_json(value: Any) -> None:
    print_json(value)
