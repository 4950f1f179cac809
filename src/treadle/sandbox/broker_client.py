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
from treadle.sandbox.supervisor import ACCEPTED
from treadle.system.helper_process import start_bare_helper

BROKER_MODULE = "treadle.sandbox.broker"
CHUNK_BYTES = 256 * 1024
LATE_OUTPUT_SECONDS = 1.0
"""How long to wait for the end of the output once all processes that could write to it are gone."""
HANDOVER_SECONDS = 5.0
"""How long the broker may take to accept a command."""
START_ATTEMPTS = 4
"""How often a command is handed to a broker before it counts as lost."""


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
                    raise HelperLost(f"The process that starts commands cannot be reached: {error}.") from error
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


class HelperLost(CommandError):
    """A helper process was lost before it started the command, which was not run."""


def decode_report(received: bytes) -> CommandReport | None:
    """Return what a supervisor reported, or None if it was killed. Raise HelperLost if it did not start the
    command."""
    if not received.startswith(ACCEPTED):
        raise HelperLost("The process that starts commands was lost. The command was not run; try again.")
    report = received.removeprefix(ACCEPTED)
    return msgspec.json.decode(report, type=CommandReport) if report else None


class CommandSession:
    """One command that the broker runs."""

    def __init__(self, broker: BrokerProcess, output: Output, max_output: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._output = output
        self._max_output = max_output
        self._is_cancelled = False
        self._control: socket.socket | None = None
        """The channel to the supervisor, once it has the request."""
        self._queued_signals: list[bytes] = []

    async def follow(self, request: CommandRequest) -> CommandReport:
        """Send the request and wait until no process of the command is left. When cancelled, the supervisor kills
        the command immediately. A command that was not started because a helper was lost is handed over again."""
        body = msgspec.json.encode(request)
        for _ in range(START_ATTEMPTS - 1):
            with suppress(HelperLost):
                return await self._follow_once(body)
        return await self._follow_once(body)

    async def _follow_once(self, body: bytes) -> CommandReport:
        control, reader = self._open()
        output_ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(reader, self._read, reader, output_ended)
        received = b""
        try:
            with suppress(OSError):  # the report is missing then
                await self._loop.sock_sendall(control, struct.pack("!I", len(body)) + body)
                self._control = control
                self._signal(b"".join(self._queued_signals))
                while piece := await self._loop.sock_recv(control, CHUNK_BYTES):
                    received += piece
            report = decode_report(received)
            await asyncio.wait([output_ended], timeout=LATE_OUTPUT_SECONDS)
        finally:
            self._control = None
            self._loop.remove_reader(reader)
            os.close(reader)
            control.close()
        self._output.end()
        if report is None:
            raise CommandError(
                f"The supervisor of the command was killed, and the command with it. {self._output.text}".strip()
            )
        return report

    def _open(self) -> tuple[socket.socket, int]:
        """Hand a new command to the broker. Return the channel to its supervisor, and its output."""
        control, theirs = socket.socketpair()
        control.setblocking(False)
        reader, writer = os.pipe()
        try:
            os.set_blocking(reader, False)
            self._broker.take(theirs, writer)
        except BaseException:
            os.close(reader)
            control.close()
            raise
        finally:
            theirs.close()
            os.close(writer)
        return control, reader

    def cancel(self) -> None:
        """Ask the command to end; the second time, kill it."""
        self._signal(b"k" if self._is_cancelled else b"c")
        self._is_cancelled = True

    def _signal(self, signals: bytes) -> None:
        if self._control is None:
            self._queued_signals.append(signals)  # the request must be sent first
            return
        with suppress(OSError):  # the command has already ended
            self._control.send(signals)

    def _read(self, reader: int, ended: "asyncio.Future[None]") -> None:
        try:
            data = os.read(reader, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(reader)
            if not ended.done():
                ended.set_result(None)
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
