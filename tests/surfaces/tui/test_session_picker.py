"""The list of sessions: deleting and renaming, with the keys that the list says."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from tests.surfaces.tui.stage import AGENT, open_app, read_screen, wait_for
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import InvalidState
from treadle.domain.messages import user
from treadle.operations import runs, search, sessions
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_start import START_LOCAL, StartLocalRun
from treadle.surfaces.tui.app import TreadleApp
from treadle.surfaces.tui.chat_state import ForkSource
from treadle.surfaces.tui.picker_screen import PickerRow, PickerScreen
from treadle.testing.models import ScriptedModel, ask, call, say


async def talk_twice(app: TreadleApp, pilot: Pilot[Any]) -> None:
    """Have the sessions `ships` and `sails`, and open the list with a third one in use."""
    for text in ("ships", "sails"):
        await pilot.press(*text, "enter")
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        await pilot.press("ctrl+n")
        await wait_for(pilot, lambda: app.chat.session_id is None)
    await pilot.press("f2")
    await wait_for(pilot, lambda: is_listed(app, "ships") and is_listed(app, "sails"))


def is_listed(app: TreadleApp, title: str) -> bool:
    return isinstance(app.screen, PickerScreen) and f"{title}   default" in read_screen(app)


async def list_titles(app: TreadleApp) -> list[str]:
    return [each.title for each in (await app.link.call(sessions.LIST, sessions.ListSessions())).items]


async def test_a_search_that_ends_late_leaves_the_question_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_y_deletes_the_session_and_any_other_key_keeps_it(tmp_path: Path) -> None:
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


async def test_escape_ends_renaming_and_the_list_stays(tmp_path: Path) -> None:
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


async def test_a_row_that_is_too_long_takes_one_line(tmp_path: Path) -> None:
    async def load() -> list[PickerRow]:
        return [PickerRow(name, name, "a long reason " * 20) for name in ("one", "two")]

    async with open_app(tmp_path) as (app, pilot):
        app.push_screen(PickerScreen(app.palette, app.key_map, "Models", "Esc closes", load))
        await wait_for(pilot, lambda: "two" in read_screen(app))
        assert read_screen(app).count("…") == 2
        assert sum("a long reason" in line for line in read_screen(app).split("\n")) == 2


@pytest.mark.parametrize(("key", "agent"), [("enter", "default"), ("ctrl+f", "default"), ("enter", "gone")])
async def test_a_session_of_another_folder_asks_where_it_is_opened_or_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, agent: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)

    settings = AGENT.replace("workspace: WORKSPACE\n", "")
    async with open_app(tmp_path, ScriptedModel(say("One.")), agent=settings) as (app, pilot):
        assert app.link.access is not None
        spec = AgentSpec(agent, "scripted/m", workspace=str(there))
        sent = RequestedRun(spec, user("ships"))
        ticket = await app.link.call(START_LOCAL, StartLocalRun(sent))
        await app.link.call(runs.SHOW, runs.ShowRun(ticket.run_id, 30))
        await pilot.press("f2")
        await wait_for(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press("ctrl+o")
        await wait_for(pilot, lambda: "ships" in read_screen(app))
        await pilot.press(key)
        await wait_for(pilot, lambda: "This session works in" in read_screen(app))
        await pilot.press("t")
        if key == "enter":
            await wait_for(pilot, lambda: app.chat.session_id == ticket.session_id)
            assert app.chat.folder == str(there)
        else:
            await wait_for(pilot, lambda: isinstance(app.screen, PickerScreen) and "ships" in read_screen(app))
            await pilot.press("enter")
            await wait_for(pilot, lambda: app.input.fork_source is not None)
            assert app.input.fork_source == ForkSource(ticket.run_id, str(there))


@pytest.mark.parametrize("is_here", [True, False])
async def test_a_message_does_not_steer_a_run_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)
    model = ScriptedModel(ask(call("clarify", "c1", question="Which?")))

    settings = AGENT.replace("workspace: WORKSPACE\n", "")
    async with open_app(tmp_path, model, agent=settings) as (app, pilot):
        spec = AgentSpec("default", "scripted/m", tools=("clarify",), workspace=str(there))
        ticket = await app.link.call(START_LOCAL, StartLocalRun(RequestedRun(spec, user("go"), asker="terminal")))
        await app.chat.open_session(ticket.session_id, folder="" if is_here else str(there))
        await wait_for(pilot, lambda: app.chat.waits_for == "answer")
        if is_here:
            with pytest.raises(InvalidState, match=f"it works in {there}"):
                await app.chat.send("for here")
        else:
            await app.chat.send("for there")
        events = [event.type async for event in app.link.read_stored(ticket.run_id)]
        assert ("message_steered" in events) is not is_here
