"""What a confined command can see, read, write and reach."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS
from tests.sandbox.conftest import Run, needs_bubblewrap
from tests.sandbox.endurance import Left, endure
from tests.sandbox.hostile import MODES
from treadle.domain.permissions import SandboxPolicy
from treadle.ports.sandbox import CommandError
from treadle.sandbox.bubblewrap import resolve_exposed

pytestmark = needs_bubblewrap

LOOK = """
env; cat /proc/*/environ /proc/*/cmdline /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'
cat /proc/1/environ; cat /proc/1/mountinfo
"""


def show(policy: dict[str, tuple[str, ...]]) -> SandboxPolicy:
    return SandboxPolicy("required", **policy)  # pyright: ignore[reportArgumentType] -- fields by name


async def test_the_environment_of_the_engine_is_not_visible(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "tweet-tweet")
    finished = await run(LOOK, environment={"TOKEN": "granted-value"})
    assert "tweet-tweet" not in finished.output
    assert "TOKEN=granted-value" in finished.output


async def test_secrets_are_in_no_list_of_processes(run: Run) -> None:
    async def listed() -> str:
        begun = asyncio.Event()

        def show(text: str) -> None:
            del text
            begun.set()

        command = "echo begun; sleep 1000 & wait"
        running = asyncio.create_task(run(command, environment={"TOKEN": "granted-value"}, show=show))
        await begun.wait()
        found = command_lines()
        running.cancel()
        await running
        return found

    found = await listed()
    assert "echo begun; sleep 1000" in found
    assert "granted-value" not in found


def command_lines() -> str:
    lines: list[bytes] = []
    for pid in os.listdir("/proc"):
        with suppress(OSError):
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    return b"\n".join(lines).decode(errors="replace")


async def test_homes_and_other_folders_are_not_visible(run: Run, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("canary")
    text = f"ls -A /root /home /mnt /opt /srv /var /run 2>&1; cat '{tmp_path}/outside'; cat /etc/shadow; ls /sys"
    output = (await run(text)).output
    assert "canary" not in output
    assert "root:" not in output
    assert output.count("No such file or directory") >= 6


async def test_only_the_workspace_can_be_written(run: Run, workspace: Path, tmp_path: Path) -> None:
    text = 'for f in /x /usr/x /etc/x /dev/x /proc/x; do touch "$f" && echo wrote $f; done; touch in'
    own = f"touch '{tmp_path}/x' /tmp/x /dev/shm/x ~/x"
    assert "wrote" not in (await run(f"({text}; {own}) 2>/dev/null")).output
    assert (workspace / "in").exists()
    assert not (tmp_path / "x").exists()


async def test_no_setting_of_the_kernel_can_be_written(run: Run) -> None:
    """One of them names a program that the kernel starts, as root and outside. Nothing is written here."""
    look = """
import os
found = [os.path.join(top, name) for top, _, names in os.walk('/proc') for name in names
         if not top.split('/')[2:3] or not top.split('/')[2].isdigit()]
print([path for path in found if not path.startswith(('/proc/self', '/proc/thread-self'))
       and os.access(path, os.W_OK)])
try:
    os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)
except OSError as error:
    print(type(error).__name__, open('/proc/sys/kernel/ostype').read(), end='')
