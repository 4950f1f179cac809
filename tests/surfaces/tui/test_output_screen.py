"""The whole output of a tool call, in the terminal UI."""

import re
from pathlib import Path

from tests.surfaces.tui.stage import WITH_BASH, enter, open_app, read_screen, wait_for
from treadle.testing.models import ScriptedModel, ask, call, say

OUTPUT = 'for i in $(seq 1 5000); do echo "line $i of a long output [bold]"; done'


async def test_every_line_of_a_long_output_can_be_read(tmp_path: Path) -> None:
    """The output is longer than what the journal keeps of it, and its parts are read when they are scrolled to."""
    model = ScriptedModel(
        ask(call("bash", "c1", command="echo short")), ask(call("bash", "c2", command=OUTPUT)), say("Done.")
    )

    async with open_app(tmp_path, model, size=(80, 120), agent=WITH_BASH) as (app, pilot):
        await pilot.press("f6")
        await wait_for(pilot, lambda: "No tool call has an output yet." in read_screen(app))
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "Done." in read_screen(app))
        await pilot.press("f6")
        await wait_for(pilot, lambda: "line 1 of a long output [bold]" in read_screen(app))
        seen, pages = set[str](), 0
        while "line 5000 of" not in read_screen(app) and pages < 60:
            seen |= set(re.findall(r"line (\d+) of a", read_screen(app)))
            await pilot.press("pagedown")
            await pilot.pause()
            pages += 1
        assert len(seen | set(re.findall(r"line (\d+) of a", read_screen(app)))) == 5000
        assert "to 5000 of 5000" in read_screen(app)
        await pilot.press("left")
        await wait_for(pilot, lambda: "1 of 2" in read_screen(app) and "short" in read_screen(app))
        await pilot.press("right", "end")
        await wait_for(pilot, lambda: "to 5000 of 5000" in read_screen(app))
        await pilot.resize_terminal(20, 30)
        await wait_for(pilot, lambda: "line 48" in read_screen(app) or "line 49" in read_screen(app))
        await pilot.press("escape")
        await wait_for(pilot, lambda: len(app.screen_stack) == 1)
        await enter(pilot, f"/export {tmp_path / 'all.md'}")
        await wait_for(pilot, (tmp_path / "all.md").exists)
        assert len(re.findall(r"line \d+ of a", (tmp_path / "all.md").read_text())) == 5000
