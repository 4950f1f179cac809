"""What the terminal UI does, without a terminal."""

from pathlib import Path
from typing import Any

import pytest

from tests.patience import HANG_SECONDS
from tests.surfaces.tui.stage import AGENT, enter, open_app, place, read_screen, wait_for
from treadle.domain.ids import RunId
from treadle.domain.transcript import AnswerItem, ItemAdded, NoteItem
from treadle.operations import runs
from treadle.operations.run_start import START_LOCAL
from treadle.surfaces.markdown.themes import find_palette
from treadle.surfaces.tui import keys, texts
from treadle.surfaces.tui.app import TreadleApp
from treadle.surfaces.tui.commands import COMMANDS
from treadle.surfaces.tui.help_screen import make_help
from treadle.surfaces.tui.prompt_controller import PromptController
from treadle.surfaces.tui.session_export import export_markdown
from treadle.surfaces.tui.transcript_view import TranscriptView
from treadle.testing.models import ScriptedModel, Silence, ask, call, say


async def test_an_approval_is_edited_and_a_question_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("same\nzero\n")
    model = ScriptedModel(
        ask(call("write_file", path="a.txt", content="same\none\n")),
        ask(call("clarify", question="Which?", options=["this", "that"])),
        say("All **done**."),
    )

    async with open_app(tmp_path, model) as (app, pilot):
        await pilot.press(*"go", "enter")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        shown = [line.strip("│ ") for line in read_screen(app).split("\n") if "│   │" in line]
        assert shown == ["path: a.txt", "@@ -1,2 +1,2 @@", "same", "-zero", "+one"]
        await pilot.press("2")
        await wait_for(pilot, lambda: app.prompt.mode == "edit")
        app.prompt.put('{"path": "b.txt", "content": "edited"}')
        monkeypatch.setattr(app.display_state, "_draw", lambda: None)  # it was drawn before the question came
        await pilot.press("enter")
        await wait_for(pilot, lambda: "2 that" in read_screen(app))
        await wait_for(pilot, lambda: app.prompt.placeholder == texts.PLACEHOLDER_ANSWER.format(keys=app.key_map))
        await pilot.press("2")
        await wait_for(pilot, lambda: "All done." in read_screen(app))
        screen = read_screen(app)
        assert "b.txt" in screen
        assert "→ that" in screen
        assert app.prompt.mode == "message"


async def test_the_panel_has_the_focus_again_after_a_message(tmp_path: Path) -> None:
    content = "\n".join(f"line {number}" for number in range(8))
    model = ScriptedModel(ask(call("write_file", path="a.txt", content=content)), say("Done."))

    async with open_app(tmp_path, model) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        assert "+line 7" in read_screen(app), "a short change is shown whole on a small screen"
        await enter(pilot, "be quick")
        await wait_for(pilot, lambda: "steered" in read_screen(app) and app.focused is app.panel)
        await pilot.press(*"x")
        await wait_for(pilot, lambda: "F5 answers" in read_screen(app))
        await pilot.press("ctrl+c")
        await wait_for(pilot, lambda: "4 all" in read_screen(app) and app.focused is app.panel)
        await pilot.press("1")
        await wait_for(pilot, lambda: "Done." in read_screen(app))


async def test_a_long_paste_becomes_a_chip_and_the_history_restores_it(tmp_path: Path) -> None:
    async with open_app(tmp_path, ScriptedModel(say("Read."))) as (app, pilot):
        app.outbox.add_pasted("line\x1b[31m\n" * 500)
        await wait_for(pilot, lambda: "pasted text, 501 lines" in read_screen(app))
        await pilot.press(*"read", "enter")
        await wait_for(pilot, lambda: "Read." in read_screen(app))
        assert not app.extras.chips
        await pilot.press("up")
        assert app.prompt.text == "read"
        assert (tmp_path / "home" / "message-history.jsonl").read_text() == '"read"\n'
        await pilot.press("ctrl+c", "/", "up")
        await wait_for(pilot, lambda: f"▸ {COMMANDS[-1].name}" in read_screen(app))
        await pilot.press(*"the")
        await wait_for(pilot, lambda: "/theme" in read_screen(app))
        await pilot.press("tab")
        assert app.prompt.text == "/theme "
        await pilot.press(*"light", "enter")
        await wait_for(pilot, lambda: app.theme == "treadle-light")


