"""Programs that run until they are stopped, such as MCP servers: started by the broker like a command, with pipes
for their input, their output and their errors."""

import asyncio
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

import msgspec

from treadle.domain.writable_places import WritablePlaces
from treadle.ports.sandbox import CommandError, Program
from treadle.sandbox.broker_client import (
    BrokerProcess,
    CommandReport,
    CommandRequest,
    HelperLost,
    decode_report,
)
from treadle.sandbox.toolchains import Toolchains, find_search_path, find_toolchains
from treadle.system.engine_places import list_path_steps

UNLIMITED_SECONDS = 10 * 365 * 86400.0
MAX_POLL_SECONDS = 5.0
"""Longest interval between two checks of the memory and the processes of a program."""
KEPT_ERRORS = 4000
"""Bytes of standard error that are kept: the latest."""
CHUNK_BYTES = 64 * 1024
KILL_SECONDS = 5.0
"""How long to wait for the report that all processes of a killed program are gone."""


def find_program(
    argv: Sequence[str], user: Mapping[str, str], workspace: Path, hidden: Sequence[Path], home: str
) -> tuple[tuple[str, ...], Toolchains]:
    """Return the command line with the full path of its program, and the toolchains that it may use.

    A program that is named by its path brings the toolchain of its folder. Raise CommandError if it is missing."""
    line = find_command_line(argv, user, workspace)
    return line, find_toolchains(_add_own_folder(user, argv[0]), workspace, hidden, home)


def find_command_line(argv: Sequence[str], user: Mapping[str, str], workspace: Path) -> tuple[str, ...]:
    """Return the command line with the full path of its program. Raise CommandError if it is missing."""
    name, *arguments = argv
    search = find_search_path(_add_own_folder(user, name), workspace)
    path = shutil.which(str(Path(name).expanduser()) if "/" in name else name, path=search.path)
    if path is None:
        raise CommandError(f"The program `{name}` was not found: it is not in the search path. Install it")
    return (path, *arguments)


def _add_own_folder(user: Mapping[str, str], name: str) -> Mapping[str, str]:
    """Return the variables of a user with the folder of a program first in the search path, if its name has one."""
    if "/" not in name:
        return user
    return {**user, "PATH": f"{Path(name).expanduser().parent}:{user.get('PATH', '')}"}


def leave_out_places(user: Mapping[str, str], program: Program) -> dict[str, str]:
    """Return the variables of a user without the folders of programs and toolchains that a program avoids, unless
    it sees a copy of them."""
    places = WritablePlaces(program.avoided.folders, (*program.avoided.protected, *program.copies))

    def is_avoided(path: str) -> bool:
        return path.startswith("/") and any(places.includes(step) for step in list_path_steps(path))

    kept = {name: value for name, value in user.items() if not is_avoided(value)}
    return kept | {"PATH": ":".join(entry for entry in user.get("PATH", "").split(":") if not is_avoided(entry))}


def check_unconfined(program: Program) -> None:
    """Raise CommandError if a program cannot run without a sandbox."""
    if program.copies:
        raise CommandError(
            f"`{program.argv[0]}` was not started: code that is pinned by content runs only in the sandbox, and "
            f"there is none. Install bubblewrap, or install the program in a folder that no agent works in."
        )
    temporary = tempfile.gettempdir()
    steps = (*list_path_steps(temporary), *list_path_steps("/tmp"))
    if program.folder == "private" and any(map(program.avoided.includes, steps)):
        raise CommandError(
            f"`{program.argv[0]}` was not started: without a sandbox its start folder would be in {temporary}, "
            f"which a run can write. Install bubblewrap, or use another workspace."
        )


class ProgramSession:
    """Implements `ports.sandbox.RunningProgram`."""

    def __init__(self, broker: BrokerProcess, max_line: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        descriptors: list[int] = []
        try:
            for _ in range(3):
                descriptors += os.pipe()
            stdin, self._stdin, self._stdout, stdout, self._stderr, stderr = descriptors
            try:
                broker.take(theirs, stdin, stdout, stderr)
            finally:
                for descriptor in (stdin, stdout, stderr):
                    os.close(descriptor)
                    descriptors.remove(descriptor)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            self._control.close()
            raise
        finally:
            theirs.close()
        self.output = asyncio.StreamReader(limit=max_line, loop=self._loop)
        self._errors = bytearray()
        self._report: asyncio.Task[CommandReport | None] | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self._writer: asyncio.StreamWriter | None = None

    @property
    def errors(self) -> str:
        return self._errors.decode(errors="replace").strip()

    async def start(self, request: CommandRequest) -> None:
        """Send the request to the supervisor. If this is cancelled, everything is closed, and nothing runs."""
        pipes = [FileIO(self._stdout, "rb"), FileIO(self._stderr, "rb"), FileIO(self._stdin, "wb")]
        try:
            await self._connect(*pipes)
        except BaseException:
            for resource in (*self._transports, *pipes, self._control):
                resource.close()
            raise
        self._report = self._loop.create_task(self._follow(request))

    async def _connect(self, stdout: FileIO, stderr: FileIO, stdin: FileIO) -> None:
        loop = self._loop
        reader = asyncio.StreamReaderProtocol(self.output, loop=loop)
        transport, _ = await loop.connect_read_pipe(lambda: reader, stdout)
        self._transports.append(transport)
        transport, _ = await loop.connect_read_pipe(lambda: _Tail(self._errors), stderr)
        self._transports.append(transport)
        flow = asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), loop=loop)
        writer, protocol = await loop.connect_write_pipe(lambda: flow, stdin)
        self._transports.append(writer)
        self._writer = asyncio.StreamWriter(writer, protocol, None, loop)

    async def _follow(self, request: CommandRequest) -> CommandReport | None:
        """Return the report of the supervisor once none of the processes is left."""
        received = b""
        try:
            body = msgspec.json.encode(request)
            await self._loop.sock_sendall(self._control, struct.pack("!I", len(body)) + body)
            while piece := await self._loop.sock_recv(self._control, CHUNK_BYTES):
                received += piece
        except OSError:
            return None
        finally:
            self._control.close()
        with suppress(HelperLost):  # to its client, it ended at once
            return decode_report(received)
        return None

    async def write(self, data: bytes) -> None:
        if self._writer is None or self._writer.is_closing():
            raise BrokenPipeError("the program has closed its input")
        self._writer.write(data)
        await self._writer.drain()

    def close_input(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def wait(self) -> int | None:
        if self._report is None:
            return None
        report = await asyncio.shield(self._report)
        return None if report is None else report.exit_code

    async def stop(self, grace_seconds: float) -> None:
        task = self._report
        try:
            if task is not None and not task.done():
                if self._writer is not None:
                    self._writer.close()
                await asyncio.wait([task], timeout=grace_seconds)
        finally:
            if task is not None and not task.done():
                with suppress(OSError):
                    self._control.send(b"k")  # an unknown word: the supervisor kills everything immediately
            for transport in self._transports:
                transport.close()
        if task is not None:
            await asyncio.wait([task], timeout=max(grace_seconds, KILL_SECONDS))


class _Tail(asyncio.Protocol):
    """Keeps the end of what arrives."""

    def __init__(self, kept: bytearray) -> None:
        self._kept = kept

    def data_received(self, data: bytes) -> None:
        self._kept += data
        del self._kept[:-KEPT_ERRORS]
