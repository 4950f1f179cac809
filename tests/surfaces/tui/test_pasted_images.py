"""Images that are pasted: as paths, as a data URI, and from the clipboard of the desktop."""

from base64 import b64encode
from pathlib import Path

import pytest
from textual.events import Paste

from tests.surfaces.tui.stage import AGENT, enter, open_app, read_screen, wait_for
from treadle.domain.messages import Image
from treadle.surfaces.tui import texts
from treadle.testing.models import ScriptedModel, say

PNG = b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 4000).decode()
SMALL = AGENT + "limits: {max_attachment_bytes: 5000}\n"
CLIPBOARD = """\
#!/bin/sh
case "$*" in
  *image/png*) if [ -f "$0.png" ]; then cat "$0.png"; else exit 1; fi ;;
  *) printf 'copied text' ;;
esac
"""


async def test_images_are_pasted_as_paths_and_data_with_their_size_and_limit(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a b.png").write_bytes(b"x" * 1500)
    (work / "c.jpg").write_bytes(b"y" * 20)
    model = ScriptedModel(say("Three images."))
    async with open_app(tmp_path, model, agent=SMALL, size=(110, 30)) as (app, pilot):

        async def paste(text: str) -> None:
            app.screen.post_message(Paste(text))
            await pilot.pause()

        await paste(f"'{work}/a b.png' {work}/c.jpg ")
        await wait_for(pilot, lambda: "[1] a b.png, 1.5 KB  [2] c.jpg, 20 B" in read_screen(app))
        await paste(f"data:image/png;base64,{PNG}")
        await wait_for(pilot, lambda: "[3] pasted image, 4.0 KB" in read_screen(app))
        await paste(f"data:image/png;base64,{PNG}{PNG}")
        await wait_for(pilot, lambda: "The pasted image has" in read_screen(app))
        assert "at most 5,000 are accepted" in " ".join(read_screen(app).split())
        assert len(app.extras.chips) == 3
        await paste("data:image/png;base64,not base64!")
        await wait_for(pilot, lambda: app.prompt.text == "data:image/png;base64,not base64!")
        app.prompt.put("")
        await enter(pilot, "what are these?")
        await wait_for(pilot, lambda: "Three images." in read_screen(app))
        assert "[3 images, 5.5 KB]" in read_screen(app)
    sent = [part for part in model.requests[0].conversation.messages[-1].parts if isinstance(part, Image)]
    assert [image.media_type for image in sent] == ["image/png", "image/jpeg", "image/png"]
    assert sent[2].data == PNG


async def test_the_clipboard_gives_its_image_or_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":7")
    async with open_app(tmp_path, agent=SMALL) as (app, pilot):
        await pilot.press("ctrl+v")
        await wait_for(pilot, lambda: texts.NO_CLIPBOARD[:40] in " ".join(read_screen(app).split()))
        (programs / "xclip").write_text(CLIPBOARD)
        (programs / "xclip").chmod(0o700)
        await pilot.press("ctrl+v")
        await wait_for(pilot, lambda: app.prompt.text == "copied text")
        (programs / "xclip.png").write_bytes(b"x" * 3000)
        await pilot.press("ctrl+v")
        await wait_for(pilot, lambda: "[1] image of the clipboard, 3.0 KB" in read_screen(app))
        (programs / "xclip.png").write_bytes(b"x" * 6000)
        await pilot.press("ctrl+v")
        await wait_for(pilot, lambda: "The clipboard holds more than 5.0 KB" in read_screen(app))
        assert len(app.extras.chips) == 1
