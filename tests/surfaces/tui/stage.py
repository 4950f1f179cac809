"""An app with a scripted model, in a home of its own."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.events import Paste
from textual.pilot import Pilot

from tests.patience import HANG_SECONDS
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.ids import RunId
from treadle.ports.model import Model
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.tui.app import TreadleApp
from treadle.surfaces.tui.preferences import Preferences, read_preferences
from treadle.testing.models import ScriptedModel

AGENT = """\
name: default
model: scripted/m
tools: [write_file, clarify, update_plan]
approvals: {default: ask, rules: [{tool: update_plan, do: auto}]}
workspace: WORKSPACE
"""

WITH_BASH = AGENT.replace("write_file", "bash").replace("ask", "auto") + "sandbox: {mode: off}\n"


TYPED_CHARACTERS = 4


@asynccontextmanager
async def open_app(
    folder: Path,
    model: Model | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    theme: str = "dark",
    agent: str = AGENT,
) -> AsyncGenerator[tuple[TreadleApp, Pilot[Any]], None]:
    """Open the app in a home in this folder. Without a theme, its settings are those of the home."""
    home = Home(folder / "home")
    (home.path / "agents" / "default").mkdir(parents=True, exist_ok=True)
    workspace = folder / "work"
    workspace.mkdir(exist_ok=True)
    (home.path / "agents" / "default" / "config.yaml").write_text(agent.replace("WORKSPACE", str(workspace)))

    def make_engine() -> HostedEngine:
        engine = create_engine(home=home)
        engine.add_model("scripted", model or ScriptedModel())
        return engine

    link = HomeLink(home, make_engine)
    await link.open()
    try:
        read, problems = (Preferences(theme=theme, bell=False), ()) if theme else read_preferences(home.path)
        app = TreadleApp(link, "default", read, problems=problems)
        async with app.run_test(size=size) as pilot:
            await wait_for(pilot, lambda: bool(app.chat.transcript.items))
            yield app, pilot
    finally:
        await link.close()


async def wait_for(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    """Wait until the app has come to a state."""
    for _ in range(int(HANG_SECONDS * 20)):
        if condition():
            await pilot.pause()
            return
        await pilot.pause(0.05)
    raise AssertionError(f"waited {HANG_SECONDS} s; the screen:\n{read_screen(pilot.app)}")


async def enter(pilot: Pilot[Any], text: str) -> None:
    """Enter a text: its first characters are typed, the rest is pasted, since the pilot waits after each. A command
    closes its suggestions first, which would complete it."""
    await pilot.press(*text[:TYPED_CHARACTERS])
    if rest := text[TYPED_CHARACTERS:]:
        pilot.app.screen.post_message(Paste(rest))
        await pilot.pause()
    if text.startswith("/"):
        await pilot.press("escape")
    await pilot.press("enter")


def read_screen(app: Any) -> str:
    """Return the text on the screen."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


def read_colours(app: Any) -> set[str]:
    """Return the colours on the screen, as `foreground on background`."""
    found: set[str] = set()
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            style = segment.style
            if style is not None and segment.text.strip() and style.color and style.bgcolor:
                found.add(f"{style.color.name} on {style.bgcolor.name}")
    return found


def place(sequence: int = 1, part: int = 0) -> Any:
    """Return the place of an item."""
    return {"key": f"{sequence}.{part}", "run_id": RunId("run_1"), "sequence": sequence, "part": part, "at": 0.0}
