"""Keys that arrive together, as from a fast typist or over a slow connection."""

import asyncio
from pathlib import Path

from textual import events
from textual.widgets import Input

from tests.surfaces.tui.stage import open_app, read_screen, wait_for
from treadle.surfaces.tui.app import TreadleApp
from treadle.surfaces.tui.picker_screen import PickerRow, PickerScreen
from treadle.surfaces.tui.transcript_view import MAX_PAUSES
from treadle.testing.models import ScriptedModel, ask, call, say


def press_at_once(app: TreadleApp, *keys: str) -> None:
    """Post keys as the driver does when it reads several of them at once."""
    for key in keys:
        name = {" ": "space"}.get(key, key)
        app.post_message(events.Key(name, key if len(key) == 1 else None))


async def test_letters_do_not_overtake_arrow_keys_and_enter(tmp_path: Path) -> None:
    async with open_app(tmp_path, ScriptedModel(say("Read."))) as (app, pilot):
        press_at_once(app, *"ac", "left", *"b", "end", *"d", "enter", *"next", "home", *"the ")
        await wait_for(pilot, lambda: "Read." in read_screen(app))
        await wait_for(pilot, lambda: app.prompt.text == "the next")
        assert "abcd" in read_screen(app)


async def test_a_choice_and_its_text_may_be_typed_at_once(tmp_path: Path) -> None:
    model = ScriptedModel(
        ask(call("write_file", path="a.txt", content="one")),
        ask(call("write_file", path="a.txt", content="two")),
        say("Done."),
    )

    async with open_app(tmp_path, model) as (app, pilot):
        press_at_once(app, *"go", "enter")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        press_at_once(app, "3", *"1 no, 2 never", "enter")
        await wait_for(pilot, lambda: "│ +two" in read_screen(app) and "4 all" in read_screen(app))
        assert "1 no, 2 never" in read_screen(app)
        press_at_once(app, "2", "home", *"one and ", "enter")
        await wait_for(pilot, lambda: "Done." in read_screen(app))
        assert (tmp_path / "work" / "a.txt").read_text() == "one and two"


async def test_a_key_that_is_pressed_twice_decides_once(tmp_path: Path) -> None:
    model = ScriptedModel(
        ask(call("write_file", path="a.txt", content="one")),
        ask(call("write_file", path="c.txt", content="two")),
        say("Done."),
    )

    async with open_app(tmp_path, model) as (app, pilot):
        press_at_once(app, *"go", "enter")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        press_at_once(app, *"1111")
        await wait_for(pilot, lambda: "│ +two" in read_screen(app) and "4 all" in read_screen(app))
        await pilot.press("3", *"no", "enter")
        await wait_for(pilot, lambda: "Done." in read_screen(app))


async def test_keys_reach_a_picker_before_its_rows_are_loaded(tmp_path: Path) -> None:
    """The list comes late. What is typed at once is the search, and Enter chooses from the list."""

    async with open_app(tmp_path, ScriptedModel(say("One."), say("Two."))) as (app, pilot):
        for text in ("about ships", "about sails"):
            press_at_once(app, *text, "enter")
            await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
            press_at_once(app, "ctrl+n")
            await wait_for(pilot, lambda: app.chat.session_id is None)
        came = asyncio.Event()
        load = app.runner.sessions.list_rows

        async def load_late() -> list[PickerRow]:
            await came.wait()
            return await load()

        app.runner.sessions.list_rows = load_late
        press_at_once(app, "f2", *"ships", "enter", *"more")
        await wait_for(pilot, lambda: isinstance(app.screen, PickerScreen))
        await wait_for(pilot, lambda: app.screen.query_one(Input).value == "ships")
        assert isinstance(app.screen, PickerScreen)
        came.set()
        await wait_for(pilot, lambda: app.chat.title == "about ships")
        await wait_for(pilot, lambda: app.prompt.text == "more")


async def test_escape_closes_a_picker_whose_rows_never_load(tmp_path: Path) -> None:
    async with open_app(tmp_path) as (app, pilot):

        async def load_never() -> list[PickerRow]:
            await asyncio.Event().wait()
            return []

        app.runner.list_agents = load_never
        press_at_once(app, *"/agent", "escape", "enter")
        await wait_for(pilot, lambda: isinstance(app.screen, PickerScreen))
        press_at_once(app, "down", "escape", *"next")
        await wait_for(pilot, lambda: not isinstance(app.screen, PickerScreen))
        await wait_for(pilot, lambda: app.prompt.text == "next")


async def test_changes_of_the_transcript_wait_for_keys_for_a_limited_time(tmp_path: Path) -> None:
    async with open_app(tmp_path) as (app, pilot):
        asked: list[bool] = []

        def is_pending() -> bool:
            asked.append("drawn" in read_screen(app))
            return True

        app.view.is_key_pending = is_pending
        app.chat.transcript.report("drawn")
        app.view.note_change(None)
        await wait_for(pilot, lambda: "drawn" in read_screen(app))
        assert asked[:MAX_PAUSES] == [False] * MAX_PAUSES
