"""Messages of the UI itself: short ones in the status line, long ones above the input, never cut."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from tests.surfaces.tui.stage import WITH_BASH, enter, open_app, read_screen, wait_for
from treadle.domain.errors import UnknownSession
from treadle.domain.ids import SessionId
from treadle.operations import runs, sessions
from treadle.surfaces.tui import display_state, texts
from treadle.surfaces.tui.app import TreadleApp
from treadle.testing.models import ScriptedFailure, ScriptedModel, Silence, ask, call, say


async def wait_for_text(app: TreadleApp, pilot: Pilot[Any], text: str) -> None:
    """Wait until a text is shown, on one line or more."""
    await wait_for(pilot, lambda: text in " ".join(read_screen(app).split()))


async def test_a_long_message_is_shown_completely_until_the_user_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display_state, "NOTICE_SECONDS", 0.0)

    async with open_app(tmp_path) as (app, pilot):
        missing = "a-name-that-is-quite-long/" * 4
        await enter(pilot, f"/attach {missing}nosuch.png")
        await wait_for_text(app, pilot, "cannot be read: No such file")
        assert "nosuch.png" in read_screen(app)
        await pilot.press("x")
        await wait_for(pilot, lambda: "cannot be read" not in read_screen(app))
        await pilot.press("backspace")
        await enter(pilot, f"/attach {missing}nosuch.png")
        await wait_for_text(app, pilot, "cannot be read: No such file")
        await enter(pilot, "/unqueue")
        await wait_for_text(app, pilot, texts.NOTHING_QUEUED)
        assert "cannot be read" not in read_screen(app)


async def test_a_model_that_cannot_be_called_is_refused_before_the_first_message(tmp_path: Path) -> None:
    async with open_app(tmp_path) as (app, pilot):
        await enter(pilot, "/model nosuch/model")
        await wait_for_text(app, pilot, "nosuch")
        assert app.chat.model is None
        await enter(pilot, "/model scripted/other")
        await wait_for_text(app, pilot, "Model: scripted/other.")


async def test_the_hints_of_an_approval_can_be_read_at_80_columns(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("write_file", path="a.txt", content="line\n" * 200)), say("Done."))

    async with open_app(tmp_path, model) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        await pilot.press("1")
        await wait_for_text(app, pilot, texts.VIEW_FIRST.format(keys=app.key_map))
        await pilot.press("2")
        await wait_for(pilot, lambda: app.prompt.mode == "edit")
        app.prompt.put('{"path": ')
        await pilot.press("enter")
        await wait_for_text(app, pilot, "Edit them again.")
        await pilot.press("escape", "3", "enter")
        await wait_for_text(app, pilot, "Done.")


async def test_a_rule_for_the_session_approves_the_next_call(tmp_path: Path) -> None:
    model = ScriptedModel(
        ask(call("write_file", path="a.txt", content="one")),
        ask(call("write_file", path="a.txt", content="two")),
        say("Both."),
    )

    async with open_app(tmp_path, model) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        await pilot.press("4")
        await wait_for_text(app, pilot, "Both.")
        assert (tmp_path / "work" / "a.txt").read_text() == "two"


async def test_a_line_is_allowed_for_the_session_as_it_is(tmp_path: Path) -> None:
    line = "echo [x] 2>&1 | tee -a a.txt"
    model = ScriptedModel(
        ask(call("bash", command=line)),
        ask(call("bash", command=line)),
        ask(call("bash", command=f"{line}; echo more")),
        say("All."),
    )

    async with open_app(tmp_path, model, agent=WITH_BASH.replace("auto", "ask")) as (app, pilot):
        await enter(pilot, "go")
        await wait_for_text(app, pilot, "4 allow allow exactly this command for this session")
        await pilot.press("4")
        await wait_for(pilot, lambda: f"command: {line}; echo more" in read_screen(app))
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        assert (tmp_path / "work" / "a.txt").read_text() == "[x]\n[x]\n"
        await pilot.press("3", "enter")
        await wait_for_text(app, pilot, "All.")


async def test_a_line_that_is_hard_to_read_is_not_allowed_for_the_session(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("bash", command="touch a\ntouch b")), say("Done."))

    async with open_app(tmp_path, model, agent=WITH_BASH.replace("auto", "ask")) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "3 deny" in read_screen(app))
        assert "4 all" not in read_screen(app)
        await pilot.press("4")
        await wait_for_text(app, pilot, texts.NO_RULE)
        await pilot.press("3", "enter")
        await wait_for_text(app, pilot, "Done.")
        assert list((tmp_path / "work").iterdir()) == []


async def test_ctrl_c_interrupts_a_run_that_waits_for_a_retry(tmp_path: Path) -> None:
    model = ScriptedModel(ScriptedFailure(retry_after=600.0), say("Resumed."))

    async with open_app(tmp_path, model) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.retry_at is not None)
        await wait_for_text(app, pilot, "retrying in ")
        await pilot.press("ctrl+c")
        await wait_for(pilot, lambda: app.chat.waits_for == "interrupted")


async def test_quitting_asks_while_an_approval_waits(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("write_file", path="a.txt", content="one")))

    async with open_app(tmp_path, model) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        await pilot.press("ctrl+d")
        await wait_for(pilot, lambda: texts.QUIT_WAITING_TITLE in read_screen(app))
        await pilot.press("escape")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        await pilot.press("ctrl+d", "1")
        await wait_for(pilot, lambda: not app.is_running)
        assert app.return_value is not None
        assert app.return_value.kind == "waiting"


async def test_the_bell_rings_when_a_run_waits_or_a_long_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display_state, "LONG_RUN_SECONDS", 0.0)
    model = ScriptedModel(ask(call("write_file", path="a.txt", content="one")), say("Done."), say("Quiet."))

    async with open_app(tmp_path, model) as (app, pilot):
        rung: list[str] = []
        monkeypatch.setattr(app, "ring", rung.append)
        await enter(pilot, "/bell")
        await wait_for_text(app, pilot, "bell: on.")
        await enter(pilot, "go")
        await wait_for(pilot, lambda: len(rung) == 1)
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        await pilot.press("1")
        await wait_for(pilot, lambda: len(rung) == 2)
        await enter(pilot, "/bell")
        await wait_for_text(app, pilot, "bell: off.")
        await enter(pilot, "again")
        await wait_for_text(app, pilot, "Quiet.")
        assert rung == [texts.BELL_WAITS.format(agent="default"), texts.BELL_DONE.format(agent="default")]


async def test_a_notification_goes_to_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KITTY_WINDOW_ID", "TMUX", "STY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM_PROGRAM", "WezTerm")

    async with open_app(tmp_path) as (app, _):
        written: list[str] = []
        driver = app._driver  # pyright: ignore[reportPrivateUsage] -- as the code under test
        monkeypatch.setattr(driver, "write", written.append)
        app.ring("needs\x1b you")
        assert "\x07\x1b]9;needs␛ you\x07" in written


async def test_selected_text_is_copied_only_if_enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_app(tmp_path) as (app, pilot):
        copied: list[str] = []
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        monkeypatch.setattr(app.screen, "get_selected_text", lambda: "some words")
        app.post_message(events.TextSelected())
        await pilot.pause()
        assert copied == []
        await enter(pilot, "/select")
        await wait_for_text(app, pilot, "copy on select: on.")
        app.post_message(events.TextSelected())
        await wait_for(pilot, lambda: copied == ["some words"])


async def test_thinking_is_hidden_and_shown(tmp_path: Path) -> None:
    model = ScriptedModel(say("An answer.", thinking="Some reasons."), Silence())

    async with open_app(tmp_path, model) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        await wait_for_text(app, pilot, "An answer.")
        assert "Some reasons." not in read_screen(app)
        await pilot.press("ctrl+t")
        await wait_for_text(app, pilot, "Some reasons.")
        await wait_for_text(app, pilot, texts.THINKING_SHOWN)
        await pilot.press("ctrl+t")
        await wait_for(pilot, lambda: "Some reasons." not in read_screen(app))
        await enter(pilot, "/details")
        await wait_for_text(app, pilot, texts.DETAILS_SHOWN)


async def test_a_message_that_follows_a_choice_of_the_model_at_once_uses_that_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app(tmp_path, ScriptedModel(say("One."), say("Two."))) as (app, pilot):
        await enter(pilot, "one")
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        real_call, go_on = app.link.call, asyncio.Event()

        async def call_slowly(operation: Any, request: Any, **options: Any) -> Any:
            if operation is sessions.SET_MODEL:
                await go_on.wait()
            return await real_call(operation, request, **options)

        monkeypatch.setattr(app.link, "call", call_slowly)
        await enter(pilot, "/model scripted/other")
        await enter(pilot, "two")
        await pilot.pause()
        go_on.set()
        await wait_for_text(app, pilot, "Two.")
        assert app.chat.run is not None
        shown = await real_call(runs.SHOW, runs.ShowRun(app.chat.run.run_id))
        assert shown.model == "other"


async def test_messages_and_choices_take_effect_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that waits for a choice goes where it was sent, whatever is chosen after it."""

    async with open_app(tmp_path, ScriptedModel(say("One."), say("Two."), say("Three."))) as (app, pilot):
        await enter(pilot, "one")
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        first, real_call, go_on = app.chat.session_id, app.link.call, asyncio.Event()

        async def call_slowly(operation: Any, request: Any, **options: Any) -> Any:
            if operation is sessions.SET_MODEL:
                await go_on.wait()
            return await real_call(operation, request, **options)

        monkeypatch.setattr(app.link, "call", call_slowly)
        agent = app.chat.agent_name
        chosen = [
            asyncio.create_task(app.chat.set_model("scripted/other")),
            asyncio.create_task(app.chat.send("two")),
            asyncio.create_task(app.chat.open_session(None, "default")),
        ]
        await pilot.pause()
        assert app.chat.agent_name == agent, "the message before it is not sent yet"
        go_on.set()
        await asyncio.gather(*chosen)
        assert (app.chat.agent_name, app.chat.session_id) == ("default", None)
        listed = await real_call(runs.LIST, runs.ListRuns(session_id=first))
        assert [run.agent for run in listed.items] == [agent, agent]


async def test_a_session_that_cannot_be_opened_leaves_the_current_one(tmp_path: Path) -> None:
    async with open_app(tmp_path, ScriptedModel(say("One."), say("Two."))) as (app, pilot):
        await enter(pilot, "one")
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        before = app.chat.session_id
        with pytest.raises(UnknownSession):
            await app.chat.open_session(SessionId("ses_gone"))
        assert app.chat.session_id == before
        await enter(pilot, "two")
        await wait_for_text(app, pilot, "Two.")
        assert app.chat.session_id == before
