"""What the slash commands show, and what they say if there is nothing to do."""

from pathlib import Path

import pytest

from tests.surfaces.tui.stage import enter, open_app, read_screen, wait_for
from treadle.operations.feedback import OF_RUN
from treadle.operations.runs import OneRun
from treadle.surfaces.tui import texts
from treadle.testing.models import ScriptedModel, ask, call, say

CODE = "The code:\n\n```python\nprint(1)\n```"


async def test_reports_show_their_lines_and_are_not_the_answer_that_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(ask(call("write_file", path="a.txt", content="one")), say(CODE))

    async with open_app(tmp_path, model) as (app, pilot):
        copied: list[str] = []
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        await enter(pilot, "/copy")
        await wait_for(pilot, lambda: texts.NOTHING_TO_COPY in read_screen(app))
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        await pilot.press("1")
        await wait_for(pilot, lambda: "print(1)" in read_screen(app))
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        await wait_for(pilot, lambda: "% of " in read_screen(app))
        await enter(pilot, "/cost")
        await wait_for(pilot, lambda: "Cost of this session" in read_screen(app))
        assert "30 tokens" in read_screen(app)
        await enter(pilot, "/diff")
        await wait_for(pilot, lambda: " 1 + one" in read_screen(app))
        await enter(pilot, "/usage")
        await wait_for(pilot, lambda: "\n  tokens" in read_screen(app))
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        await wait_for(pilot, lambda: "% of " in read_screen(app).splitlines()[-1])
        await enter(pilot, "/copy")
        await wait_for(pilot, lambda: len(copied) == 1)
        await enter(pilot, "/copy code")
        await wait_for(pilot, lambda: len(copied) == 2)
        assert copied == [CODE, "print(1)\n"]


async def test_export_writes_the_session_and_overwrites_nothing(tmp_path: Path) -> None:
    async with open_app(tmp_path, ScriptedModel(say("An **answer**."))) as (app, pilot):
        await enter(pilot, "/export")
        await wait_for(pilot, lambda: texts.NO_SESSION in read_screen(app))
        await enter(pilot, "ask")
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        path = tmp_path / "export.md"
        await enter(pilot, f"/export {path}")
        await wait_for(pilot, path.exists)
        assert path.read_text() == "# ask\n\n> ask\n\nAn **answer**.\n"
        await enter(pilot, f"/export {path}")
        await wait_for(pilot, lambda: "Name another file" in " ".join(read_screen(app).split()))
        assert path.read_text().startswith("# ask")


async def test_a_command_without_anything_to_do_says_so(tmp_path: Path) -> None:
    async with open_app(tmp_path) as (app, pilot):
        for command, said in (
            ("/queue", texts.QUEUE_WHAT),
            ("/unqueue", texts.NOTHING_QUEUED),
            ("/resume", texts.NOTHING_TO_RESUME),
            ("/cancel", texts.NO_RUN),
            ("/diff", texts.NO_CHANGES),
        ):
            await enter(pilot, command)
            await wait_for(pilot, lambda wanted=said: wanted in read_screen(app))
        await enter(pilot, "/undo")
        await wait_for(pilot, lambda: "failed: There is nothing to undo" in read_screen(app))
        assert read_screen(app).count("nothing to undo") == 1


async def test_feedback_scores_the_latest_run(tmp_path: Path) -> None:
    async with open_app(tmp_path, ScriptedModel(say("One."))) as (app, pilot):
        await enter(pilot, "/feedback good")
        await wait_for(pilot, lambda: texts.NO_SESSION in read_screen(app))
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "One." in read_screen(app))
        await enter(pilot, "/feedback fine")
        await wait_for(pilot, lambda: "/feedback takes" in read_screen(app))
        await enter(pilot, "/feedback bad It missed a file.")
        await wait_for(pilot, lambda: "run: bad" in read_screen(app))
        await enter(pilot, "/feedback good")
        await wait_for(pilot, lambda: "run: good" in read_screen(app))
        await enter(pilot, "/feedback bad It missed a file.")
        await wait_for(pilot, lambda: "run: bad" in read_screen(app))
        assert app.chat.latest_run is not None
        found = await app.link.call(OF_RUN, OneRun(app.chat.latest_run))
    assert [(each.score, each.note, each.author) for each in found.items] == [
        (0.0, "It missed a file.", "the owner of the home")
    ]
