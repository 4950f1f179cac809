"""What the process group and its processes tell each other over a pair of sockets: one line of JSON each."""

import asyncio
import socket
from collections.abc import AsyncGenerator

import msgspec
from msgspec import Struct

MAX_LINE_BYTES = 1024 * 1024


class ServerOptions(Struct, frozen=True):
    """The options of `treadle serve`."""

    host: str
    port: int
    workers: int | None = None
    """Maximum runs that execute at a time; None: no limit."""
    log_json: bool = False
    new: bool = False
    """Whether to start with an empty database if the one that the home had is missing."""
    wants_link: bool = False
    """Whether to make a sign-in link for the dashboard."""


class ServerSetup(Struct, frozen=True):
    """What a process of a group needs to start. Descriptors are inherited."""

    options: ServerOptions
    number: int
    """From 1."""
    processes: int
    """Number of processes of the group."""
    instance: str
    folder: str
    """Where the processes have their sockets."""
    listeners: tuple[int, ...]
    """Descriptors of the listening sockets of all processes, by number."""
    board: int
    """Descriptor of the shared board."""
    region: int
    """Region of the process on the board."""
    search_path: tuple[str, ...]
    """Where modules are imported from."""
    is_first: bool
    """Whether it is the first process to start: it creates the first token."""


class Ready(Struct, frozen=True, tag="ready"):
    """From a process: it accepts connections."""

    token: str | None = None
    """The token that it created, as there was none."""
    code: str | None = None
    """The code of a sign-in link, if one is wanted."""


class StartRefused(Struct, frozen=True, tag="start_refused"):
    """From a process: it cannot start, and ends."""

    message: str
    is_usage_error: bool
    """Whether another attempt would fail as well."""


class Listen(Struct, frozen=True, tag="listen"):
    """To a process: also accept the connections of these processes, which are not ready."""

    numbers: tuple[int, ...]


class Leave(Struct, frozen=True, tag="leave"):
    """To a process: another one has taken its place. Accept nothing new, finish what has begun, and end."""


class End(Struct, frozen=True, tag="end"):
    """To a process: end, as after SIGTERM."""


FromProcess = Ready | StartRefused
ToProcess = Listen | Leave | End


async def send_message(writer: asyncio.StreamWriter, message: FromProcess | ToProcess) -> None:
    """Send a message. It is lost if the other side has ended, which the reader notices."""
    try:
        writer.write(msgspec.json.encode(message) + b"\n")
        await writer.drain()
    except OSError:
        pass


async def read_messages(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    """Yield the messages of the other side until it ends."""
    try:
        while line := await reader.readline():
            yield line
    except OSError:
        return


async def open_channel(connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(sock=connection, limit=MAX_LINE_BYTES)


def divide(total: int | None, processes: int, number: int) -> int | None:
    """Return the part of a process in a limit of all processes. The parts add up to the limit."""
    return None if total is None else total // processes + (number <= total % processes)
