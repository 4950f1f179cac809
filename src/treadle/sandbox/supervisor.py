"""The supervisor of one command: starts it, watches it, and kills it with all of its descendants.

It runs in the broker and adopts every orphan below it (a subreaper), so that children that called setsid or forked
twice are still found."""

import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

from treadle.sandbox.process_tree import (
    LINUX,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    count_threads,
    is_alive,
    list_children,
    list_groups,
    list_tree,
    measure_memory,
    open_child_wakeup,
    prctl,
    reap_children,
    send_signal,
    signal_groups,
    wait_for_child,
)
from treadle.sandbox.self_restriction import install_filter, join_new_keyring, restrict_paths

FIRST_POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 0.25
"""Longest interval between two checks of a command's resource usage."""
SWEEP_INTERVAL_SECONDS = 0.005
REPORT_AFTER_SECONDS = 5.0
"""After this time the engine gets a report about processes that cannot be killed."""
FIRST_PASSED_FD = 3
TEMPORARY_FD = 64
MAX_FD = 65536
ACCEPTED = b"+"
"""Sent before the command starts. Without it, the command can be handed to another supervisor."""
STOP_REASONS = {b"c": "cancelled", b"o": "output"}
GRACEFUL_REASONS = ("timeout", "cancelled")
"""Reasons for which a command gets SIGTERM before SIGKILL."""


def relocate_home(variables: dict[str, str], home: str) -> dict[str, str]:
    """Return the variables of a command with another home, including the caches in it."""
    before = variables.get("HOME", home)
    moved = {
        name: home + value.removeprefix(before)
        for name, value in variables.items()
        if value.startswith(f"{before}/")
    }  # fmt: skip
    return variables | moved | {"HOME": home, "TMPDIR": home}


def make_start_folder(folder: str, variables: dict[str, str], home: str) -> str:
    """Return the start folder of a command. One in its home is created in the private one."""
    before = variables.get("HOME", home)
    if not folder.startswith(f"{before}/"):
        return folder
    folder = home + folder.removeprefix(before)
    os.mkdir(folder, 0o700)
    return folder


def home_prefix(supervisor: int) -> str:
    """Return the name prefix of the private home of an unconfined command."""
    return f"treadle-{supervisor}-"


def exec_command(request: dict[str, Any], streams: list[int], passed: list[int]) -> NoReturn:
    """Turn the forked child into the command. A single stream is for its output and its errors; its input is
    empty then."""
    try:
        os.setsid()
        if len(streams) == 1:
            streams = [os.open(os.devnull, os.O_RDWR), *streams, *streams]
        temporary = [
            os.dup2(descriptor, TEMPORARY_FD + index) for index, descriptor in enumerate((*streams, *passed))
        ]
        for index, descriptor in enumerate(temporary):
            os.dup2(descriptor, index)
        os.closerange(FIRST_PASSED_FD + len(passed), min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], MAX_FD))
        apply_limits(request)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        os.chdir(request["folder"])
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        join_new_keyring()
        if not request["confined"]:
            prctl(PR_SET_NO_NEW_PRIVS, 1)  # a program that gained privileges could not be killed
            restrict_paths(request["denied"], request["read_only"], request["workspace"])
            if request["filter"]:
                install_filter(b64decode(request["filter"]))
        os.execve(request["argv"][0], request["argv"], request["environment"])
    except BaseException as error:
        os.write(2, f"{request['argv'][0]} cannot be started in {request['folder']}: {error}\n".encode())
    os._exit(127)


def _open_workspace(place: str) -> int:
    folder = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    if os.readlink(f"/proc/self/fd/{folder}") != place:
        raise OSError(f"the workspace {place} was moved while it was being opened")
    return folder


def _open_in_memory(data: bytes) -> int:
    """Return a descriptor from which the data can be read."""
    descriptor = os.memfd_create("treadle")
    with os.fdopen(os.dup(descriptor), "wb") as written:
        written.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def apply_limits(request: dict[str, Any]) -> None:
    """Apply the kernel limits of the command. The limit on processes only backs up the supervisor's own count: it
    does not bind root, and it counts all processes of the user, so it starts from their current number."""
    limits = {getattr(resource, name): maximum for name, maximum in request["rlimits"].items()}
    if LINUX and os.geteuid() != 0:
        limits[resource.RLIMIT_NPROC] = count_threads() + 2 * request["limits"]["processes"]
    for number, maximum in limits.items():
        hard = resource.getrlimit(number)[1]
        maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(number, (maximum, maximum))


