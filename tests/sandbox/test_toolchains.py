"""Commands use the programs of the user: found on their path, shown read-only, with caches in a private place."""

import asyncio
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.sandbox.conftest import EACH_MODE, needs_bubblewrap
from treadle.domain.permissions import SandboxMode, SandboxPolicy
from treadle.ports.sandbox import Command, Finished
from treadle.sandbox.commands import ShellCommands
from treadle.sandbox.limits import CommandLimits
from treadle.sandbox.toolchains import SYSTEM_PATH, find_toolchains

each_mode = pytest.mark.parametrize("mode", EACH_MODE)


class User:
    """A user with a home of their own, whose programs commands may use."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "user"
        self.workspace = self.home / "project"
        self.workspace.mkdir(parents=True)
        self.engine = self.home / ".treadle"
        self.engine.mkdir()
        self.environment = {"HOME": str(self.home), "PATH": SYSTEM_PATH}

    def program(self, place: str, says: str) -> Path:
        """Write a program into the home."""
        path = self.home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {says}\n")
        path.chmod(0o755)
        return path

    def on_path(self, *folders: Path) -> None:
        self.environment["PATH"] = ":".join(map(str, (*folders, SYSTEM_PATH)))

    def run(self, text: str, mode: SandboxMode = "required") -> Finished:
        commands = ShellCommands(hidden=[self.engine], user=self.environment, limits=CommandLimits(grace=0.2))
        try:
            return asyncio.run(commands.run(Command(text, self.workspace, SandboxPolicy(mode)), lambda text: None))
        finally:
            commands.close()


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@each_mode
def test_a_program_of_the_user_is_found(user: User, mode: SandboxMode) -> None:
    tool = user.program(".tools/v2/bin/mytool", "found")
    (tool.parents[1] / "lib").mkdir()
    (tool.parents[1] / "lib" / "data").write_text("library")
    user.on_path(tool.parent)
    done = user.run(f"mytool && cat {tool.parents[1]}/lib/data", mode)
    assert (done.output, done.exit_code) == ("found\nlibrary", 0)


@each_mode
def test_an_activated_environment_of_the_workspace_is_used(user: User, mode: SandboxMode) -> None:
    place = user.workspace / ".venv"
    venv.create(place, symlinks=True)
    user.on_path(place / "bin")
    user.environment["VIRTUAL_ENV"] = str(place)
    done = user.run("python -c 'import sys, os; print(sys.prefix, os.environ[\"VIRTUAL_ENV\"])'", mode)
    assert done.output == f"{place} {place}\n"


@needs_bubblewrap
def test_the_interpreter_of_an_environment_that_is_not_activated_is_shown(user: User) -> None:
    venv.create(user.workspace / ".venv", symlinks=True)
    done = user.run(".venv/bin/python -c 'import sys; print(sys.base_prefix)'")
    assert done.output == f"{sys.base_prefix}\n"


@each_mode
def test_other_programs_of_the_workspace_are_not_searched_for(user: User, mode: SandboxMode) -> None:
    hostile = user.program("project/bin/ls", "hostile")
    user.on_path(hostile.parent, Path("."), Path("bin"))
    user.environment["VIRTUAL_ENV"] = str(user.workspace)  # which is not an environment
    assert "hostile" not in user.run("ls", mode).output


@needs_bubblewrap
def test_folders_of_programs_are_read_only_and_show_nothing_else(user: User) -> None:
    tool = user.program("bin/mytool", "found")
    other = user.program(".local/share/app/bin/other", "other")
    (user.home / ".local" / "bin").mkdir()
    (user.home / ".local" / "bin" / "other").symlink_to(other)
    (user.home / ".ssh").mkdir()
    (user.home / ".ssh" / "id_ed25519").write_text("canary")
    (user.home / "letters.txt").write_text("canary")
    user.on_path(tool.parent, user.home / ".local" / "bin", user.home, user.home / ".ssh", user.engine)
    done = user.run(
        f"mytool; other; cat {user.home}/letters.txt {user.home}/.ssh/*; touch {tool.parent}/new; ls -A .."
    )
    assert done.output.startswith("found\nother\n")
    assert "canary" not in done.output
    assert "Read-only file system" in done.output
    assert done.output.splitlines()[-3:] == [".local", "bin", "project"]


@each_mode
def test_caches_are_in_a_private_folder(user: User, mode: SandboxMode) -> None:
    (user.home / ".rustup").mkdir()
    names = "XDG_CACHE_HOME CARGO_HOME GOPATH GRADLE_USER_HOME npm_config_cache"
    line = f"for name in {names}; do mkdir -p ${{!name}}/x && echo written; done; echo $RUSTUP_HOME"
    assert user.run(line, mode).output == "written\n" * 5 + f"{user.home}/.rustup\n"
    assert not (user.home / ".cargo").exists()


@needs_bubblewrap
@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("mytool", "`mytool` is in {engine}/bin, which commands of this agent cannot see."),
        ("touch /usr/new", "add the folder to `sandbox.writable`"),
        ("getent hosts example.com || echo 'Could not resolve host: example.com'; exit 6", "network: true"),
        ("nosuchtool", ""),
        ("echo Could not resolve host", ""),
    ],
)
def test_a_failed_command_says_which_setting_gives_access(user: User, line: str, advice: str) -> None:
    user.program(".treadle/bin/mytool", "hidden")
    user.on_path(user.engine / "bin")
    told = user.run(line).advice
    assert advice.format(engine=user.engine) in told if advice else not told


def test_a_workspace_cannot_have_another_folder_shown(user: User) -> None:
    private = user.program("letters/bin/python", "private")
    (user.workspace / ".venv" / "bin").mkdir(parents=True)
    (user.workspace / ".venv" / "bin" / "python").symlink_to(private)
    assert list_shown_folders(user.environment, user) == ()


def list_shown_folders(environment: Mapping[str, str], user: User) -> tuple[Path, ...]:
    return find_toolchains(environment, user.workspace, [user.engine], "/run/home").folders
