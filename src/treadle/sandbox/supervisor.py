"""One command in a process of its own: started, watched, and ended with everything below it.

Runs in the keeper. It adopts every orphan below it (a subreaper), so that children which called setsid or forked
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
    alive,
    below,
    children_of,
    groups_of,
    memory_of,
    prctl,
    reap,
    send,
    send_to_groups,
    threads_of_this_machine,
    wait_for_an_end,
    wakeups,
)
from treadle.sandbox.self_restriction import deny, install_filter, join_new_keyring

FIRST_LOOK = 0.02
SLOWEST_LOOK = 0.25
"""Seconds between two looks at what a command uses."""
BETWEEN_SWEEPS = 0.005
LAST_WORDS = 5.0
"""Seconds after which the engine is told of what cannot be ended."""
FIRST_PASSED = 3
HIGH = 64
MOST_OPEN = 65536
STOPS = {b"c": "cancelled", b"o": "output"}
GENTLE = ("timeout", "cancelled")
"""Why a command is asked to end before it is made to."""


def moved_home(variables: dict[str, str], home: str) -> dict[str, str]:
    """The variables of a command with another home, and with the caches that lie in it."""
    before = variables.get("HOME", home)
    moved = {
        name: home + value.removeprefix(before)
        for name, value in variables.items()
        if value.startswith(f"{before}/")
    }  # fmt: skip
    return variables | moved | {"HOME": home, "TMPDIR": home}


def home_prefix(supervisor: int) -> str:
    """How the private home of an unconfined command is called."""
    return f"treadle-{supervisor}-"


def become(request: dict[str, Any], output: int, passed: list[int]) -> NoReturn:
    """Turn the forked child into the command."""
    try:
        os.setsid()
        high = [os.dup2(descriptor, HIGH + index) for index, descriptor in enumerate((output, *passed))]
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(high[0], 1)
        os.dup2(high[0], 2)
        for index, descriptor in enumerate(high[1:]):
            os.dup2(descriptor, FIRST_PASSED + index)
        os.closerange(FIRST_PASSED + len(passed), min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], MOST_OPEN))
        limit(request)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        os.chdir(request["folder"])
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        join_new_keyring()
        if not request["confined"]:
            prctl(PR_SET_NO_NEW_PRIVS, 1)  # a program that gained rights could not be killed
            deny(request["denied"], request["workspace"])
            if request["filter"]:
                install_filter(b64decode(request["filter"]))
        os.execve(request["argv"][0], request["argv"], request["environment"])
    except BaseException as error:
        os.write(2, f"{request['argv'][0]} cannot be started in {request['folder']}: {error}\n".encode())
    os._exit(127)


def _in_memory(data: bytes) -> int:
    """Return a descriptor from which this can be read."""
    descriptor = os.memfd_create("treadle")
    with os.fdopen(os.dup(descriptor), "wb") as written:
        written.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def limit(request: dict[str, Any]) -> None:
    """What the kernel holds the command to. The number of processes is a second fence behind our own count: it
    does not bind root, and it counts all that the user runs, so it starts from what runs already."""
    limits = {getattr(resource, name): most for name, most in request["rlimits"].items()}
    if LINUX and os.geteuid() != 0:
        limits[resource.RLIMIT_NPROC] = threads_of_this_machine() + 2 * request["limits"]["processes"]
    for number, most in limits.items():
        hard = resource.getrlimit(number)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (most, most))


class Supervisor:
    def __init__(self, control: socket.socket, output: int, engine: int | None) -> None:
        self._control = control
        self._output = output
        self._engine = engine
        self._ended: dict[int, int] = {}
        self._seen: set[int] = set()
        self._why: str | None = None
        self._home: str | None = None
        self._status: int | None = None
        self._reported = False

    def serve(self) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        with suppress(OSError, AttributeError):  # where it may: to be heard among very many processes
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        self._request = self._receive()
        self._wake = wakeups()
        self._had_room = self._room() >= self._request["limits"]["disk_left"]
        self._start()
        self._watch()
        if self._why in GENTLE:
            self._ask_to_end()
        self._sweep()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        if not self._reported:
            self._report(0)

    # ── The beginning ──

    def _receive(self) -> dict[str, Any]:
        (length,) = struct.unpack("!I", self._exactly(4))
        return json.loads(self._exactly(length))

    def _exactly(self, length: int) -> bytes:
        """No more than that: words to stop may follow at once."""
        received = b""
        while len(received) < length:
            piece = self._control.recv(length - len(received))
            if not piece:
                raise ConnectionError("the engine has gone")
            received += piece
        return received

    def _start(self) -> None:
        request, passed = self._request, []
        if request["confined"]:
            passed = self._for_the_sandbox(request)
        else:
            self._home = tempfile.mkdtemp(prefix=home_prefix(os.getpid()))
            request["environment"] = moved_home(request["environment"], self._home)
        self._main = os.fork()
        if self._main == 0:
            become(request, self._output, passed)
        for descriptor in (self._output, *passed):
            os.close(descriptor)

    def _for_the_sandbox(self, request: dict[str, Any]) -> list[int]:
        """Its arguments (nobody sees them in a list of processes), where it writes its state, the workspace."""
        arguments = _in_memory(b"\0".join(os.fsencode(argument) for argument in request["confined"]))
        self._status, writer = os.pipe()
        folder = os.open(request["workspace"], os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        if os.readlink(f"/proc/self/fd/{folder}") != request["workspace"]:
            raise OSError(f"the workspace {request['workspace']} was moved while it was being opened")
        files = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in request["files"]]
        filters = [_in_memory(b64decode(request["filter"]))] if request["filter"] else []
        return [arguments, writer, folder, *files, *filters]

    # ── While it runs ──

    def _watch(self) -> None:
        """Until it ends, or there is a reason to end it."""
        now = time.monotonic()
        deadline, between = now + self._request["timeout"], FIRST_LOOK
        look = now + between
        while self._why is None and not self._main_ended():
            now = time.monotonic()
            if now >= deadline:
                self._why = "timeout"
            elif now >= look:
                self._why = self._excess(self._request["limits"])
                between = min(between * 1.5, SLOWEST_LOOK)
                look = time.monotonic() + between
            else:
                self._listen(min(deadline, look) - now)

    def _listen(self, seconds: float) -> None:
        """Wait for a word of the engine, its end, or the end of a child."""
        watched = [self._control.fileno(), self._wake] + ([self._engine] if self._engine is not None else [])
        ready, _, _ = select.select(watched, [], [], max(seconds, 0))
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._engine in ready:
            self._why = "lost"
        elif self._control.fileno() in ready:
            self._why = "lost"
            with suppress(OSError):
                self._why = STOPS.get(self._control.recv(1), "lost")

    def _main_ended(self) -> bool:
        reap(self._ended)
        return self._main in self._ended

    def _excess(self, limits: dict[str, Any]) -> str | None:
        tree = self._tree()
        if len(tree) > limits["processes"]:
            return "processes"
        if memory_of(tree) > limits["memory"]:
            return "memory"
        return "disk" if self._had_room and self._room() < limits["disk_left"] else None

    def _tree(self) -> list[int]:
        return below(children_of(os.getpid()))

    def _room(self) -> int:
        try:
            disk = os.statvfs(self._request["workspace"])
        except OSError:
            return sys.maxsize
        return disk.f_bavail * disk.f_frsize

    # ── The end ──

    def _ask_to_end(self) -> None:
        asked = [pid for pid in self._tree() if not self._request["confined"] or pid != self._main]
        self._count(pid for pid in asked if alive(pid))
        send(asked, signal.SIGTERM)
        if not LINUX:
            send_to_groups({self._main}, signal.SIGTERM)
        why, until = self._why, time.monotonic() + self._request["grace"]
        while not self._main_ended() and self._why == why and time.monotonic() < until:
            self._listen(until - time.monotonic())
        self._why = why

    def _sweep(self) -> None:
        """Kill until there is no child left: then there is nothing at all below, as orphans become children.

        It never gives up, but tells the engine after a while what it could not end so far."""
        until = time.monotonic() + LAST_WORDS
        if self._main not in self._ended or not LINUX:
            send_to_groups({self._main}, signal.SIGKILL)
        while reap(self._ended):
            tree = self._tree()
            send_to_groups(groups_of(tree), signal.SIGKILL)
            send(tree, signal.SIGKILL)
            self._count(tree)
            if time.monotonic() > until and not self._reported:
                self._report(len(tree))
            wait_for_an_end(self._wake, SLOWEST_LOOK if self._reported else BETWEEN_SWEEPS)

    def _count(self, pids: Iterable[int]) -> None:
        """Remember what had to be ended. The two processes of bubblewrap itself are not counted."""
        own = {self._main, *children_of(self._main)} if self._request["confined"] else set[int]()
        self._seen |= set(pids) - own - self._ended.keys()

    def _report(self, left: int) -> None:
        self._reported = True
        code = self._ended.get(self._main)
        report = {
            "exit_code": 128 - code if code is not None and code < 0 else code,
            "ended_by": self._why,
            "killed": len(self._seen),
            "left": left,
            "began": self._began(),
        }
        with suppress(OSError):  # the engine may have gone
            self._control.sendall(json.dumps(report).encode())
        self._control.close()

    def _began(self) -> bool:
        """Whether the sandbox was set up: bubblewrap gives the code of the command only where it was."""
        if self._status is None:
            return True
        os.set_blocking(self._status, False)
        try:
            return b"exit-code" in os.read(self._status, 4096)
        except BlockingIOError:
            return False
