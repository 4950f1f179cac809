"""Commands that take too much: the limits hold and the engine lives. Numbers are small, as machines are shared."""

import os
import resource
from pathlib import Path

import pytest

from tests.sandbox.hostile import processes_called
from tests.sandbox.survivors import a_mark
from tests.sandbox.test_commands import one
from treadle.domain.permissions import SandboxMode
from treadle.sandbox.limits import MIB, CommandLimits
from treadle.sandbox.output import Output
from treadle.system.process_privacy import forbid_dumps

BOMB = """
grow() {{ if [ $1 -gt 0 ]; then grow $(($1 - 1)) & grow $(($1 - 1)) & fi; bash -c 'sleep 1000; : {mark}'; }}
grow 6; wait
"""
"""Doubles seven times and no more: were the limit to fail, the machine would live."""


@pytest.mark.parametrize("session", ["", "setsid "])
def test_a_fork_bomb_ends_at_the_process_limit(session: str, workspace: Path, mode: SandboxMode) -> None:
    mark = a_mark()
    bomb = BOMB.format(mark=mark).replace("bash -c", f"{session}bash -c")
    finished = one(bomb, workspace, mode, CommandLimits(processes=40, grace=0.2))
    assert finished.ended_by == "processes"
    assert processes_called(mark) == []


def test_the_memory_limit_covers_all_processes_of_a_command(workspace: Path, mode: SandboxMode) -> None:
    hog = "head -c 60000000 /dev/zero | tail -c 60000000 | sleep 1000"
    finished = one(f"{hog} & {hog} & wait", workspace, mode, CommandLimits(memory=80 * MIB))
    assert finished.ended_by == "memory"


def test_endless_output_ends_at_the_output_limit(workspace: Path, mode: SandboxMode) -> None:
    shown: list[str] = []
    finished = one(
        "yes abcdefg", workspace, mode, CommandLimits(output=3_000_000, kept_output=20_000), shown.append
    )
    assert finished.ended_by == "output"
    assert 3_000_000 < finished.output_length < 6_000_000
    assert 20_000 <= len(finished.output) < 20_100
    assert f"[... {finished.output_length - 20_000} bytes left out ...]" in finished.output
    assert sum(map(len, shown)) < 600_000


def test_a_growing_file_ends_at_the_size_limit(workspace: Path, mode: SandboxMode) -> None:
    finished = one("head -c 20M /dev/zero > big; echo $?", workspace, mode, CommandLimits(file_size=MIB))
    assert finished.output.splitlines()[-1] == "153"
    assert (workspace / "big").stat().st_size == MIB


def test_a_command_ends_before_the_disk_is_full(workspace: Path, mode: SandboxMode) -> None:
    disk = os.statvfs(workspace)
    floor = disk.f_bavail * disk.f_frsize - 20 * MIB
    # Other tests free space meanwhile, so more is written than the floor leaves.
    fill = "for i in $(seq 400); do head -c 2M /dev/zero > f$i; sync f$i; sleep 0.05; done; sleep 1000"
    assert one(fill, workspace, mode, CommandLimits(disk_left=floor)).ended_by == "disk"


def test_the_kernel_limits_core_dumps_open_files_and_cpu_time(workspace: Path, mode: SandboxMode) -> None:
    finished = one("ulimit -c; ulimit -n; ulimit -t", workspace, mode, CommandLimits(open_files=99), timeout=10)
    core, files, seconds = finished.output.split()
    assert (core, files) == ("0", "99")
    assert 10 <= int(seconds) <= 15 * (os.cpu_count() or 1)


def test_the_head_and_tail_of_long_output_are_kept() -> None:
    shown: list[str] = []
    output = Output(10, shown.append)
    for piece in (b"abc", b"defgh", b"ijk", b"lmnopqrstu", b"vw"):
        output.feed(piece)
    output.end()
    assert output.text == "abcde\n[... 13 bytes left out ...]\nstuvw"
    assert output.length == 23


def test_short_output_is_complete() -> None:
    output = Output(10, lambda text: None)
    output.feed(b"abcd\xc3")
    output.feed(b"\xa9efg")
    assert output.text == "abcd\u00e9efg"


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="only Linux shows a process to others")
def test_a_process_that_holds_secrets_is_not_dumped() -> None:
    pid = os.fork()
    if pid == 0:
        forbid_dumps()
        no_core = resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
        owner = os.stat("/proc/self/environ").st_uid
        os._exit(0 if no_core and owner == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
