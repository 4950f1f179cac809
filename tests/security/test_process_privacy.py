"""Every process that may hold keys forbids dumps of its memory, also where the vault is empty."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has PR_SET_DUMPABLE")

LOOK = """
import asyncio, ctypes, os, resource
def is_private():
    return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0 and resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
assert not is_private()
"""
ENGINE = """
import treadle
from treadle.api.engine import create_engine
async def scenario():
    async with create_engine("sqlite:///:memory:"):
        assert is_private()
asyncio.run(scenario())
"""
COMMAND = """
from treadle.surfaces.terminal.process import perform
async def command():
    return 0 if is_private() else 9
perform(command)
"""
WITHOUT_RIGHTS = """
os.setgid(65534); os.setuid(65534)
from treadle.system.process_privacy import forbid_dumps
forbid_dumps()
assert os.read(os.open(f"/proc/{os.getppid()}/stat", os.O_RDONLY), 100)
if os.fork() == 0:
    try:
        open(f"/proc/{os.getppid()}/environ").read()
    except PermissionError:
        fields = open(f"/proc/{os.getppid()}/stat").read()
        os._exit(0 if fields and "NoNewPrivs" in open(f"/proc/{os.getppid()}/status").read() else 8)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
"""


def run(program: str, home: Path) -> int:
    environment = {"TREADLE_HOME": str(home), "OPENAI_API_KEY": "canary"}
    return subprocess.run(
        [sys.executable, "-c", LOOK + program], env=environment, check=False, timeout=HANG_SECONDS
    ).returncode


@pytest.mark.parametrize("program", [ENGINE, COMMAND], ids=["an engine", "a command"])
def test_memory_is_private_with_an_empty_vault(program: str, tmp_path: Path) -> None:
    assert run(program, tmp_path) == 0


def test_parent_ids_stay_readable(tmp_path: Path) -> None:
    """Processes without rights see the parent of such a process, and nothing of its environment."""
    if os.geteuid() != 0:
        pytest.skip("becomes another user: only root can")
    assert run(WITHOUT_RIGHTS, tmp_path) == 0
