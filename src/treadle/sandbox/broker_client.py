"""The engine's side of the broker: starts it, hands it commands, and reads their reports."""

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

BROKER_MODULE = "treadle.sandbox.broker"
CHUNK_BYTES = 256 * 1024
LATE_OUTPUT_SECONDS = 1.0
"""How long to wait for the end of the output once all processes that could write to it are gone."""
HANDOVER_SECONDS = 5.0
"""How long the broker may take to accept a command."""


class CommandWatch(Struct, frozen=True):
    """Limits that the supervisor checks while a command runs."""

    memory: int
    processes: int
    disk_left: int


class CommandRequest(Struct, frozen=True):
    """What the supervisor needs to run one command."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    workspace: str
    folder: str
    """The working directory of the process."""
    timeout: float
    grace: float
    limits: CommandWatch
    rlimits: dict[str, int]
    confined: tuple[str, ...] = ()
    """The arguments of bubblewrap, which reads them from descriptor 3. Its status goes to 4; the workspace is 5."""
    binds_workspace: bool = True
    """Whether those arguments use descriptor 5. If not, it is not the workspace: the command inherits it."""
    files: tuple[str, ...] = ()
    """Files to copy into the sandbox, opened from descriptor 6 on."""
    filter: bytes = b""
    """A seccomp program. Bubblewrap applies it to a confined command, reading it from the last descriptor; an
    unconfined process applies it to itself."""
    denied: tuple[str, ...] = ()
    """Paths that a command without a sandbox may not open, if the kernel supports that."""
    read_only: tuple[str, ...] = ()
    """Paths that a command without a sandbox may not change, if the kernel supports that."""
    max_poll: float = 0.25
    """Longest interval in seconds between two checks of its resource usage."""


class CommandReport(Struct, frozen=True):
    """The report about a command when none of its processes is left."""

    exit_code: int | None
    ended_by: EndedBy | str | None
    killed: int
    left: int
    began: bool


class BrokerProcess:
    """The broker process of an engine, started with the first command and again if it died."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._is_dead = lambda: False
        self._end = lambda: None

    def take(self, control: socket.socket, *streams: int) -> None:
        """Hand over the ends of a new command: one stream for its output, or three for its input, its output and
        its errors."""
        if self._is_dead():
            self.close()
        for is_last_attempt in (False, True):
            channel = self._channel or self._start()
            try:
                socket.send_fds(channel, [b"."], [control.fileno(), *streams])
            except OSError as error:
                self.close()
                if is_last_attempt:
                    raise CommandError(f"The process that starts commands cannot be reached: {error}.") from error
            else:
                return

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(HANDOVER_SECONDS)
        number = theirs.fileno()
        with theirs:
            process = start_bare_helper(BROKER_MODULE, str(number), str(os.getpid()), pass_fds=(number,))
        self._channel = ours
        self._is_dead = lambda: process.poll() is not None
        self._end = weakref.finalize(self, _stop_broker, ours, process)
        return ours

    def close(self) -> None:
        """Stop the broker. It ends running commands when their own channels are closed."""
        self._end()
        self._channel = None
        self._is_dead = lambda: False


def _stop_broker(channel: socket.socket, process: subprocess.Popen[bytes]) -> None:
    channel.close()
    try:
        process.wait(HANDOVER_SECONDS)
    except subprocess.TimeoutExpired:
        process.returncode = 0  # it still ends its commands, and then itself


class CommandSession:
    """One command that the broker runs."""

    def __init__(self, broker: BrokerProcess, output: Output, max_output: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._output = output
        self._max_output = max_output
        self._output_ended = self._loop.create_future()
        self._is_cancelled = False
        self._is_requested = False
        self._queued_signals: list[bytes] = []
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        self._reader, writer = os.pipe()
        try:
            os.set_blocking(self._reader, False)
            broker.take(theirs, writer)
        except BaseException:
            os.close(self._reader)
            self._control.close()
            raise
        finally:
            theirs.close()
            os.close(writer)

    async def follow(self, request: CommandRequest) -> CommandReport:
        """Send the request and wait until no process of the command is left. When cancelled, the supervisor kills
        the command immediately."""
        self._loop.add_reader(self._reader, self._read)
        try:
            body = msgspec.json.encode(request)
            await self._loop.sock_sendall(self._control, struct.pack("!I", len(body)) + body)
            self._is_requested = True
            self._signal(b"".join(self._queued_signals))
            received = b""
            while piece := await self._loop.sock_recv(self._control, CHUNK_BYTES):
                received += piece
            await asyncio.wait([self._output_ended], timeout=LATE_OUTPUT_SECONDS)
        except OSError as error:
            raise CommandError(
                f"The process that starts commands was lost: {error}. The command was stopped."
            ) from error
        finally:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._control.close()
        self._output.end()
        if not received:
            raise CommandError(
                f"The supervisor of the command was killed, and the command with it. {self._output.text}".strip()
            )
        return msgspec.json.decode(received, type=CommandReport)

    def cancel(self) -> None:
        """Ask the command to end; the second time, kill it."""
        self._signal(b"k" if self._is_cancelled else b"c")
        self._is_cancelled = True

    def _signal(self, byte: bytes) -> None:
        if not self._is_requested:
            self._queued_signals.append(byte)  # the request must be sent first
            return
        with suppress(OSError):  # the command has already ended
            self._control.send(byte)

    def _read(self) -> None:
        try:
            data = os.read(self._reader, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._reader)
            if not self._output_ended.done():
                self._output_ended.set_result(None)
            return
        if self._output.length <= self._max_output < self._output.length + len(data):
            self._signal(b"o")
        self._output.feed(data)


def to_finished(report: CommandReport, output: Output) -> Finished:
    ended_by = msgspec.convert(report.ended_by, EndedBy | None)
    return Finished(
        exit_code=report.exit_code if ended_by is None else None,
        output=output.text,
        output_length=output.length,
        ended_by=ended_by,
        killed_processes=report.killed,
    )