"""
    output = (await run(f"python3 - <<'E'\n{look}E")).output
    assert output.splitlines()[0] == "[]"
    assert output.splitlines()[-1].endswith("Error Linux")


async def test_links_out_of_the_workspace_do_not_resolve(run: Run, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("canary")
    (workspace / "link").symlink_to(tmp_path)
    (workspace / "etc").symlink_to("/etc")
    finished = await run("cat link/outside etc/shadow; touch link/x; ln -s /root r; ls r/")
    assert "canary" not in finished.output
    assert not (tmp_path / "x").exists()


async def test_a_workspace_that_is_a_link_is_the_folder_it_leads_to(run: Run, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    assert (await run("pwd", workspace=tmp_path / "link")).output == f"{real}\n"


async def test_the_network_is_off_unless_the_policy_has_it_on(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"timeout 2 bash -c '</dev/tcp/127.0.0.1/{port}' 2>/dev/null && echo connected"
        assert "connected" not in (await run(connect)).output
        assert "connected" in (await run(connect, SandboxPolicy("required", network=True))).output


async def test_other_processes_are_not_visible(run: Run) -> None:
    output = await run(
        f"kill -0 {os.getpid()} && echo seen; ls /proc | grep -c '^[0-9]'; grep CapEff /proc/self/status"
    )
    assert "seen" not in output.output
    assert int(output.output.splitlines()[-2]) < 8
    assert output.output.splitlines()[-1].split()[1] == "0" * 16


async def test_folders_of_the_policy_are_readable_or_writable(run: Run, tmp_path: Path) -> None:
    (tmp_path / "read").mkdir()
    (tmp_path / "write").mkdir()
    (tmp_path / "read" / "x").write_text("readable\n")
    policy = show({"readable": (str(tmp_path / "read"),), "writable": (str(tmp_path / "write"),)})
    finished = await run(f"cd '{tmp_path}'; cat read/x; touch read/y; touch write/y", policy)
    assert finished.output.startswith("readable\n")
    assert [path.name for path in tmp_path.glob("*/y")] == ["y"]
    assert (tmp_path / "write" / "y").exists()


async def test_the_engines_home_is_never_shown(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    policy = show({"readable": (str(home),)})
    assert (await run(f"ls -A '{home}/.treadle'; cat '{home}/.treadle/vault.db'", policy)).output.count(
        "canary"
    ) == 0
    for folders in ({"readable": (str(home / ".treadle"),)}, {"writable": (str(home / ".treadle"),)}):
        with pytest.raises(CommandError, match="commands must not see"):
            await run("true", show(folders))
    with pytest.raises(CommandError, match="cannot be a workspace"):
        await run("true", workspace=home / ".treadle")
    inside = home / ".treadle" / "work"
    inside.mkdir()
    assert "vault" not in (await run("ls -A ..; pwd", workspace=inside)).output


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc"])
def test_a_system_folder_cannot_be_the_workspace(folder: str) -> None:
    with pytest.raises(CommandError, match="it holds the system"):
        resolve_exposed(Path(folder), SandboxPolicy(), ())


@pytest.mark.parametrize(("name", "told"), [("relative", "the whole path"), ("/not/there", "does not exist")])
async def test_a_policy_with_an_invalid_folder_is_refused(run: Run, name: str, told: str) -> None:
    with pytest.raises(CommandError, match=told):
        await run("true", show({"readable": (name,)}))


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "~"])
async def test_the_size_of_private_folders_is_bounded(run: Run, place: str) -> None:
    text = f"df -B1 --output=size {place} | tail -1"
    assert int((await run(text)).output) <= 1024**3


async def test_programs_of_the_system_work(run: Run) -> None:
    identity = "-c user.name=a -c user.email=b@c"
    text = f"git init -q . && git {identity} commit -q --allow-empty -m x && git log --oneline | wc -l"
    assert (await run(f"{text}; id -un >/dev/null && date +%Y >/dev/null && echo fine")).output == "1\nfine\n"


@pytest.mark.parametrize("mode", MODES)
async def test_fifty_commands_leave_no_files_or_processes(
    mode: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)  # forget the folder that all processes share
    left, _ = await endure(next(known for known in MODES if known == mode), 50, workspace)
    assert left == Left(0, 0, 0)


NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c")


def run_as_unprivileged_user(code: str) -> subprocess.CompletedProcess[str]:
    paths = [str(Path.cwd()), *(path for path in sys.path if path)]
    script = f"import sys; sys.path[:0] = {paths!r}; import asyncio; from tests.sandbox.worker import work; {code}"
    return subprocess.run((*NOBODY, script), capture_output=True, text=True, check=False, timeout=HANG_SECONDS)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="becomes another user: only root can"
)
def test_the_sandbox_works_for_an_unprivileged_user() -> None:
    if run_as_unprivileged_user("").returncode:
        pytest.skip("no Python that another user can run has what this one has")
    done = run_as_unprivileged_user("asyncio.run(work('required', '/tmp', 'id -u; ulimit -u; ls -A /root'))")
    assert done.stdout.splitlines()[:2] == ["starting", "65534"], done.stderr
    assert int(done.stdout.splitlines()[2]) < 10_000
