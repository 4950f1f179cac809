"""Filters for system calls: what they decide on both processors, and that they hold for real commands."""

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.conftest import Run, needs_bubblewrap
from treadle.domain.permissions import SandboxPolicy
from treadle.sandbox import seccomp
from treadle.sandbox.seccomp import (
    ABSENT,
    ARCHITECTURES,
    KEYS,
    REFUSED,
    build_sandbox_filter,
    build_unconfined_filter,
)
from treadle.sandbox.self_restriction import join_new_keyring

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
COLUMN = {"x86_64": 0, "aarch64": 1}
ORDINARY = {
    "x86_64": {
        "read": 0,
        "write": 1,
        "openat": 257,
        "execve": 59,
        "wait4": 61,
        "mmap": 9,
        "futex": 202,
        "socket": 41,
    },
    "aarch64": {"read": 63, "write": 64, "openat": 56, "execve": 221, "wait4": 260, "mmap": 222, "futex": 98},
}
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
needs_a_filter = pytest.mark.skipif(platform.machine() not in ARCHITECTURES, reason="no filter for this processor")


def decide(program: bytes | None, number: int, architecture: int, *arguments: int) -> int:
    """Run a program as the kernel does, and return its verdict."""
    assert program is not None
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    steps, at, accumulator = list(struct.iter_unpack("=HBBI", program)), 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x25:
                at += if_true if accumulator > value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x06:
                return value
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.fixture(params=list(ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_listed_call_is_refused_and_others_are_not(machine: str) -> None:
    program, architecture, column = build_sandbox_filter(machine), ARCHITECTURES[machine], COLUMN[machine]
    for calls, verdict in ((REFUSED, EPERM), (ABSENT, ENOSYS)):
        for name, numbers in calls.items():
            if (number := numbers[column]) is not None:
                assert decide(program, number, architecture) == verdict, name
    for name, number in ORDINARY[machine].items():
        assert decide(program, number, architecture) == ALLOW, name
    listed = {numbers[column] for calls in (REFUSED, ABSENT) for numbers in calls.values()}
    for number in set(range(600)) - listed:
        assert decide(program, number, architecture) == ALLOW, number


def test_system_calls_of_other_architectures_are_refused(machine: str) -> None:
    program = build_sandbox_filter(machine)
    for foreign in (0x40000003, 0x40000028, 0xC00000F3, *set(ARCHITECTURES.values()) - {ARCHITECTURES[machine]}):
        assert decide(program, 0, foreign) == KILL
    if machine == "x86_64":
        assert decide(program, 0x40000000 | 101, ARCHITECTURES[machine]) == EPERM
        assert decide(program, 0x40000000, ARCHITECTURES[machine]) == EPERM


def test_dangerous_arguments_of_system_calls_are_refused(machine: str) -> None:
    program, architecture = build_sandbox_filter(machine), ARCHITECTURES[machine]
    clone, unshare, ioctl, socket = {"x86_64": (56, 272, 16, 41), "aarch64": (220, 97, 29, 198)}[machine]
    for kind, verdict in ((1, ALLOW), (2, ALLOW), (10, ALLOW), (16, ALLOW), (31, EPERM), (40, EPERM), (42, EPERM)):
        assert decide(program, socket, architecture, kind) == verdict
        assert decide(program, socket, architecture, 0xFFFFFFFF00000000 | kind) == verdict
    for number in (clone, unshare):
        assert decide(program, number, architecture, 0x10000000 | 17) == EPERM
        assert decide(program, number, architecture, 0x01200011) == ALLOW
    for request, verdict in ((0x5412, EPERM), (0x541C, EPERM), (0x5413, ALLOW), (0xFFFFFFFF00005412, EPERM)):
        assert decide(program, ioctl, architecture, 0, request) == verdict
        assert decide(build_unconfined_filter(machine), ioctl, architecture, 0, request) == verdict


def test_without_a_sandbox_only_key_rings_are_refused(machine: str) -> None:
    program, architecture = build_unconfined_filter(machine), ARCHITECTURES[machine]
    keys = {numbers[COLUMN[machine]] for numbers in KEYS.values()}
    for number in range(600):
        assert decide(program, number, architecture) == (EPERM if number in keys else ALLOW), number


def test_another_processor_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_sandbox_filter("riscv64") is None
    monkeypatch.setattr(seccomp, "_machine_name", lambda: "riscv64")
    assert "riscv64" in seccomp.explain_missing_filter()


def numbers_in(header: str) -> Iterator[tuple[str, int]]:
    for line in Path(header).read_text().splitlines():
        match line.split():
            case ["#define", name, number] if name.startswith("__NR") and number.isdigit():
                yield name.removeprefix("__NR3264_").removeprefix("__NR_"), int(number)
            case _:
                pass


def test_system_call_numbers_match_the_kernel(machine: str) -> None:
    if not os.path.exists(HEADERS[machine]):
        pytest.skip("the headers of the kernel are not installed")
    known = dict(numbers_in(HEADERS[machine]))
    for name, numbers in {**REFUSED, **ABSENT}.items():
        number = numbers[COLUMN[machine]]
        if number is not None and name in known:
            assert known[name] == number, name


TRY = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *arguments)
    return errno.errorcode.get(ctypes.get_errno(), "done")
column = 0 if os.uname().machine == "x86_64" else 1
for name, numbers in {calls!r}.items():
    if numbers[column] is not None:
        print(name, tried(numbers[column], 0, 0, 0, 0, 0))
"""


@needs_bubblewrap
@needs_a_filter
async def test_a_confined_command_cannot_make_refused_calls(run: Run) -> None:
    calls = {name: REFUSED[name] for name in ("add_key", "keyctl", "ptrace", "mount", "bpf", "perf_event_open")}
    calls |= {"userfaultfd": REFUSED["userfaultfd"], "io_uring_setup": ABSENT["io_uring_setup"]}
    output = (await run(f"python3 - <<'E'\n{TRY.format(calls=calls)}E\ngrep Seccomp: /proc/self/status")).output
    said = dict(line.split()[:2] for line in output.splitlines())
    assert said.pop("Seccomp:") == "2"
    assert said.pop("io_uring_setup") == "ENOSYS"
    assert said == dict.fromkeys(said, "EPERM")


@needs_bubblewrap
@needs_a_filter
async def test_a_confined_command_does_not_reach_the_host_of_its_machine(run: Run) -> None:
    """Network namespaces do not confine AF_VSOCK."""
    output = (await run("python3 -c 'import socket; socket.socket(40, socket.SOCK_STREAM)'")).output
    assert "Operation not permitted" in output
    assert (await run("python3 -c 'import socket; socket.socket(socket.AF_UNIX)'")).output == ""


@needs_a_filter
async def test_a_command_without_a_sandbox_reaches_no_key_ring(run: Run) -> None:
    calls = {**KEYS, "ptrace": REFUSED["ptrace"]}
    output = (await run(f"python3 - <<'E'\n{TRY.format(calls=calls)}E", SandboxPolicy("off"))).output
    said = dict(line.split() for line in output.splitlines())
    assert said.pop("ptrace") == "done"  # PTRACE_TRACEME: it may debug what is its own
    assert said == dict.fromkeys(KEYS, "EPERM")


@needs_a_filter
def test_a_new_session_keyring_is_joined() -> None:
    number = {"x86_64": 250, "aarch64": 219}[platform.machine()]

    def session() -> int:
        return ctypes.CDLL(None).syscall(number, 0, -3, 1)  # KEYCTL_GET_KEYRING_ID of the session, made if missing

    if session() < 0:
        pytest.skip("this kernel or container has no key rings")
    reader, writer = os.pipe()
    if os.fork() == 0:
        join_new_keyring()
        os.write(writer, str(session()).encode())
        os._exit(0)
    os.wait()
    assert int(os.read(reader, 100)) not in (-1, session())
