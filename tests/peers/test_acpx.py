"""`acpx`, a command line client of the Agent Client Protocol, against `treadle acp`. `make peers` installs it."""

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.scripted_endpoint import calls, says, serve, write_home
from tests.surfaces.shell import COMMAND as TREADLE

PEERS = Path(__file__).parents[2] / ".peers" / "node_modules"
NODE, ACPX = PEERS / ".bin" / "node", PEERS / "acpx" / "dist" / "cli.js"
pytestmark = pytest.mark.skipif(
    not (NODE.exists() and ACPX.exists()), reason="acpx and node 22 are not installed; `make peers` installs them"
)
AGENT = """\
name: default
model: fake/m
tools: [bash, write_file]
approvals: {default: ask}
sandbox: {mode: off}
"""


class Acpx:
    """The command, in a folder of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self._environment = folder, environment

    def __call__(self, *arguments: str) -> str:
        words = [str(NODE), str(ACPX), "--agent", f"{TREADLE} acp", "--cwd", str(self.folder), *arguments]
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={"PATH": f"{NODE.parent}:{os.environ['PATH']}", "LANG": "C.UTF-8", **self._environment},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def acpx(tmp_path: Path) -> Generator[Acpx]:
    script = (
        calls("write_file", path="a.txt", content="from acpx\n"),
        says("Written."),
        says("Second answer."),
        says("Third answer."),
    )
    with ExitStack() as opened:
        endpoint = opened.enter_context(serve(*script))
        folder = tmp_path / "project"
        folder.mkdir()
        yield Acpx(folder, write_home(tmp_path / "home", endpoint.url, agent=AGENT))


def test_acpx_prompts_approves_and_continues_a_session(acpx: Acpx) -> None:
    once = acpx("--approve-all", "--format", "json", "exec", "write the file")
    assert (acpx.folder / "a.txt").read_text() == "from acpx\n"
    messages = [json.loads(line) for line in once.splitlines() if line.startswith("{")]
    text = json.dumps(messages)
    assert "Written." in text
    assert "tool_call" in text
    acpx("sessions", "new")
    try:
        assert "Second answer." in acpx("prompt", "go on")
        assert "Third answer." in acpx("prompt", "and on")
        assert "cancel" in acpx("cancel").lower()
    finally:
        acpx("sessions", "close")