class Supervisor:
    def __init__(self, control: socket.socket, streams: list[int], engine: int | None) -> None:
        self._control = control
        self._streams = streams
        self._engine = engine
        self._ended: dict[int, int] = {}
        self._seen: set[int] = set()
        self._reason: str | None = None
        self._home: str | None = None
        self._status: int | None = None
        self._reported = False

    def serve(self) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        with suppress(OSError, AttributeError):  # if permitted: to get the processor among very many processes
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        self._request = self._receive()
        self._control.sendall(ACCEPTED)
        self._wake = open_child_wakeup()
        self._had_free_space = self._measure_free_space() >= self._request["limits"]["disk_left"]
        self._start()
        self._watch()
        if self._reason in GRACEFUL_REASONS:
            self._terminate()
        self._kill_all()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        if not self._reported:
            self._report(0)

    # ── Start ──

    def _receive(self) -> dict[str, Any]:
        (length,) = struct.unpack("!I", self._receive_exactly(4))
        return json.loads(self._receive_exactly(length))

    def _receive_exactly(self, length: int) -> bytes:
        """Read exactly this many bytes, because stop signals may follow."""
        received = b""
        while len(received) < length:
            piece = self._control.recv(length - len(received))
            if not piece:
                raise ConnectionError("the engine is gone")
            received += piece
        return received

    def _start(self) -> None:
        request, passed = self._request, []
        if request["confined"]:
            passed = self._open_sandbox_descriptors(request)
        else:
            self._home = tempfile.mkdtemp(prefix=home_prefix(os.getpid()))
            request["folder"] = make_start_folder(request["folder"], request["environment"], self._home)
            request["environment"] = relocate_home(request["environment"], self._home)
        self._main = os.fork()
        if self._main == 0:
            exec_command(request, self._streams, passed)
        for descriptor in (*self._streams, *passed):
            os.close(descriptor)

    def _open_sandbox_descriptors(self, request: dict[str, Any]) -> list[int]:
        """Return the descriptors for bubblewrap: its arguments (so that the process list does not show them), its
        status pipe, the workspace, the files to copy and the filter."""
        arguments = _open_in_memory(b"\0".join(os.fsencode(argument) for argument in request["confined"]))
        self._status, writer = os.pipe()
        folder = (
            _open_workspace(request["workspace"])
            if request["binds_workspace"]
            else os.open(os.devnull, os.O_RDONLY)
        )
        files = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in request["files"]]
        filters = [_open_in_memory(b64decode(request["filter"]))] if request["filter"] else []
        return [arguments, writer, folder, *files, *filters]

    # ── Watch ──

    def _watch(self) -> None:
        """Wait until the command ends, or there is a reason to kill it."""
        now = time.monotonic()
        deadline, interval = now + self._request["timeout"], FIRST_POLL_SECONDS
        next_poll = now + interval
        while self._reason is None and not self._has_ended():
            now = time.monotonic()
            if now >= deadline:
                self._reason = "timeout"
            elif now >= next_poll:
                self._reason = self._find_excess(self._request["limits"])
                interval = min(interval * 1.5, self._request.get("max_poll", MAX_POLL_SECONDS))
                next_poll = time.monotonic() + interval
            else:
                self._listen(min(deadline, next_poll) - now)

    def _listen(self, seconds: float) -> None:
        """Wait for a signal of the engine, its end, or the end of a child."""
        watched = [self._control.fileno(), self._wake] + ([self._engine] if self._engine is not None else [])
        ready, _, _ = select.select(watched, [], [], max(seconds, 0))
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._engine in ready:
            self._reason = "lost"
        elif self._control.fileno() in ready:
            self._reason = "lost"
            with suppress(OSError):
                self._reason = STOP_REASONS.get(self._control.recv(1), "lost")

    def _has_ended(self) -> bool:
        reap_children(self._ended)
        return self._main in self._ended

    def _find_excess(self, limits: dict[str, Any]) -> str | None:
        tree = self._list_descendants()
        if len(tree) > limits["processes"]:
            return "processes"
        if measure_memory(tree) > limits["memory"]:
            return "memory"
        return "disk" if self._had_free_space and self._measure_free_space() < limits["disk_left"] else None

    def _list_descendants(self) -> list[int]:
        return list_tree(list_children(os.getpid()))

    def _measure_free_space(self) -> int:
        try:
            disk = os.statvfs(self._request["workspace"])
        except OSError:
            return sys.maxsize
        return disk.f_bavail * disk.f_frsize

    # ── End ──

    def _terminate(self) -> None:
        terminated = [pid for pid in self._list_descendants() if not self._request["confined"] or pid != self._main]
        self._count(pid for pid in terminated if is_alive(pid))
        send_signal(terminated, signal.SIGTERM)
        if not LINUX:
            signal_groups({self._main}, signal.SIGTERM)
        reason, until = self._reason, time.monotonic() + self._request["grace"]
        while not self._has_ended() and self._reason == reason and time.monotonic() < until:
            self._listen(until - time.monotonic())
        self._reason = reason

    def _kill_all(self) -> None:
        """Kill until there is no child left. Orphans become children, so then no descendant is left either.

        This never gives up, but reports after a while what it could not kill so far."""
        until = time.monotonic() + REPORT_AFTER_SECONDS
        if self._main not in self._ended or not LINUX:
            signal_groups({self._main}, signal.SIGKILL)
        while reap_children(self._ended):
            tree = self._list_descendants()
            signal_groups(list_groups(tree), signal.SIGKILL)
            send_signal(tree, signal.SIGKILL)
            self._count(tree)
            if time.monotonic() > until and not self._reported:
                self._report(len(tree))
            wait_for_child(self._wake, MAX_POLL_SECONDS if self._reported else SWEEP_INTERVAL_SECONDS)

    def _count(self, pids: Iterable[int]) -> None:
        """Count the processes that had to be killed, except the two of bubblewrap itself."""
        own = {self._main, *list_children(self._main)} if self._request["confined"] else set[int]()
        self._seen |= set(pids) - own - self._ended.keys()

    def _report(self, left: int) -> None:
        self._reported = True
        code = self._ended.get(self._main)
        report = {
            "exit_code": 128 - code if code is not None and code < 0 else code,
            "ended_by": self._reason,
            "killed": len(self._seen),
            "left": left,
            "began": self._has_begun(),
        }
        with suppress(OSError):  # the engine may be gone
            self._control.sendall(json.dumps(report).encode())
        self._control.close()

    def _has_begun(self) -> bool:
        """Return whether the sandbox was set up: bubblewrap reports an exit code only then."""
        if self._status is None:
            return True
        os.set_blocking(self._status, False)
        try:
            return b"exit-code" in os.read(self._status, 4096)
        except BlockingIOError:
            return False
