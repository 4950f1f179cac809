"""Helper processes run no code of the workspace and hold nothing of the engine's environment."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from treadle.domain.permissions import SandboxPolicy
from treadle.models.local.server_processes import LocalServer
from treadle.ports.sandbox import Command
from treadle.sandbox.broker_client import BROKER_MODULE
from treadle.sandbox.commands import ShellCommands
from treadle.system.helper_process import ENVIRONMENT, FOLDER, run_helper

CANARY = "canary-0123456789-secret"
SHADOWED = (
    "json", "asyncio", "ctypes", "importlib", "signal", "socket", "select", "struct", "typing", "xllamacpp",
    "msgspec", "sitecustomize", "usercustomize", "treadle/__init__", "treadle/models/local/server",
    "treadle/sandbox/keeper", "startup",
)  # fmt: skip

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="only Linux shows the environment")


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A hostile workspace as the current folder and on every path that the environment can name; each of its files
    leaves a trace in the folder that is returned."""
    hostile, traces = tmp_path / "workspace", tmp_path / "traces"
    traces.mkdir()
    for name in SHADOWED:
        file = hostile / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch() if file.parent != hostile else None
        file.write_text(f"open({str(traces)!r} + '/' + __name__.replace('.', '-'), 'w').close()\n")
    site = hostile / ".local" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (site / "evil.pth").write_text(f"import os; open({str(traces)!r} + '/pth', 'w').close()\n")
    monkeypatch.chdir(hostile)
    for name, value in {
        "PYTHONPATH": str(hostile),
        "PYTHONSTARTUP": str(hostile / "startup.py"),
        "PYTHONUSERBASE": str(hostile / ".local"),
        "PYTHONINSPECT": "1",
        "PYTHONHOME": "",
        "HOME": str(hostile),
        "OPENAI_API_KEY": CANARY,
    }.items():
        monkeypatch.setenv(name, value)
    yield traces
    assert os.listdir(traces) == []


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def children_called(word: str) -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError):
            parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and word.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


def assert_isolated(pid: int) -> None:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert command[0] == os.fsencode(sys.executable)
    assert command[1].startswith(b"-I")
    assert CANARY.encode() not in environment_of(pid)
    assert {entry.partition(b"=")[0].decode() for entry in environment_of(pid).split(b"\0") if entry} <= set(
        ENVIRONMENT
    )
    assert os.readlink(f"/proc/{pid}/cwd") == FOLDER


@needs_proc
@pytest.mark.usefixtures("traces")
def test_the_server_of_a_local_model_is_isolated(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    weights = tmp_path / "model.gguf"
    os.mkfifo(weights)  # the server waits for its content, so it cannot end before it is looked at

    async def scenario() -> None:
        server = await LocalServer.start(weights, 512)
        try:
            assert_isolated(server.pid)
        finally:
            await server.kill()
        assert not await server.wait_until_loaded()

    asyncio.run(scenario())


@needs_proc
@pytest.mark.usefixtures("traces")
def test_the_command_broker_is_isolated(tmp_path: Path) -> None:
    async def scenario() -> str:
        commands = ShellCommands()
        try:
            finished = await commands.run(Command("env", tmp_path, SandboxPolicy("off")), lambda text: None)
            (keeper,) = children_called(BROKER_MODULE)
            assert_isolated(keeper)
        finally:
            commands.close()
        return finished.output

    assert CANARY not in asyncio.run(scenario())


@pytest.mark.usefixtures("traces")
def test_a_helper_finds_this_package_and_those_it_depends_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also in a virtual environment, and where this package is installed for editing."""
    assert (
        run_helper("treadle.surfaces.demo", str(tmp_path / "not" / "there")) == 1
    )  # it got as far as the database
    assert "not/there" in capfd.readouterr().err
