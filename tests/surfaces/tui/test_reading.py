"""Reading a long session: search, the user's messages one by one, and the help for where the user is."""

from pathlib import Path

from tests.surfaces.tui.stage import enter, open_app, read_screen, wait_for
from treadle.surfaces.tui import keys, texts
from treadle.testing.models import ScriptedModel, ask, call, say

LONG = "\n".join(f"- Line {number} of the answer." for number in range(60))


async def test_search_and_jumps_find_what_is_far_above(tmp_path: Path) -> None:
    endings = ("The shuttle is on the left.", "The second answer ends.", "The third answer ends.")
    model = ScriptedModel(*(say(f"{LONG}\n\n{ending}") for ending in endings))
    async with open_app(tmp_path, model) as (app, pilot):
        for number, ending in enumerate(endings, 1):
            await enter(pilot, f"question {number}")
            await wait_for(pilot, lambda ending=ending: ending in read_screen(app))
            await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        await pilot.press("ctrl+up")
        await wait_for(pilot, lambda: "question 3" in read_screen(app))
        await pilot.press("ctrl+up", "ctrl+up")
        await wait_for(pilot, lambda: "question 1" in read_screen(app))
        await pilot.press("ctrl+down")
        await wait_for(pilot, lambda: "question 2" in read_screen(app))
        await pilot.press("ctrl+down", "ctrl+down")
        await wait_for(pilot, lambda: endings[-1] in read_screen(app))
        await pilot.press("ctrl+f")
        await wait_for(pilot, lambda: texts.FIND_TITLE in read_screen(app) and "question 2" in read_screen(app))
        await pilot.press(*"Shuttle")
        await wait_for(pilot, lambda: "The shuttle is on the left" in read_screen(app))
        await pilot.press("enter")
        await wait_for(pilot, lambda: "Line 3 of" in read_screen(app) and texts.FIND_TITLE not in read_screen(app))
        assert "question 2" not in read_screen(app)


async def test_the_help_begins_with_where_the_user_is(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("write_file", path="a.txt", content="one")), say("Done."))
    async with open_app(tmp_path, model) as (app, pilot):
        await pilot.press("?")
        await wait_for(pilot, lambda: keys.PLACES["message"] in read_screen(app))
        await pilot.press("escape")
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        await pilot.press("?")
        await wait_for(pilot, lambda: keys.PLACES["approval"] in read_screen(app))
        assert keys.PLACES["message"] not in read_screen(app).split(keys.PLACES["approval"])[0]
