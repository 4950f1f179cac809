"""`treadle hooks`: addresses that others send messages for agents to."""

import os

from msgspec import Struct

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.config.home import Home
from treadle.domain.webhooks import HookId
from treadle.operations import inbound_webhooks
from treadle.operations.inbound_webhooks import NewHook, NewHookView
from treadle.operations.operation import NoParameters
from treadle.surfaces.cli.connection import administering
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json


class Wanted(Struct, frozen=True):
    """What was asked for on the command line."""

    name: str
    agent: str
    message: str
    session: str | None


async def list_hooks(json: bool) -> int:
    async with open_persistent_readonly_caller(_home()) as caller:
        views = (await caller.call(inbound_webhooks.LIST, NoParameters())).items
    if json:
        for view in views:
            print_json(view)
    elif views:
        rows = [(view.hook_id, view.name, view.agent, view.session or "", view.message) for view in views]
        print_table(("HOOK", "NAME", "AGENT", "SESSION", "MESSAGE"), rows)
    else:
        note("no hooks yet; make one with: treadle hooks add NAME --agent NAME")
    return 0


async def add_hook(wanted: Wanted, json: bool) -> int:
    new = NewHook(wanted.name, wanted.agent, wanted.message, wanted.session)
    async with administering(_home()) as caller:
        made = await caller.call(inbound_webhooks.CREATE, new)
    return _shown(made, json)


async def rotate_hook(hook_id: str, json: bool) -> int:
    async with administering(_home()) as caller:
        made = await caller.call(inbound_webhooks.ROTATE, inbound_webhooks.OneHook(HookId(hook_id)))
    return _shown(made, json)


async def remove_hook(hook_id: str, json: bool) -> int:
    async with administering(_home()) as caller:
        await caller.call(inbound_webhooks.REMOVE, inbound_webhooks.OneHook(HookId(hook_id)))
    if json:
        print_json({"hook_id": hook_id, "removed": True})
    else:
        note(f"{hook_id} is removed")
    return 0


def _shown(made: NewHookView, json: bool) -> int:
    if json:
        print_json(made)
        return 0
    note(
        f"send to {made.path} of `treadle serve`, signed with this secret; this is the only time that it is shown:"
    )
    print(made.secret)
    return 0


def _home() -> Home:
    return Home.from_environment(os.environ)