async def test_a_run_that_ends_before_it_is_requested_is_shown(tmp_path: Path) -> None:
    async with open_app(tmp_path, ScriptedModel(say("Quick."), say("Quicker."))) as (app, pilot):
        call_link = app.link.call

        async def call_and_wait(operation: Any, request: Any, *, key: str | None = None) -> Any:
            answer = await call_link(operation, request, key=key)
            if operation is START_LOCAL:
                await call_link(runs.SHOW, runs.ShowRun(answer.run_id, HANG_SECONDS))
            return answer

        app.link.call = call_and_wait
        for text, answer in (("one", "Quick."), ("two", "Quicker.")):
            await pilot.press(*text, "enter")
            await wait_for(pilot, lambda shown=answer: shown in read_screen(app))


async def test_recalled_notes_are_shown_and_opened_also_in_a_session_that_is_opened_again(tmp_path: Path) -> None:
    agent = AGENT + "memory: {embedder: none}\n"

    async with open_app(tmp_path, ScriptedModel(say("Noted."), say("At ten.")), agent=agent) as (app, pilot):
        await enter(pilot, "the train leaves at ten")
        await wait_for(pilot, lambda: "Noted." in read_screen(app))
        await enter(pilot, "/new")
        await enter(pilot, "when does the train leave")
        await wait_for(pilot, lambda: "At ten." in read_screen(app))
        session_id = app.chat.session_id
        assert session_id is not None
        assert "▸ recalled 1 note" in read_screen(app)
        assert "Asked: the train" not in read_screen(app)
        assert "Asked: the train leaves" in await export_markdown(app.link, session_id)
        await app.chat.open_session(session_id)
        await wait_for(pilot, lambda: "Ask default anything" not in read_screen(app))
        rows = read_screen(app).split("\n")
        line = next(at for at, row in enumerate(rows) if "recalled 1 note" in row)
        await pilot.click(TranscriptView, offset=(6, line))
        await wait_for(pilot, lambda: "Asked: the train leaves at ten" in read_screen(app))


async def test_text_of_models_and_tools_is_never_markup(tmp_path: Path) -> None:
    hostile = "[bold red]x[/] [@click=app.exit]y[/] \x1b[2J \u202e <b>z</b> [/nothing"

    async with open_app(tmp_path) as (app, pilot):
        answer = AnswerItem(text=hostile, **place(1))
        items = (answer, NoteItem(topic="llm_error", text=hostile, **place(2)))
        app.chat.transcript.apply(RunId("run_1"), [ItemAdded(item) for item in items])
        app.flash(hostile)
        app.display_state.set_banner("link", hostile)
        shown = "[bold red]x[/] [@click=app.exit]y[/] ␛[2J <U+202E> <b>z</b> [/nothing"
        await wait_for(pilot, lambda: read_screen(app).count(shown) >= 3)


def test_help_lists_every_key_and_command_and_every_key_has_an_action() -> None:
    text = make_help(find_palette("plain"), keys.DEFAULT_KEYS).plain
    for key in keys.KEYS:
        assert all(keys.describe(each) in text for each in key.keys)
        if key.place in ("message", "anywhere"):
            known = hasattr(PromptController, f"do_{key.action}") or hasattr(TreadleApp, f"action_{key.action}")
            assert known or key.action == "newline", key.action
    assert all(command.name in text for command in COMMANDS)


async def test_what_is_said_about_a_stop_ends_with_it(tmp_path: Path) -> None:
    async with open_app(tmp_path, ScriptedModel(Silence(), Silence())) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "thinking" in read_screen(app))
        await pilot.press("escape")
        await wait_for(pilot, lambda: app.chat.waits_for == "interrupted")
        await wait_for(pilot, lambda: "● interrupted" in read_screen(app))
        assert texts.INTERRUPTING.format(keys=app.key_map) not in read_screen(app)
        assert "The next message resumes the run." in read_screen(app)
        await pilot.press("escape")
        await wait_for(pilot, lambda: "The run was cancelled" in read_screen(app))
        await wait_for(pilot, lambda: "○ ready" in read_screen(app))
        assert texts.CANCELLING not in read_screen(app)
        assert "resumes" not in read_screen(app)


async def test_output_below_what_is_visible_is_announced(tmp_path: Path) -> None:
    long = "\n\n".join(f"paragraph {number}" for number in range(30))
    async with open_app(tmp_path, ScriptedModel(say(long), say("At the end."))) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "paragraph 29" in read_screen(app))
        await pilot.press("pageup", "pageup")
        await wait_for(pilot, lambda: "paragraph 29" not in read_screen(app))
        assert texts.NEWS_BELOW.format(keys=app.key_map) not in read_screen(app)
        await app.chat.send("again")
        await wait_for(pilot, lambda: texts.NEWS_BELOW.format(keys=app.key_map) in read_screen(app))
        await pilot.press("ctrl+end")
        await wait_for(pilot, lambda: "At the end." in read_screen(app))
        await wait_for(pilot, lambda: texts.NEWS_BELOW.format(keys=app.key_map) not in read_screen(app))
