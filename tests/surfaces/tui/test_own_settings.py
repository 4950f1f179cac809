"""Keys and themes that the user has written into `tui.json`."""

import json
from pathlib import Path
from typing import Any

from tests.surfaces.tui.stage import enter, open_app, read_colours, read_screen, wait_for
from treadle.surfaces.tui import keys, texts
from treadle.surfaces.tui.preferences import describe_problems, read_preferences
from treadle.testing.models import ScriptedModel, Silence, ask, call, say

OWN: dict[str, Any] = {
    "theme": "dusk",
    "keys": {
        "message": {"newline": ["Alt-Enter", "ctrl+j"], "stop": "ctrl+x", "open_editor": "none"},
        "anywhere": {"find": "Ctrl-G", "help": "f12", "show_output": ["Alt-O", "ctrl+_"]},
        "approval": {"choose_1": "y", "choose_3": "n"},
    },
    "themes": {"dusk": {"base": "light", "text": "#112233", "accent": "#abcdef"}},
}


def write(folder: Path, settings: object) -> Path:
    path = folder / "home" / "tui.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    return path


async def test_own_keys_and_themes_are_in_force_and_in_the_help(tmp_path: Path) -> None:
    path = write(tmp_path, OWN)
    asks = (ask(call("write_file", path=f"{name}.txt", content="one")) for name in "ab")
    async with open_app(tmp_path, ScriptedModel(*asks, say("Done."), Silence()), theme="") as (app, pilot):
        assert app.palette.name == "dusk"
        assert "#112233 on #fbfbf9" in read_colours(app)
        await pilot.press("a", "ctrl+j", "b")
        assert app.prompt.text == "a\nb"
        app.prompt.put("")
        await enter(pilot, "go")
        await wait_for(pilot, lambda: " Y approve" in read_screen(app) and " N deny" in read_screen(app))
        await pilot.press("y")
        await wait_for(pilot, lambda: (tmp_path / "work" / "a.txt").exists())
        await wait_for(pilot, lambda: "b.txt" in read_screen(app) and " N deny" in read_screen(app))
        await pilot.press("n")
        await wait_for(pilot, lambda: app.prompt.mode == "note")
        await enter(pilot, "not now")
        await wait_for(pilot, lambda: "Done." in read_screen(app))
        await enter(pilot, "more")
        await wait_for(pilot, lambda: "Ctrl-X interrupts" in read_screen(app))
        await pilot.press("escape")
        assert app.chat.waits_for is None
        await pilot.press("ctrl+x")
        await wait_for(pilot, lambda: app.chat.waits_for == "interrupted")
        await pilot.press("ctrl+g")
        await wait_for(pilot, lambda: texts.FIND_TITLE in read_screen(app))
        await pilot.press("escape", "f12")
        await wait_for(pilot, lambda: keys.PLACES["message"] in read_screen(app))
        assert "Alt-Enter, Ctrl-J " in read_screen(app)
        assert "your editor" not in read_screen(app)
        await pilot.press("f12")
        await enter(pilot, "/theme")
        await wait_for(pilot, lambda: app.palette.name == "dark")
    kept = json.loads(path.read_text())
    assert kept == OWN | {"theme": "dark"}


def test_each_wrong_entry_is_one_line_that_says_what_is_accepted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "bel": True,
            "mouse": "no",
            "theme": "dusk",
            "keys": {
                "message": {"newlin": "ctrl+j", "queue": "hyper+q", "newline": "n", "send": "none", "stop": 3},
            },
        },
    )
    preferences, problems = read_preferences(path.parent)
    assert preferences.mouse
    assert all(problem.startswith(f"{path}: ") and "\n" not in problem for problem in problems)
    said = [problem.removeprefix(f"{path}: ") for problem in problems]
    assert said[0].startswith("bel is not a known key; did you mean `bell`? accepted: theme, bell, ")
    assert said[1] == "mouse: found the text `no`; accepted: true or false"
    assert said[2].startswith("keys.message.stop: found a number; accepted: ")
    assert said[3:] == ["theme: found the text `dusk`; accepted: dark, light, plain"]
    assert describe_problems(problems).endswith(" (3 more problems)")

    path = write(
        tmp_path,
        {
            "keys": {
                "anywere": {"find": "ctrl+g"},
                "message": {"newlin": "ctrl+j", "queue": "hyper+q", "newline": "n", "send": "none"},
                "anywhere": {"help": "ctrl+i", "find": "ctrl+g", "models": "ctrl+g"},
            },
            "themes": {"dark": {}, "dusk": {"text": "blue"}},
        },
    )
    preferences, problems = read_preferences(path.parent)
    said = [problem.removeprefix(f"{path}: ") for problem in problems]
    assert said[0].startswith("keys.anywere is not a place; did you mean `anywhere`? accepted: message, approval, ")
    assert said[1].startswith("keys.message.newlin is not an action; did you mean `newline`? accepted: send, queue")
    assert said[2].startswith("keys.message.queue: found `hyper+q`; accepted: Ctrl, Alt or Shift with a letter")
    assert said[3] == "keys.message.newline: found `n`, which types text here; accepted: the same with Ctrl or Alt"
    assert said[4].startswith("keys.message.send: found no key; accepted: Ctrl, ")
    assert said[5].startswith("keys.anywhere.help: found `ctrl+i`, which terminals do not tell from Tab")
    assert said[6].startswith("keys.anywhere.models: found `ctrl+g`, which keys.anywhere.find has too")
    assert said[7] == "themes.dark is the name of a built-in theme; accepted: another name"
    assert said[8] == "themes.dusk.text: found the text `blue`; accepted: #rrggbb"
    found, _ = keys.bind_keys(preferences.keys)
    assert (found["anywhere.find"], found["anywhere.models"]) == ("Ctrl-G", "F3")
    assert found["message.open_editor"] == "(no key)"


async def test_a_file_that_is_not_json_is_reported_and_kept(tmp_path: Path) -> None:
    path = write(tmp_path, '{"bell": false,}')
    async with open_app(tmp_path, theme="") as (app, pilot):
        await wait_for(pilot, lambda: "it is not valid JSON" in " ".join(read_screen(app).split()))
        await enter(pilot, "/bell")
        await wait_for(pilot, lambda: "bell: off" in read_screen(app))
    assert path.read_text() == '{"bell": false,}'


def test_every_key_that_a_text_names_exists() -> None:
    for name, text in vars(texts).items():
        if isinstance(text, str) and "{keys[" in text:
            for part in text.split("{keys[")[1:]:
                assert keys.DEFAULT_KEYS[part.partition("]")[0]], name


def test_the_documentation_lists_every_place_and_action() -> None:
    page = (Path(__file__).parents[3] / "docs" / "terminal-ui.md").read_text()
    listed = page.partition("**Places and actions**")[2].partition("- **Themes**")[0]
    for key in keys.KEYS:
        of_place = listed.partition(f"`{key.place}`:")[2].partition(";")[0]
        assert f"`{key.action}`" in of_place, f"{key.place}.{key.action}"
