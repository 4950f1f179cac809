"""Commands in their own processes that a server forks, so that they need not import Treadle."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO

from tests.surfaces.fork_server import NUMBER

SERVER = Path(__file__).with_name("fork_server.py")


class Forked:
    """A command that is under way, with as much of `subprocess.Popen` as tests use."""

    def __init__(self, report: int, streams: Sequence[IO[bytes]]) -> None:
        self.stdin, self.stdout, self.stderr = streams or (None, None, None)
        self.returncode: int | None = None
        self._report = report
        self._reading = threading.Lock()
        weakref.finalize(self, os.close, report)
        self.pid: int = NUMBER.unpack(os.read(report, NUMBER.size))[0]

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        """Its exit code, if it ends within this time."""
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            with self._reading:
                if self.returncode is None:
                    (self.returncode,) = NUMBER.unpack(os.read(self._report, NUMBER.size))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Write this to it, and read what it writes up to its end."""
        assert self.stdin is not None
        assert self.stdout is not None
        assert self.stderr is not None
        read: dict[IO[bytes], bytes] = {}
        under_way = [_aside(partial(_write, self.stdin, input or b""))]
        under_way += [_aside(partial(_read, stream, read)) for stream in (self.stdout, self.stderr)]
        for thread in under_way:
            thread.join(timeout)
            if thread.is_alive():
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        self.wait(timeout)
        return read[self.stdout], read[self.stderr]


def _aside(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def start(arguments: list[str], environment: Mapping[str, str], folder: str) -> Forked:
    """Begin a command; its standard streams are pipes."""
    pipes = [os.pipe() for _ in range(3)]
    theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
    report = _ask(theirs, arguments=arguments, environment=environment, folder=folder, at_a_terminal=False)
    for fd in theirs:
        os.close(fd)
    ours = [os.fdopen(pipes[0][1], "wb"), os.fdopen(pipes[1][0], "rb"), os.fdopen(pipes[2][0], "rb")]
    return Forked(report, ours)


def start_at(terminal: int, arguments: list[str], environment: Mapping[str, str], folder: str) -> Forked:
    """Begin a command at a terminal, which becomes the one that it is controlled by."""
    report = _ask([terminal] * 3, arguments=arguments, environment=environment, folder=folder, at_a_terminal=True)
    return Forked(report, ())


def _ask(streams: list[int], **command: object) -> int:
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(_server(), [b"?"], [*streams, theirs.fileno()])
    ours.sendall(json.dumps(command).encode())
    ours.shutdown(socket.SHUT_WR)
    return ours.detach()


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", SERVER, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"]},
            pass_fds=[theirs.fileno()],
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def _write(stream: IO[bytes], text: bytes) -> None:
    try:
        with stream:
            stream.write(text)
    except BrokenPipeError:
        pass  # it has ended, or does not want to know


def _read(stream: IO[bytes], into: dict[IO[bytes], bytes]) -> None:
    with stream:
        into[stream] = stream.read()
