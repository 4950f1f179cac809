"""Commands of this machine, with and without a sandbox."""

import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.hostile import MODES
from treadle.domain.permissions import SandboxMode, SandboxPolicy
from treadle.ports.sandbox import Command, Finished
from treadle.sandbox.commands import NOT_INSTALLED, ShellCommands
from treadle.sandbox.limits import CommandLimits

Run = Callable[..., Coroutine[Any, Any, Finished]]

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason=NOT_INSTALLED)
EACH_MODE = [pytest.param(mode, marks=needs_bubblewrap if mode == "required" else ()) for mode in MODES]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work space\nwith 'odd' names"
    folder.mkdir()
    return folder


@pytest.fixture(params=EACH_MODE)
def mode(request: pytest.FixtureRequest) -> SandboxMode:
    return request.param


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[ShellCommands]:
    home = tmp_path / "home" / ".treadle"
    home.mkdir(parents=True)
    (home / "vault.db").write_text("canary")
    opened = ShellCommands(hidden=[home], limits=CommandLimits(grace=0.2))
    yield opened
    opened.close()


def unseen(text: str) -> None:
    """Take no notice of what a command writes."""


@pytest.fixture
def run(commands: ShellCommands, workspace: Path) -> Run:
    """Run a text in the workspace, by the sandbox unless another policy is given."""

    async def run(text: str, policy: SandboxPolicy | None = None, **more: Any) -> Finished:
        show: Callable[[str], None] = more.pop("show", unseen)
        command = Command(text, more.pop("workspace", workspace), policy or SandboxPolicy("required"), **more)
        return await commands.run(command, show)

    return run
