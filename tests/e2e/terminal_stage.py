"""A home, a project folder and a scripted endpoint for tests of the terminal UI in a real terminal."""

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.scripted_endpoint import ScriptedEndpoint, serve, write_home
from tests.e2e.tmux import Terminal, open_terminal
from tests.fake_endpoint import Behaviour, Policy

TREADLE = str(Path(sys.executable).parent / "treadle")
READY = "○ ready"
AUTO = """\
name: default
model: fake/m
tools: [bash, read_file, write_file, edit_file, clarify, agent_spawn]
approvals: {default: auto}
sandbox: {mode: off}
"""
ASK = AUTO.replace("auto", "ask")


class Stage:
    """A home, a folder and an endpoint."""

    def __init__(self, folder: Path, endpoint: ScriptedEndpoint, environment: dict[str, str]) -> None:
        self.folder, self.endpoint, self.environment = folder, endpoint, environment

    @contextmanager
    def open(
        self, *arguments: str, columns: int = 80, rows: int = 24, ready: str = READY, **variables: str
    ) -> Generator[Terminal]:
        """Open the UI and wait until it is ready. tmux has a TERM of its own, which `env` replaces."""
        words = ["env", *(f"{name}={value}" for name, value in variables.items()), TREADLE, *arguments]
        with open_terminal(words, self.folder, self.environment, columns=columns, rows=rows) as terminal:
            terminal.wait_for(ready)
            yield terminal

    def run(self, *arguments: str) -> str:
        """Run a command to its end."""
        variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **self.environment}
        return subprocess.run(
            [TREADLE, *arguments], cwd=self.folder, env=variables, check=True, capture_output=True, text=True
        ).stdout


MakeStage = Callable[..., Stage]


@pytest.fixture
def stage(tmp_path: Path) -> Generator[MakeStage]:
    with ExitStack() as opened:

        def make(*script: Behaviour, agent: str = AUTO, policy: Policy | None = None) -> Stage:
            endpoint = opened.enter_context(serve(*script, policy=policy))
            folder = tmp_path / "project"
            folder.mkdir(exist_ok=True)
            return Stage(folder, endpoint, write_home(tmp_path / "home", endpoint.url, agent=agent))

        yield make


def send(terminal: Terminal, text: str) -> None:
    terminal.type(text)
    terminal.wait_for(text[-20:])
    terminal.send("Enter")
