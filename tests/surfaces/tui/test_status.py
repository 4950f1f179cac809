"""What stays in sight: the plan, the mode, the place with its branch, the title and notifications."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.surfaces.tui.stage import open_app, read_screen, wait_for
from treadle.domain.plans import PlanExtract, extract_plan, summarize_plan
from treadle.domain.transcript import PlanStep
from treadle.surfaces.tui.edited_arguments import make_editable, read_edited
from treadle.surfaces.tui.notification import find_protocol, make_notification
from treadle.system.git_state import GitState, read_git_state
from treadle.testing.models import ScriptedModel, ask, call, say


async def test_the_plan_and_the_mode_stay_in_sight_while_the_run_works(tmp_path: Path) -> None:
    steps = [{"content": "look", "status": "completed"}, {"content": "write", "status": "in_progress"}]
    lines = "\n\n".join(f"line {number}" for number in range(40))
    model = ScriptedModel(
        ask(call("update_plan", "p1", entries=steps)),
        ask(call("write_file", "w1", path="a.txt", content="x"), text=lines),
        say("Done."),
    )

    async with open_app(tmp_path, model) as (app, pilot):
        await wait_for(pilot, lambda: "ready  ask" in read_screen(app))
        await pilot.press("shift+tab", "shift+tab", "shift+tab")
        await wait_for(pilot, lambda: app.chat.mode in ("auto", "ask"))
        await app.chat.set_mode("ask")
        await pilot.press(*"go", "enter")
        await wait_for(pilot, lambda: "4 all" in read_screen(app))
        await wait_for(pilot, lambda: "Plan · 1 of 2 done · write" in read_screen(app))
        await pilot.press("4")
        await wait_for(pilot, lambda: "Done." in read_screen(app))
        await wait_for(pilot, lambda: "Plan ·" not in read_screen(app))
        await wait_for(pilot, lambda: "ready  accept edits" in read_screen(app))


async def test_key_5_stores_a_rule_for_this_workspace(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("write_file", "w1", path="a.txt", content="x")), say("Done."))

    async with open_app(tmp_path, model) as (app, pilot):
        await pilot.press(*"go", "enter")
        await wait_for(pilot, lambda: "5 always" in read_screen(app))
        await pilot.press("5")
        await wait_for(pilot, lambda: "Done." in read_screen(app))
        rules = tmp_path / "home" / "agents" / "default" / "allowed.yaml"
        await wait_for(pilot, rules.exists)
        assert "write_file" in rules.read_text()
        assert str(tmp_path / "work") in rules.read_text()


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"command": 'grep "a\\b" x\nls'}, 'grep "a\\b" x\nls'),
        ({"path": "a", "content": "one\n\ntwo\n"}, "── path\na\n── content\none\n\ntwo\n"),
        ({"path": "a", "count": 3, "old": "", "new": "x"}, "── path\na\n── count\n3\n── old\n\n── new\nx"),
        ({"content": "a\tb\u202e"}, None),
        ({"a": "── b", "b": "c"}, None),
    ],
)
def test_arguments_are_edited_as_text_and_read_back_exactly(
    arguments: dict[str, object], shown: str | None
) -> None:
    whole = json.dumps(arguments)
    text = make_editable(whole)
    assert text == shown if shown is not None else json.loads(text) == arguments
    assert json.loads(read_edited(whole, text)) == arguments


def test_a_long_plan_shows_what_is_around_the_current_step() -> None:
    steps = [PlanStep(str(number), "completed" if number < 6 else "pending") for number in range(10)]
    assert extract_plan(steps, 4) == PlanExtract(tuple(steps[5:9]), 5, 1)
    assert extract_plan(steps[:3], 4) == PlanExtract(tuple(steps[:3]))
    assert summarize_plan([*steps, PlanStep("now", "in_progress")]) == "6 of 11 done · now"


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-256color"}, "bell"),
        ({"TERM_PROGRAM": "WezTerm"}, "osc9"),
        ({"KITTY_WINDOW_ID": "1"}, "osc99"),
        ({"VTE_VERSION": "7600"}, "osc777"),
        ({"TERM": "foot"}, "osc777"),
        ({"TERM_PROGRAM": "tmux", "LC_TERMINAL": "iTerm2", "TMUX": "x"}, "osc9"),
        ({"STY": "1", "VTE_VERSION": "7600"}, "bell"),
    ],
)
def test_each_terminal_is_notified_in_its_own_protocol(environment: dict[str, str], protocol: str) -> None:
    assert find_protocol(environment) == protocol


def test_tmux_passes_a_notification_on() -> None:
    made = make_notification("done\x1b]0;x\x07", {"TERM_PROGRAM": "ghostty", "TMUX": "x"})
    assert made.startswith("\x07\x1bPtmux;\x1b\x1b]9;done")
    assert made.endswith("\x07\x1b\\")
    assert made.count("\x07") == 2, "text of an agent ends no sequence"


def test_the_git_state_is_read_without_git(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    assert read_git_state(tmp_path / "none") is None
    git("init", "-q", "-b", "main")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "x")
    (tmp_path / "untracked").write_text("1")
    found: list[GitState | None] = []
    for text in ("1", "2", "1"):
        (tmp_path / "a").write_text(text)
        found.append(read_git_state(tmp_path))
    assert [(each.branch, each.is_dirty) for each in found if each] == [
        ("main", False),
        ("main", True),
        ("main", False),
    ]
    (tmp_path / "b").write_text("1")
    git("add", "b")
    staged = read_git_state(tmp_path)
    assert staged is not None
    assert staged.is_dirty
    git("commit", "-qm", "y")
    git("checkout", "-q", "--detach")
    detached = read_git_state(tmp_path)
    assert detached is not None
    assert (len(detached.branch), detached.is_dirty) == (8, False)
