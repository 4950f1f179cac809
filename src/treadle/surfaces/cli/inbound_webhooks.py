"""`treadle hooks`: addresses that others send messages for agents to."""

import os
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from treadle.bootstrap.automation import look_at_automation, own_automation
from treadle.config.home import Home
from treadle.domain.webhooks import HookId
from treadle.operations.automation import HookKeeping, NewHook, NewHookView
from treadle.surfaces.cli.connection import kept_up
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from treadle.remote.connection import Connection


class Wanted(Struct, frozen=True):
    """What was asked for on the command line."""

    name: str
    agent: str
    message: str
    session: str | None


async def list_hooks(json: bool) -> int:
    async with look_at_automation(_home()) as books:
        views = await books.hooks.list()
    if json:
        for view in views:
            _print_json(view)
    elif views:
        rows = [(view.hook_id, view.name, view.agent, view.session or "", view.message) for view in views]
        print_table(("HOOK", "NAME", "AGENT", "SESSION", "MESSAGE"), rows)
    else:
        note("no hooks yet; make one with: treadle hooks add NAME --agent NAME")
    return 0


async def add_hook(wanted: Wanted, json: bool) -> int:
    async with _hooks(_home()) as hooks:
        made = await hooks.add(NewHook(wanted.name, wanted.agent, wanted.message, wanted.session))
    return _shown(made, json)


async def rotate_hook(hook_id: str, json: bool) -> int:
    async with _hooks(_home()) as hooks:
        made = await hooks.rotate(HookId(hook_id))
    return _shown(made, json)


async def remove_hook(hook_id: str, json: bool) -> int:
    async with _hooks(_home()) as hooks:
        await hooks.remove(HookId(hook_id))
    if json:
        _print_json({"hook_id": hook_id, "removed": True})
    else:
        note(f"{hook_id} is removed")
    return 0


def _hooks(home: Home) -> AbstractAsyncContextManager[HookKeeping]:
    def attached(connection: "Connection") -> HookKeeping:
        from treadle.remote.automation import RemoteHooks

        return RemoteHooks(connection)

    @asynccontextmanager
    async def own() -> "AsyncGenerator[HookKeeping, None]":
        async with own_automation(home) as books:
            yield books.hooks

    return kept_up(own, attached)


def _shown(made: NewHookView, json: bool) -> int:
    if json:
        _print_json(made)
        return 0
    note(
        f"send to {made.path} of `treadle serve`, signed with this secret; this is the only time that it is shown:"
    )
    print(made.secret)
    return 0


def _home() -> Home:
    return Home.from_environment(os.environ)


def _print_json(value: Any) -> None:
    print_json(value)
