"""Child runs are opened from the line of the call that started them, and left again."""

from pathlib import Path

from tests.surfaces.tui.stage import enter, open_app, read_screen, wait_for
from treadle.surfaces.tui import texts
from treadle.testing.models import ScriptedModel, ask, call, say

PARENT = """\
name: default
model: scripted/m
tools: [write_file, agent_spawn]
approvals: {default: auto, rules: [{tool: write_file, do: ask}]}
workspace: WORKSPACE
"""


async def test_a_child_run_is_opened_while_it_works_answered_there_and_left_again(tmp_path: Path) -> None:
    model = ScriptedModel(
        ask(call("agent_spawn", message="Write the note.")),
        ask(call("write_file", path="note.txt", content="one")),
        say("The note is written."),
        say("All is done."),
        say("Again."),
    )
    async with open_app(tmp_path, model, agent=PARENT) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "1 approve" in read_screen(app))
        await wait_for(pilot, lambda: "● needs your approval" in read_screen(app))
        await pilot.press("f7")
        await wait_for(pilot, lambda: "A message goes to the session" in read_screen(app))
        await pilot.press("escape")
        await wait_for(pilot, lambda: "▌ go" in read_screen(app) and "1 approve" in read_screen(app))
        await pilot.press("f7")
        await wait_for(pilot, lambda: "Child run: default · needs an approval · Esc goes back" in read_screen(app))
        await wait_for(pilot, lambda: "▌ Write the note." in read_screen(app))
        assert "▌ go" not in read_screen(app)
        await pilot.press("1")
        await wait_for(pilot, lambda: "The note is written." in read_screen(app))
        await wait_for(pilot, lambda: "Child run: default · completed" in read_screen(app))
        assert (tmp_path / "work" / "note.txt").read_text() == "one"
        assert "All is done." not in read_screen(app)
        await pilot.press("escape")
        await wait_for(pilot, lambda: "All is done." in read_screen(app) and "▌ go" in read_screen(app))
        assert "Child run" not in read_screen(app)

        row = next(y for y, line in enumerate(read_screen(app).split("\n")) if "└ ✓ default" in line)
        await pilot.click(offset=(12, row))
        await wait_for(pilot, lambda: "Child run: default · completed" in read_screen(app))
        await enter(pilot, "once more")
        await wait_for(pilot, lambda: "Again." in read_screen(app))
        assert "Child run" not in read_screen(app)
        await pilot.press("ctrl+n")
        await wait_for(pilot, lambda: texts.NEW_SESSION in read_screen(app))
        await pilot.press("f7")
        await wait_for(pilot, lambda: texts.NO_CHILD in read_screen(app))
