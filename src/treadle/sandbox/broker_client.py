"""The engine's side of the keeper: starts it, hands it commands, and hears what came of them."""

import asyncio
import os
import socket
import struct
import subprocess
import weakref
from contextlib import suppress

import msgspec
from msgspec import Struct

from treadle.ports.sandbox import CommandError, EndedBy, Finished
from treadle.sandbox.output import Output
from treadle.system.helper_process import start_bare_helper

KEEPER = "treadle.sandbox.broker"
CHUNK = 256 * 1024
LATE_OUTPUT = 1.0
"""Seconds to wait for the end of the output once everything that could write to it is gone."""
HAND_OVER = 5.0
"""Seconds that the keeper has to take a command."""


class CommandWatch(Struct, frozen=True):
    """What the keeper looks at while a command runs."""

    memory: int
    processes: int
    disk_left: int


class CommandRequest(Struct, frozen=True):
    """What the keeper is told of one command."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    workspace: str
    folder: str
    """Where the process starts."""
    timeout: float
    grace: float
    limits: CommandWatch
    rlimits: dict[str, int]
    confined: tuple[str, ...] = ()
    """The arguments of bubblewrap, which it reads from descriptor 3; its state goes to 4, the workspace is 5."""
    files: tuple[str, ...] = ()
    """What is copied into the sandbox: open from descriptor 6 on."""
    filter: bytes = b""
    """A seccomp program. A confined command gets it from bubblewrap, which reads it from the last descriptor; any
    other process puts it on itself."""
    denied: tuple[str, ...] = ()
    """Places that a command without a sandbox may not open, where the kernel can see to that."""


class CommandReport(Struct, frozen=True):
    """What the keeper tells when nothing is left of a command."""

    exit_code: int | None
    ended_by: EndedBy | str | None
    killed: int
    left: int
    began: bool


class Keeper:
    """One keeper process for an engine, started with the first command and again if it died."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._is_dead = lambda: False
        self._end = lambda: None

    def take(self, control: socket.socket, output: int) -> None:
        """Hand over the two ends of a new command."""
        if self._is_dead():
            self.close()
        for last_try in (False, True):
            channel = self._channel or self._start()
            try:
                socket.send_fds(channel, [b"."], [control.fileno(), output])
            except OSError as error:
                self.close()
                if last_try:
                    raise CommandError(f"The process that keeps commands cannot be reached: {error}.") from error
            else:
                return

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(HAND_OVER)
        number = theirs.fileno()
        with theirs:
            process = start_bare_helper(KEEPER, str(number), str(os.getpid()), pass_fds=(number,))
        self._channel = ours
        self._is_dead = lambda: process.poll() is not None
        self._end = weakref.finalize(self, _end, ours, process)
        return ours

    def close(self) -> None:
        """End the keeper. Commands that still run are ended by it when their own ends are closed."""
        self._end()
        self._channel = None
        self._is_dead = lambda: False


def _end(channel: socket.socket, process: subprocess.Popen[bytes]) -> None:
    channel.close()
    try:
        process.wait(HAND_OVER)
    except subprocess.TimeoutExpired:
        process.returncode = 0  # it still ends what it keeps, and then itself


class Session:
    """One command in the hands of the keeper."""

    def __init__(self, keeper: Keeper, output: Output, most_output: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._output = output
        self._most_output = most_output
        self._output_ended = self._loop.create_future()
        self._asked_to_end = False
        self._told = False
        self._words: list[bytes] = []
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        self._reader, writer = os.pipe()
        try:
            os.set_blocking(self._reader, False)
            keeper.take(theirs, writer)
        except BaseException:
            os.close(self._reader)
            self._control.close()
            raise
        finally:
            theirs.close()
            os.close(writer)

    async def follow(self, request: CommandRequest) -> CommandReport:
        """Until nothing is left of the command. Where this is cancelled, the keeper ends it all at once."""
        self._loop.add_reader(self._reader, self._read)
        try:
            body = msgspec.json.encode(request)
            await self._loop.sock_sendall(self._control, struct.pack("!I", len(body)) + body)
            self._told = True
            self._say(b"".join(self._words))
            heard = b""
            while piece := await self._loop.sock_recv(self._control, CHUNK):
                heard += piece
            await asyncio.wait([self._output_ended], timeout=LATE_OUTPUT)
        except OSError as error:
            raise CommandError(
                f"The process that keeps commands was lost: {error}. The command is ended."
            ) from error
        finally:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._control.close()
        self._output.end()
        if not heard:
            raise CommandError(f"The keeper of the command was killed, and it too. {self._output.text}".strip())
        return msgspec.json.decode(heard, type=CommandReport)

    def cancel(self) -> None:
        """Ask it to end; the second time, end it."""
        self._say(b"k" if self._asked_to_end else b"c")
        self._asked_to_end = True

    def _say(self, word: bytes) -> None:
        if not self._told:
            self._words.append(word)  # the request goes first
            return
        with suppress(OSError):  # it has ended by itself
            self._control.send(word)

    def _read(self) -> None:
        try:
            data = os.read(self._reader, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._reader)
            if not self._output_ended.done():
                self._output_ended.set_result(None)
            return
        if self._output.length <= self._most_output < self._output.length + len(data):
            self._say(b"o")
        self._output.feed(data)


def finished(report: CommandReport, output: Output) -> Finished:
    ended_by = msgspec.convert(report.ended_by, EndedBy | None)
    return Finished(
        exit_code=report.exit_code if ended_by is None else None,
        output=output.text,
        output_length=output.length,
        ended_by=ended_by,
        killed_processes=report.killed,
    )
