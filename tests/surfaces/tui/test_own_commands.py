"""`!command`, commands from files and skills, and what the commands of inspection show."""

from pathlib import Path

import pytest

from tests.surfaces.tui.stage import WITH_BASH, enter, open_app, read_screen, wait_for
from treadle.domain.permissions import ApprovalRule
from treadle.skills.command_files import list_command_files
from treadle.surfaces.tui import texts
from treadle.testing.models import ScriptedModel, ask, call, say


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_commands_come_from_the_user_and_the_project(tmp_path: Path) -> None:
    home, work, user = tmp_path / "home", tmp_path / "work", tmp_path / "user"
    head = "---\ndescription: 'Fix an issue'\nargument-hint: NUMBER\n---\n"
    write(home / "commands" / "fix.md", f"{head}Fix issue $1 ($ARGUMENTS).\n")
    write(work / ".claude" / "commands" / "fix.md", "The project's own.")
    write(work / ".claude" / "commands" / "docs" / "write.md", "# Write docs\nWrite them.\n")
    write(user / ".codex" / "prompts" / "tidy.md", "Tidy up.")
    write(work / ".opencode" / "command" / "empty.md", "\n")
    (work / ".treadle" / "commands").mkdir(parents=True)
    (work / ".treadle" / "commands" / "secret.md").symlink_to(home / "commands" / "fix.md")
    found = {each.name: each for each in list_command_files(work, home, user)}
    assert {name: each.is_own for name, each in found.items()} == {"fix": True, "tidy": True, "docs:write": False}
    assert (found["fix"].description, found["fix"].argument) == ("Fix an issue", "NUMBER")
    assert found["fix"].expand("7 now") == "Fix issue 7 (7 now)."
    assert found["tidy"].expand("here") == "Tidy up.\n\nhere"
    assert found["docs:write"].description == "Write docs"


async def test_a_command_of_a_project_is_shown_before_it_is_sent(tmp_path: Path) -> None:
    write(tmp_path / "work" / ".claude" / "commands" / "greet.md", "Greet $ARGUMENTS. !`touch x` @/etc/passwd")
    write(tmp_path / "home" / "commands" / "part.md", "Say goodbye to $1.")
    model = ScriptedModel(say("Bye."))
    async with open_app(tmp_path, model) as (app, pilot):
        await enter(pilot, "/greet Anna")
        await wait_for(pilot, lambda: app.prompt.text == "Greet Anna. !`touch x` @/etc/passwd")
        assert not model.requests
        app.prompt.put("")
        await pilot.press(*"/par")
        await wait_for(pilot, lambda: "Say goodbye to" in read_screen(app))
        app.prompt.put("")
        await enter(pilot, "/part Anna")
        await wait_for(pilot, lambda: "Bye." in read_screen(app))
        assert "Say goodbye to Anna." in read_screen(app)


async def test_a_shell_command_is_shown_and_goes_with_the_next_message(tmp_path: Path) -> None:
    model = ScriptedModel(say("I see."))
    async with open_app(tmp_path, model, agent=WITH_BASH) as (app, pilot):
        await enter(pilot, "!echo woven > cloth; cat cloth; exit 3")
        await wait_for(pilot, lambda: "[exit code 3]" in read_screen(app))
        assert (tmp_path / "work" / "cloth").read_text() == "woven\n"
        assert not model.requests
        await enter(pilot, "what is that?")
        await wait_for(pilot, lambda: "I see." in read_screen(app))
        assert "woven\n[exit code 3]" in model.requests[0].conversation.messages[-1].text


async def test_context_servers_and_permissions_are_shown(tmp_path: Path) -> None:
    async with open_app(tmp_path, ScriptedModel(say("Hello.")), size=(120, 50)) as (app, pilot):
        await enter(pilot, "/context")
        await wait_for(pilot, lambda: texts.NO_SESSION in read_screen(app))
        await enter(pilot, "hello")
        await wait_for(pilot, lambda: app.chat.run is not None and app.chat.run.ended)
        await enter(pilot, "/context")
        await wait_for(
            pilot, lambda: "system prompt" in read_screen(app) and texts.CONTEXT_FREE in read_screen(app)
        )
        await enter(pilot, "/mcp")
        await wait_for(pilot, lambda: "No MCP server is configured" in read_screen(app))
        app.link.home.allow("default", "write_file", "*.md", str(tmp_path))
        await enter(pilot, "/permissions")
        await wait_for(pilot, lambda: "Allowed permanently" in read_screen(app) and "*.md" in read_screen(app))
        assert app.link.home.list_allowed("default") == (
            ApprovalRule("write_file", "auto", "*.md", workspace=str(tmp_path)),
        )
        await enter(pilot, "/permissions remove 1")
        await wait_for(pilot, lambda: app.link.home.list_allowed("default") == ())


async def test_permissions_show_what_was_allowed_for_the_session(tmp_path: Path) -> None:
    asks_first = WITH_BASH.replace("default: auto", "default: ask")
    model = ScriptedModel(
        ask(call("bash", command="echo woven")),
        say("Done."),
        ask(call("bash", command="echo again")),
        say("Later."),
    )
    async with open_app(tmp_path, model, agent=asks_first, size=(120, 50)) as (app, pilot):
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "4 allow" in read_screen(app))
        await pilot.press("4")
        await wait_for(pilot, lambda: "Done." in read_screen(app))
        app.link.home.allow("default", "write_file", "*.md", str(tmp_path))
        await enter(pilot, "/permissions")
        await wait_for(pilot, lambda: texts.PERMISSIONS_SESSION in read_screen(app))
        shown = read_screen(app).partition(texts.PERMISSIONS_SESSION)[2]
        assert "echo *" in shown
        await enter(pilot, "/permissions remove 1")
        await wait_for(pilot, lambda: "Removed: bash echo *" in read_screen(app))
        assert len(app.link.home.list_allowed("default")) == 1
        await enter(pilot, "go")
        await wait_for(pilot, lambda: "echo again" in read_screen(app) and "4 allow" in read_screen(app))
        await pilot.press("3")
        await pilot.press("enter")
        await wait_for(pilot, lambda: "Later." in read_screen(app))
        await enter(pilot, "/permissions remove 1")
        await wait_for(pilot, lambda: app.link.home.list_allowed("default") == ())
