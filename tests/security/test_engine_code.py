"""No command and no file tool changes the code that the engine runs, wherever the workspace is."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, journal, opened
from treadle.bootstrap import engine_setup
from treadle.domain.events import ToolCallEnd, ToolCallError
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import EnginePlaces
from treadle.ports.sandbox import Command, CommandError, Finished
from treadle.ports.tool import CallEnvironment
from treadle.sandbox.commands import NOT_INSTALLED, ShellCommands
from treadle.sandbox.limits import CommandLimits
from treadle.sandbox.self_restriction import read_landlock_version
from treadle.testing.models import ScriptedModel, ask, call, say
from treadle.tools.bash import Bash, BashArguments

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason=NOT_INSTALLED)
needs_landlock = pytest.mark.skipif(read_landlock_version() < 3, reason="the kernel has no Landlock 3")
MODULE = "tools/.venv/lib/module.py"
ORIGINAL = "print('the engine')\n"
Run = Callable[..., Finished]


def run_once(commands: ShellCommands, command: Command) -> Finished:
    return asyncio.run(commands.run(command, lambda text: None))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A workspace with an environment, two folders below its top, and the package of an editable installation."""
    folder = Path(os.path.realpath(tmp_path)) / "project"
    for name in (MODULE, "src/treadle/engine.py", "tools/.venv/bin/python", "tools/.venv/__pycache__/x.pyc"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(ORIGINAL)
    (folder / "notes.md").write_text("notes\n")
    (folder / "shortcut").symlink_to("tools/.venv/lib")
    return folder


@pytest.fixture
def places(project: Path) -> EnginePlaces:
    code = (str(project / "tools" / ".venv"), str(project / "src" / "treadle"))
    return EnginePlaces(code=code, roots=(str(project / "src"), str(project / ".local" / "site-packages")))


@pytest.fixture
def commands(tmp_path: Path, places: EnginePlaces) -> Iterator[ShellCommands]:
    home = tmp_path / "home"
    home.mkdir()
    opened = ShellCommands(hidden=[home], engine=places, limits=CommandLimits(grace=0.2))
    yield opened
    opened.close()


@pytest.fixture
def run(commands: ShellCommands, project: Path) -> Run:
    def run(text: str, policy: SandboxPolicy | None = None, workspace: Path = project) -> Finished:
        return run_once(commands, Command(text, workspace, policy or SandboxPolicy("required")))

    return run


def read_code(project: Path) -> dict[str, str]:
    """Return the content of every file in the places of the engine."""
    return {
        file.relative_to(project).as_posix(): file.read_text()
        for top in ("tools/.venv", "src", ".local/site-packages")
        for file in (project / top).rglob("*")
        if file.is_file()
    }


@needs_bubblewrap
@pytest.mark.parametrize(
    "attack",
    [
        f"echo evil >> {MODULE}",
        "echo evil > tools/.venv/lib/evil.pth",
        "echo evil > tools/.venv/__pycache__/x.pyc",
        "echo evil >> shortcut/module.py",
        f"rm -rf tools/.venv/lib; mkdir -p tools/.venv/lib; echo evil > {MODULE}",
        f"mv tools/.venv tools/old; mkdir -p tools/.venv/lib; echo evil > {MODULE}",
        f"mv tools old; mkdir -p tools/.venv/lib; echo evil > {MODULE}",
        "mv src old; mkdir -p src/treadle; echo evil > src/treadle/engine.py",
        "echo evil > src/keyring.py",
        f"ln {MODULE} mine; echo evil >> mine",
        f"ln -s ../tools/.venv/lib there; echo evil >> there/module.py; cp notes.md {MODULE}",
        "mkdir -p .local/site-packages; echo evil > .local/site-packages/evil.pth",
        "rm -rf src; ln -s /tmp src",
        f"chmod 777 {MODULE}; dd if=notes.md of={MODULE} conv=notrunc; truncate -s 0 {MODULE}",
        f"python3 -c \"import os; os.rename('notes.md', '{MODULE}')\"",
    ],
)
def test_a_sandboxed_command_cannot_change_the_code_of_the_engine(run: Run, project: Path, attack: str) -> None:
    before = read_code(project)
    run(attack)
    assert read_code(project) == before


@needs_bubblewrap
def test_the_rest_of_the_workspace_stays_writable(run: Run, project: Path) -> None:
    ended = run(
        "echo more >> notes.md && touch tools/new && mkdir sub && mv sub tools/sub2 && cat tools/.venv/bin/python"
    )
    assert ended.exit_code == 0, ended.output
    assert (project / "tools" / "sub2").is_dir()
    assert "the engine" in ended.output


@needs_bubblewrap
def test_a_failed_command_learns_why_and_what_to_do(run: Run, project: Path) -> None:
    ended = run("touch src/treadle/new.py")
    assert f"Treadle runs from {project / 'src'}" in ended.advice
    assert "uv tool install treadle" in ended.advice
    assert "pipx install treadle" in ended.advice


@needs_bubblewrap
def test_a_writable_folder_of_the_agent_does_not_open_the_code(run: Run, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    before = read_code(project)
    whole = SandboxPolicy("required", writable=(str(project),))
    run(f"cd {project} && mv tools old; echo evil >> {MODULE}", whole, other)
    assert read_code(project) == before
    with pytest.raises(CommandError, match=r"must not write to .*\.venv.*pipx install treadle"):
        run("true", SandboxPolicy("required", writable=(str(project / "tools" / ".venv" / "lib"),)), other)


@needs_bubblewrap
def test_a_workspace_inside_the_code_of_the_engine_is_refused(run: Run, project: Path) -> None:
    with pytest.raises(CommandError, match=r"must not write to .*Treadle runs from .*uv tool install treadle"):
        run("true", workspace=project / "src" / "treadle")


@needs_bubblewrap
def test_the_parents_of_the_home_cannot_be_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "user"
    home = folder / "data" / ".treadle"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("mine")
    commands = ShellCommands(hidden=[home], engine=EnginePlaces(), limits=CommandLimits(grace=0.2))
    line = "mv data old; mkdir -p data/.treadle; echo evil > data/.treadle/config.yaml"
    run_once(commands, Command(line, folder, SandboxPolicy("required")))
    commands.close()
    assert (home / "config.yaml").read_text() == "mine"


@needs_bubblewrap
@pytest.mark.parametrize("place", ["work/.venv/lib/python3.11/site-packages", "work/.cache/uv/archive"])
def test_a_package_that_shares_its_files_with_the_engine_does_not_change_it(tmp_path: Path, place: str) -> None:
    """As `uv` installs packages: files of two environments, and of its cache, are hard links."""
    base = Path(os.path.realpath(tmp_path))
    packages, shared = base / "engine" / "site-packages", base / place
    for folder in (packages / "shared", shared / "shared"):
        folder.mkdir(parents=True)
    (base / "work" / ".venv").mkdir(exist_ok=True)
    (base / "work" / ".venv" / "pyvenv.cfg").touch()
    (packages / "shared" / "module.py").write_text(ORIGINAL)
    os.link(packages / "shared" / "module.py", shared / "shared" / "module.py")
    commands = ShellCommands(engine=EnginePlaces(code=(str(packages),)), limits=CommandLimits(grace=0.2))
    line = f"echo evil >> {shared}/shared/module.py"
    ended = run_once(commands, Command(line, base / "work", SandboxPolicy("required")))
    commands.close()
    assert ended.exit_code == 0, ended.output
    assert "evil" in (shared / "shared" / "module.py").read_text()
    assert (packages / "shared" / "module.py").read_text() == ORIGINAL


@needs_landlock
def test_without_a_sandbox_landlock_keeps_code_outside_of_the_workspace(
    project: Path, places: EnginePlaces, tmp_path: Path
) -> None:
    workspace = tmp_path / "elsewhere"
    workspace.mkdir()
    before = read_code(project)
    commands = ShellCommands(engine=places, bubblewrap="no-such-program")
    line = f"cd {project}; cat {MODULE}; echo evil >> {MODULE}; mv tools old; echo ok > {workspace}/done"
    ended = run_once(commands, Command(line, workspace, SandboxPolicy("auto")))
    commands.close()
    assert "the engine" in ended.output
    assert read_code(project) == before
    assert (workspace / "done").read_text() == "ok\n"


async def outcomes(
    tmp_path: Path, workspace: Path, *calls: tuple[str, dict[str, Any]], **settings: Any
) -> list[ToolCallEnd | ToolCallError]:
    """Run these calls with a reviewer who approves everything."""
    step = ask(*(call(name, f"c{n}", **arguments) for n, (name, arguments) in enumerate(calls)))

    async with opened(tmp_path, ScriptedModel(step, say("done"))) as engine:
        hero = agent(tools=["@files", "bash"], workspace=workspace, limits={"max_steps": 50}, **settings)
        callbacks = treadle.Callbacks(on_approval=lambda event: "approve")
        result = await engine.run(hero, "go", callbacks)
        events = [event.data for event in await journal(engine, result.run_id)]
    ended = {data.call_id: data for data in events if isinstance(data, ToolCallEnd | ToolCallError)}
    return [ended[key] for key in sorted(ended)]


WRITES: list[tuple[str, dict[str, Any]]] = [
    ("write_file", {"path": MODULE, "content": "evil"}),
    ("edit_file", {"path": MODULE, "old": "print", "new": "evil"}),
    ("write_file", {"path": "tools/.venv/lib/evil.pth", "content": "evil"}),
    ("write_file", {"path": "tools/.venv/new/folder/evil.py", "content": "evil"}),
    ("write_file", {"path": "shortcut/module.py", "content": "evil"}),
    ("write_file", {"path": "tools/x/../.venv/lib/module.py", "content": "evil"}),
    ("write_file", {"path": "src/keyring.py", "content": "evil"}),
    ("write_file", {"path": ".local/site-packages/evil.pth", "content": "evil"}),
    ("write_file", {"path": "tools/.VENV/lib/module.py", "content": "evil"}),
]


@pytest.mark.parametrize("rules", [{"default": "auto"}, {"default": "ask"}])
async def test_no_file_tool_changes_the_code_of_the_engine_even_if_a_reviewer_approves(
    tmp_path: Path, project: Path, places: EnginePlaces, monkeypatch: pytest.MonkeyPatch, rules: dict[str, str]
) -> None:
    monkeypatch.setattr(engine_setup, "list_engine_places", lambda: places)
    before = read_code(project)
    ended = await outcomes(tmp_path, project, *WRITES, approvals=rules)
    for attempt, outcome in zip(WRITES, ended, strict=True):
        assert isinstance(outcome, ToolCallError), attempt
        assert "Treadle runs from" in outcome.content
        assert "uv tool install treadle" in outcome.content
    assert read_code(project) == before
    assert not (project / "tools" / ".venv" / "new").exists()


async def test_file_tools_read_the_code_of_the_engine_and_write_elsewhere(
    tmp_path: Path, project: Path, places: EnginePlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_setup, "list_engine_places", lambda: places)
    read, written = await outcomes(
        tmp_path,
        project,
        ("read_file", {"path": MODULE}),
        ("write_file", {"path": "tests/new/test_x.py", "content": "x"}),
    )
    assert isinstance(read, ToolCallEnd)
    assert "the engine" in read.content
    assert isinstance(written, ToolCallEnd)


async def test_a_workspace_inside_the_code_of_the_engine_cannot_be_written_by_file_tools(
    tmp_path: Path, project: Path, places: EnginePlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_setup, "list_engine_places", lambda: places)
    (outcome,) = await outcomes(
        tmp_path, project / "src" / "treadle", ("write_file", {"path": "engine.py", "content": "evil"})
    )
    assert isinstance(outcome, ToolCallError)
    assert "Treadle runs from" in outcome.content


async def test_the_reviewer_of_a_command_without_a_sandbox_learns_that_it_can_change_the_engine(
    project: Path, places: EnginePlaces
) -> None:
    commands = ShellCommands(engine=places, bubblewrap="no-such-program")
    scene = CallEnvironment("c1", project, SandboxPolicy("auto"), engine=places)
    concern = await Bash(commands).assess(BashArguments("true"), scene)
    commands.close()
    assert concern is not None
    assert "it can change the code that Treadle runs from, in " in concern.reason
    assert str(project / "tools" / ".venv") in concern.reason
