"""The list of sessions: deleting and renaming, with the keys that the list says."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from tests.surfaces.tui.stage import open_app, read_screen, wait_for
from treadle.operations import search, sessions
from treadle.surfaces.tui.app import TreadleApp
from treadle.surfaces.tui.picker_screen import PickerRow, PickerScreen
from treadle.testing.models import ScriptedModel, say


async def talk_twice(app: TreadleApp, pilot: Pilot[Any]) -> None:
    """Have the sessions `ships` and `sails`, and open the list with a third one in use."""
    for text in ("ships", "sails"):
        await pilot.press(*text, "enter")
        await wait_for(pilot, lambda: app.chat.facts is not None and app.chat.facts.ended)
        await pilot.press("ctrl+n")
        await wait_for(pilot, lambda: app.chat.session_id is None)
    await pilot.press("f2")
    await wait_for(pilot, lambda: is_listed(app, "ships") and is_listed(app, "sails"))


def is_listed(app: TreadleApp, title: str) -> bool:
    return isinstance(app.screen, PickerScreen) and f"{title}   default" in read_screen(app)


async def list_titles(app: TreadleApp) -> list[str]:
    return [each.title for each in (await app.link.call(sessions.LIST, sessions.ListSessions())).items]


def test_a_search_that_ends_late_leaves_the_question_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk() -> None:
        async with open_app(tmp_path, ScriptedModel(say("One."), say("Two."))) as (app, pilot):
            await talk_twice(app, pilot)
            real_call, begun, go_on, ended = app.link.call, asyncio.Event(), asyncio.Event(), asyncio.Event()

            async def call_slowly(operation: Any, request: Any, **options: Any) -> Any:
                if operation is not search.FIND:
                    return await real_call(operation, request, **options)
                begun.set()
                await go_on.wait()
                try:
                    return await real_call(operation, request, **options)
                finally:
                    ended.set()

            monkeypatch.setattr(app.link, "call", call_slowly)
            await pilot.press(*"ships")
            await begun.wait()
            await pilot.press("ctrl+x")
            await wait_for(pilot, lambda: "y deletes it" in read_screen(app))
            go_on.set()
            await ended.wait()
            for _ in range(10):
                await pilot.pause()
                assert "y deletes it" in read_screen(app)
            await pilot.press("n")
            await wait_for(pilot, lambda: "Ctrl-X delete" in read_screen(app))
            assert sorted(await list_titles(app)) == ["sails", "ships"]

    asyncio.run(talk())


def test_y_deletes_the_session_and_any_other_key_keeps_it(tmp_path: Path) -> None:
    async def talk() -> None:
        async with open_app(tmp_path, ScriptedModel(say("One."), say("Two."))) as (app, pilot):
            await talk_twice(app, pilot)
            await pilot.press(*"ships")
            await wait_for(pilot, lambda: not is_listed(app, "sails"))
            for key in ("n", "enter", "escape"):
                await pilot.press("ctrl+x")
                await wait_for(pilot, lambda: "y deletes it" in read_screen(app))
                await pilot.press(key)
                await wait_for(pilot, lambda: "Ctrl-X delete" in read_screen(app))
            await pilot.press("ctrl+x")
            app.post_message(events.Paste("y"))
            await wait_for(pilot, lambda: "Ctrl-X delete" in read_screen(app))
            assert app.screen.query_one(Input).value == "ships"
            assert sorted(await list_titles(app)) == ["sails", "ships"]
            await pilot.press("ctrl+x", "y")
            await wait_for(pilot, lambda: is_listed(app, "sails") and "Deleted." in read_screen(app))
            assert await list_titles(app) == ["sails"]

    asyncio.run(talk())


def test_escape_ends_renaming_and_the_list_stays(tmp_path: Path) -> None:
    async def talk() -> None:
        async with open_app(tmp_path, ScriptedModel(say("One."), say("Two."))) as (app, pilot):
            await talk_twice(app, pilot)
            await pilot.press(*"ships", "ctrl+e", *" at sea", "ctrl+x", "escape")
            await wait_for(pilot, lambda: "Ctrl-X delete" in read_screen(app))
            assert isinstance(app.screen, PickerScreen)
            assert app.screen.query_one(Input).value == "ships"
            await pilot.press("ctrl+e", *" at sea", "enter")
            await wait_for(pilot, lambda: is_listed(app, "ships at sea"))
            assert sorted(await list_titles(app)) == ["sails", "ships at sea"]
            await pilot.press("ctrl+x")
            await wait_for(pilot, lambda: "Delete “ships at sea”" in read_screen(app))
            await pilot.press("n")
            await pilot.press("ctrl+e", "ctrl+u", "enter")
            await wait_for(pilot, lambda: "The title is empty" in read_screen(app))
            assert isinstance(app.screen, PickerScreen)

    asyncio.run(talk())


def test_a_row_that_is_too_long_takes_one_line(tmp_path: Path) -> None:
    async def load() -> list[PickerRow]:
        return [PickerRow(name, name, "a long reason " * 20) for name in ("one", "two")]

    async def look() -> None:
        async with open_app(tmp_path) as (app, pilot):
            app.push_screen(PickerScreen(app.palette, "Models", "Esc closes", load))
            await wait_for(pilot, lambda: "two" in read_screen(app))
            assert read_screen(app).count("…") == 2
            assert sum("a long reason" in line for line in read_screen(app).split("\n")) == 2

    asyncio.run(look())
