"""`/rewind`: the files and the conversation as they were before a message."""

from pathlib import Path

from tests.surfaces.tui.stage import AGENT, enter, open_app, read_screen, wait_for
from treadle.surfaces.tui import texts
from treadle.testing.models import ScriptedModel, ask, call, say

FREE = AGENT.replace("default: ask", "default: auto")


async def test_files_and_conversation_go_back_to_a_message(tmp_path: Path) -> None:
    model = ScriptedModel(
        ask(call("write_file", path="a.py", content="value = 1\n")),
        say("Written."),
        ask(call("write_file", path="a.py", content="value = 2\n")),
        say("Changed."),
        say("Again."),
    )
    async with open_app(tmp_path, model, agent=FREE) as (app, pilot):
        written = tmp_path / "work" / "a.py"
        for message, answer in (("write it", "Written."), ("change it", "Changed.")):
            await enter(pilot, message)
            await wait_for(pilot, lambda answer=answer: answer in read_screen(app))
            await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        assert written.read_text() == "value = 2\n"
        session = app.chat.session_id
        await enter(pilot, "/rewind")
        await wait_for(pilot, lambda: "change it" in read_screen(app) and texts.REWIND_TITLE in read_screen(app))
        await pilot.press("enter")
        await wait_for(pilot, lambda: texts.REWIND_BOTH in read_screen(app))
        await pilot.press("1")
        await wait_for(pilot, lambda: app.prompt.text == "change it")
        assert written.read_text() == "value = 1\n"
        await pilot.press("enter")
        await wait_for(pilot, lambda: "Again." in read_screen(app))
        assert app.chat.session_id != session


async def test_a_file_that_the_user_changed_is_not_overwritten_without_asking(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("write_file", path="a.py", content="value = 1\n")), say("Written."))
    async with open_app(tmp_path, model, agent=FREE) as (app, pilot):
        await enter(pilot, "write it")
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        written = tmp_path / "work" / "a.py"
        written.write_text("mine\n")
        for key, is_there in (("1", True), ("2", False)):
            await enter(pilot, "/rewind")
            await wait_for(pilot, lambda: texts.REWIND_TITLE in read_screen(app) and "write it" in read_screen(app))
            await pilot.press("enter")
            await wait_for(pilot, lambda: texts.REWIND_BOTH in read_screen(app))
            await pilot.press("2")
            await wait_for(pilot, lambda: texts.REWIND_LEAVE in read_screen(app))
            await pilot.press(key)
            await wait_for(pilot, lambda: "estored" in read_screen(app))
            assert written.exists() is is_there
