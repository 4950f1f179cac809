"""The main screens as text, at two sizes and in two themes, compared with recorded ones.

TREADLE_RECORD_SCREENS=1 records them again; look at the difference before committing it."""

import os
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.tui.stage import open_app, place, read_colours, read_screen, wait_for
from treadle.domain.ids import AgentId, ApprovalId, RunId, SessionId
from treadle.domain.transcript import (
    AnswerItem,
    CallItem,
    ChildItem,
    ItemAdded,
    MessageItem,
    NoteItem,
    ThinkingItem,
)
from treadle.operations.approvals import ApprovalView
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.app import TreadleApp
from treadle.surfaces.tui.chat_state import PendingApproval
from treadle.surfaces.tui.help_screen import HelpScreen
from treadle.surfaces.tui.picker_screen import PickerRow, PickerScreen

SCREENS = Path(__file__).parent / "screens"
RUN = RunId("run_1")
ANSWER = """\
## What changed

The parser now reads **both** formats; `parse()` is the same. See [the notes](https://example.org/notes).

1. It accepts a date.
2. It rejects an empty line.

```python
def parse(line: str) -> Entry:
    return Entry(*line.split("|"))  # two fields
```

| case | result |
|------|--------|
| empty | rejected |
"""
EDIT = '{"path": "parser.py", "old": "split()", "new": "split(\\"|\\")"}'
TESTS = '{"command": "pytest -q"}'
RESULT = """\
parser.py changed.
@@ -1,2 +1,2 @@
 def parse(line: str) -> Entry:
-    return line.split()
+    return line.split("|")"""


def fill(app: TreadleApp) -> None:
    """Show a conversation that needs no model."""
    app.chat.transcript.clear()
    places = map(place, count(1))
    items = (
        MessageItem(text="Fix the parser, please.", **next(places)),
        ThinkingItem(text="It splits at spaces.", duration_ms=3000, **next(places)),
        CallItem(
            call_id="a",
            name="edit_file",
            arguments=EDIT,
            state="done",
            result=RESULT,
            duration_ms=42,
            **next(places),
        ),
        CallItem(
            call_id="b",
            name="bash",
            arguments=TESTS,
            state="failed",
            result="1 failed",
            duration_ms=2300,
            **next(places),
        ),
        CallItem(
            call_id="c", name="agent_spawn", arguments='{"agent": "reviewer"}', state="running", **next(places)
        ),
        ChildItem(
            child_run_id=RunId("run_2"),
            agent="reviewer",
            call_id="c",
            role="spawn",
            doing="read_file parser.py",
            steps=2,
            **next(places),
        ),
        MessageItem(text="Also the date.", delivery="steer", **next(places)),
        AnswerItem(text=ANSWER, **next(places)),
        NoteItem(topic="llm_error", text="The provider failed twice; retried.", level="warning", **next(places)),
    )
    app.chat.transcript.apply(RUN, [ItemAdded(item) for item in items])


def make_approval() -> PendingApproval:
    at = datetime(2026, 11, 1, tzinfo=UTC)
    ids = (ApprovalId("apr_1"), RUN, SessionId("ses_1"), AgentId("agt_1"), None, "call_1")
    view = ApprovalView(*ids, "edit_file", EDIT, "`edit_file` is on ask", "parser.py", at, None, None)
    return PendingApproval("default", view)


def make_picker(app: TreadleApp) -> PickerScreen:
    rows = [
        PickerRow("1", "Fix the parser, please.", "default · 5 min ago · 3 runs", "●"),
        PickerRow("2", "Write a changelog", "writer · 2 d ago · 1 run", found="… the parser reads both formats …"),
    ]

    async def load() -> list[PickerRow]:
        return rows

    return PickerScreen(app.palette, app.key_map, texts.SESSIONS_TITLE, texts.SESSIONS_HINT, load, edits=True)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
async def test_the_main_screens_look_as_recorded(tmp_path: Path, size: tuple[int, int], theme: str) -> None:
    async def show() -> dict[str, str]:
        shown: dict[str, str] = {}
        async with open_app(tmp_path, size=size, theme=theme) as (app, pilot):
            fill(app)
            app.view.flush()
            await wait_for(pilot, lambda: "retried" in read_screen(app))
            shown["chat"] = capture(app)
            app.chat.pending = [make_approval()]
            app.review.show()
            await wait_for(pilot, lambda: "4 all" in read_screen(app))
            shown["approval"] = capture(app)
            app.chat.pending = []
            app.review.show()
            for name, screen in (("sessions", make_picker(app)), ("help", HelpScreen(app.palette, app.key_map))):
                app.push_screen(screen)
                await wait_for(pilot, lambda: "Esc closes" in read_screen(app))
                await pilot.pause()
                shown[name] = capture(app)
                await pilot.press("escape")
                await wait_for(pilot, lambda: len(app.screen_stack) == 1)
        return shown

    for name, screen in (await show()).items():
        path = SCREENS / f"{name}-{size[0]}x{size[1]}-{theme}.txt"
        if os.environ.get("TREADLE_RECORD_SCREENS"):
            path.write_text(screen)
        assert screen == path.read_text(), (
            f"{path.name} differs; record it with TREADLE_RECORD_SCREENS=1 if it should"
        )


def capture(app: Any) -> str:
    """Return a screen and its colours as text."""
    colours = "\n".join(sorted(read_colours(app)))
    return f"{read_screen(app)}\n── colours ──\n{colours}\n"
