"""The message: its history, file names, images, and what Tab does."""

import base64
from pathlib import Path

from textual import events

from tests.surfaces.tui.stage import enter, open_app, read_screen, wait_for
from treadle.domain.messages import Image
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.attachments import find_mentioned_images
from treadle.surfaces.tui.suggestions import rank
from treadle.testing.models import ScriptedModel, Silence, say

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_ctrl_r_searches_the_history(tmp_path: Path) -> None:
    model = ScriptedModel(*(say("Read.") for _ in range(3)))
    async with open_app(tmp_path, model) as (app, pilot):
        for number, text in enumerate(("about ships", "about sails", "weather"), start=1):
            await enter(pilot, text)
            await wait_for(pilot, lambda wanted=number: len(model.requests) == wanted and not app.chat.is_busy)
        await pilot.press(*"draft", "ctrl+r", *"about")
        await wait_for(pilot, lambda: "▸ about sails" in read_screen(app))
        await pilot.press("escape")
        await wait_for(pilot, lambda: app.prompt.text == "draft")
        await pilot.press("ctrl+r", *"about", "ctrl+r")
        await wait_for(pilot, lambda: "▸ about ships" in read_screen(app))
        await pilot.press("enter")
        await wait_for(pilot, lambda: app.prompt.text == "about ships")
        assert app.prompt.mode == "message"
        assert len(model.requests) == 3


async def test_tab_queues_only_while_a_run_is_in_progress(tmp_path: Path) -> None:
    model = ScriptedModel(Silence())

    async with open_app(tmp_path, model) as (app, pilot):
        await pilot.press(*"look at @nosuch", "tab")
        await wait_for(pilot, lambda: texts.NO_SUCH_FILE.format(keys=app.key_map) in read_screen(app))
        await pilot.press(*" now", "tab")
        await wait_for(pilot, lambda: texts.NOTHING_TO_QUEUE_AFTER.format(keys=app.key_map) in read_screen(app))
        assert app.prompt.text == "look at @nosuch now"
        assert not model.requests
        await pilot.press("enter")
        await wait_for(pilot, lambda: len(model.requests) == 1)
        await pilot.press(*"later", "tab")
        await wait_for(pilot, lambda: "queued: later" in read_screen(app))


async def test_file_names_with_accents_and_spaces_are_completed(tmp_path: Path) -> None:
    async with open_app(tmp_path) as (app, pilot):
        (tmp_path / "work" / "naïve ünï.py").touch()
        await pilot.press(*"@naive")
        await wait_for(pilot, lambda: "▸ naïve ünï.py" in read_screen(app))
        await pilot.press("tab")
        assert app.prompt.text == '@"naïve ünï.py" '
    assert rank("uni", ["naïve ünï.py", "other.py"]) == ["naïve ünï.py"]


async def test_images_are_attached_by_their_paths(tmp_path: Path) -> None:
    model = ScriptedModel(say("Seen."), say("Seen again."))

    async with open_app(tmp_path, model) as (app, pilot):
        for name in ("red dot.png", "dot.png"):
            (tmp_path / "work" / name).write_bytes(PNG)
        app.post_message(events.Paste(f"'{tmp_path / 'work' / 'red dot.png'}'"))
        await wait_for(pilot, lambda: "[1] red dot.png" in read_screen(app))
        await enter(pilot, "/attach dot.png")
        await wait_for(pilot, lambda: "[2] dot.png" in read_screen(app))
        await pilot.press("backspace")
        await wait_for(pilot, lambda: "[2]" not in read_screen(app))
        await enter(pilot, "what is it?")
        await wait_for(pilot, lambda: "Seen." in read_screen(app))
        await wait_for(pilot, lambda: not app.chat.is_busy)
        await enter(pilot, 'and @"red dot.png" and @dot.png')
        await wait_for(pilot, lambda: "Seen again." in read_screen(app))
    sent = [request.conversation.messages[-1] for request in model.requests]
    assert [sum(isinstance(part, Image) for part in message.parts) for message in sent] == [1, 2]
    assert find_mentioned_images("@nothing.png", tmp_path) == []


async def test_an_earlier_message_comes_back_with_its_attachments(tmp_path: Path) -> None:
    async with open_app(tmp_path, ScriptedModel(say("Read."), say("Read."))) as (app, pilot):
        app.post_message(events.Paste("line\n" * 40))
        await wait_for(pilot, lambda: len(app.extras.chips) == 1)
        [pasted] = app.extras.chips
        await enter(pilot, "read it")
        await wait_for(pilot, lambda: "Read." in read_screen(app))
        await enter(pilot, "and this")
        await wait_for(pilot, lambda: read_screen(app).count("Read.") == 2)
        await pilot.press(*"new", "up")
        await wait_for(pilot, lambda: app.prompt.text == "and this")
        assert app.extras.chips == []
        await pilot.press("up")
        await wait_for(pilot, lambda: app.prompt.text == "read it")
        assert app.extras.chips == [pasted]
        await pilot.press("down", "down")
        await wait_for(pilot, lambda: app.prompt.text == "new")
        assert app.extras.chips == []
