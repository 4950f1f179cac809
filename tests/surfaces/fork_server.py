"""A program that has imported all of Treadle and forks for each command: a process like any other, without the
time that importing takes. Its argument is a socket: each message brings the three streams of a command and another
socket, on which the command is told, and on which its process and its exit code are reported."""

import atexit
import contextlib
import fcntl
import gc
import importlib
import itertools
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import tempfile
import termios
import time
from datetime import datetime, tzinfo
from types import FrameType
from typing import Any, NoReturn

NO_COMMAND = ("treadle.testing", "treadle.surfaces.demo")
RARELY_USED = (
    "treadle.channels.email",
    "treadle.channels.matrix",
    "treadle.channels.slack",
    "treadle.surfaces.acp",
)
"""Modules whose libraries take a second to import in each worker of pytest. A command that needs one imports it."""
STREAMS = 3
NUMBER = struct.Struct("q")
FIXED_TIME = "TREADLE_TEST_TIME"
"""The variable that sets the time of day of a command."""


def main() -> NoReturn:
    end = End()
    clock.install()
    import_everything()
    begin(**wait_for_a_command(socket.socket(fileno=int(sys.argv[1]))))
    from treadle.surfaces.cli import main

    try:
        sys.exit(main())
    except SystemExit as exit:
        end.code = exit.code
        raise


class WallClock:
    """The time of day of a command: that of the machine, or one that the environment sets and that stands still.
    Durations are 0 then, and each new id is a millisecond after the one before."""

    def __init__(self) -> None:
        self._fixed: float | None = None
        self._time, self._time_ns = time.time, time.time_ns

    def install(self) -> None:
        """Replace the functions before Treadle is imported, which keeps references to them."""
        time.time, time.time_ns = self._read, self._read_ns

    def fix(self, at: float) -> None:
        self._fixed = at
        self._ids = itertools.count(int(at * 1000))
        from treadle.system.clock import SteadyClock, SystemClock

        def read(*_: object) -> float:
            return at

        for kind in (SteadyClock, SystemClock):
            kind.now, kind.monotonic = read, read  # pyright: ignore[reportAttributeAccessIssue]
        for name, module in list(sys.modules.items()):
            if name.startswith("treadle.") and getattr(module, "datetime", None) is datetime:
                module.datetime = StillTime(at)  # pyright: ignore[reportAttributeAccessIssue]

    def _read(self) -> float:
        return self._time() if self._fixed is None else self._fixed

    def _read_ns(self) -> int:
        return self._time_ns() if self._fixed is None else next(self._ids) * 1_000_000


class StillTime:
    """`datetime` in a module of a command whose time stands still."""

    def __init__(self, at: float) -> None:
        self._at = at

    def now(self, zone: tzinfo | None = None) -> datetime:
        return datetime.fromtimestamp(self._at, zone)

    def __call__(self, *parts: Any, **more: Any) -> datetime:
        return datetime(*parts, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime, name)


clock = WallClock()


class End:
    """Spares Python to take apart what was imported. Before that comes all that can be told from how a command
    ends: its threads have ended, what was to be done at exit is done, and what was written is flushed."""

    def __init__(self) -> None:
        self.code: object = None
        """The exit code, where it is a number; anything else is for Python to say."""
        atexit.register(self._leave)  # the first to be registered is called last

    def _leave(self) -> None:
        if isinstance(self.code, int):
            with contextlib.suppress(OSError):  # it fails again when Python does it, and says so
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self.code)


def import_everything() -> None:
    import treadle

    for module in pkgutil.walk_packages(treadle.__path__, "treadle."):
        if not module.name.startswith((*NO_COMMAND, *RARELY_USED)) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not fork"
    gc.collect()
    gc.freeze()


def wait_for_a_command(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request. It returns in the processes of commands; the server itself ends with the tests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, wake_up)
    ends, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    reports: dict[int, socket.socket] = {}
    told = None
    while told is None:
        readable, _, _ = select.select([requests, ends], [], [])
        if ends in readable:
            ends.recv(4096)
            report_ends(reports)
        if requests in readable:
            told = fork(requests, reports)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for other in (requests, ends, wakes, *reports.values()):
        other.close()
    with told, told.makefile("rb") as file:
        return json.load(file)


def wake_up(number: int, frame: FrameType | None) -> None:
    """Let Python write to the descriptor that the server looks at: it does so for signals with a handler."""


def fork(requests: socket.socket, reports: dict[int, socket.socket]) -> socket.socket | None:
    """In the new process: what tells its command."""
    _, fds, _, _ = socket.recv_fds(requests, 1, STREAMS + 1)
    if not fds:
        os._exit(0)
    report = socket.socket(fileno=fds.pop())
    pid = os.fork()
    for number, fd in enumerate(fds):
        if pid == 0:
            os.dup2(fd, number)
        os.close(fd)
    if pid == 0:
        return report
    reports[pid] = report
    report.sendall(NUMBER.pack(pid))
    return None


def report_ends(reports: dict[int, socket.socket]) -> None:
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        with reports.pop(pid) as report, contextlib.suppress(BrokenPipeError):
            report.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def begin(arguments: list[str], environment: dict[str, str], folder: str, at_a_terminal: bool) -> None:
    """Be what Python would be if it had been started so."""
    if at_a_terminal:  # the one that Ctrl-C is typed at
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    if FIXED_TIME in environment:
        clock.fix(float(environment[FIXED_TIME]))
    tempfile.tempdir = None
    sys.argv[:] = arguments
    sys.path[:0] = [os.path.dirname(arguments[0]), *filter(None, environment.get("PYTHONPATH", "").split(":"))]
    sys.stdin = os.fdopen(0, encoding="utf-8", errors=sys.stdin.errors)
    sys.stdout = os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1, encoding="utf-8", errors=sys.stdout.errors)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors=sys.stderr.errors)


if __name__ == "__main__":
    main()
