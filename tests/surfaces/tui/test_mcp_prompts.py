"""Prompts of approved MCP servers are commands, in the process that owns the home and in one that is attached."""

from pathlib import Path

from tests.mcp.homes import approve, make_server, write_home
from tests.surfaces.tui.stage import AGENT, enter, open_app, read_screen, wait_for
from treadle.testing.models import ScriptedModel, say

WITH_SERVERS = AGENT + "sandbox: {mode: off}\n"
GREETING = "Greet Anna Maria.\n\nManner: very warm. <U+202E>end"


def prepare(folder: Path) -> None:
    server = make_server("prompts.py")
    write_home(folder / "home", office=server, unknown=make_server("prompts.py"))
    approve(folder / "home", "office", server, [])


async def test_a_prompt_is_completed_filled_in_and_read_before_it_is_sent(tmp_path: Path) -> None:
    prepare(tmp_path)
    model = ScriptedModel(say("Hello Anna!"))
    async with open_app(tmp_path, model, agent=WITH_SERVERS) as (app, pilot):
        await pilot.press(*"/office")
        await wait_for(pilot, lambda: "/office:greet" in read_screen(app))
        assert "NAME [MANNER] Greet a person." in read_screen(app)
        assert "two words" not in read_screen(app)
        assert "unknown" not in read_screen(app)
        await pilot.press("tab")
        assert app.prompt.text == "/office:greet "
        await pilot.press("enter")
        await wait_for(pilot, lambda: "NAME is missing. Write: /office:greet NAME" in read_screen(app))
        app.prompt.put("")
        await enter(pilot, "/office:greet 'Anna Maria' very warm")
        await wait_for(pilot, lambda: app.prompt.text == GREETING)
        assert not model.requests
        await pilot.press("enter")
        await wait_for(pilot, lambda: "Hello Anna!" in read_screen(app))
        assert model.requests[0].conversation.messages[-1].text == GREETING

        async with open_app(tmp_path, agent=WITH_SERVERS) as (attached, other):
            assert attached.link.access is not None
            assert attached.link.engine is None
            await enter(other, "/office:greet Bob")
            await wait_for(other, lambda: attached.prompt.text.startswith("Greet Bob.\n\nManner: any."))
