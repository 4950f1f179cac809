"""One of several processes of `treadle serve` behind one port. `process_group` starts it."""

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from treadle.domain.errors import TreadleError, UsageError
from treadle.domain.limits import MB
from treadle.domain.writable_places import WritablePlaces
from treadle.surfaces.server.messages import (
    MAX_LINE_BYTES,
    Leave,
    Listen,
    Ready,
    ServerSetup,
    StartRefused,
    ToProcess,
    divide,
    open_channel,
    read_messages,
    send_message,
)
from treadle.surfaces.terminal.output import note
from treadle.surfaces.terminal.process import FAILED, Stop, perform, tune_for_long_run
from treadle.system.engine_places import list_engine_places
from treadle.system.import_guard import guard_imports

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from treadle.api.engine import HostedEngine
    from treadle.config.home import Home
    from treadle.surfaces.http.open_streams import OpenStreams
    from treadle.surfaces.http.server import Serving

START_UP_OBJECTS = 200_000
"""More objects than are made until the process is ready."""
LINGER_SECONDS = 300.0
"""How long a process that was replaced finishes requests whose clients could not continue elsewhere."""
QUIET_SECONDS = 2.0
"""How long it keeps idle connections open. A client that uses one meanwhile is told to open another."""
POLL_INTERVAL_SECONDS = 0.1


def main() -> None:
    """Serve until the process that started this one says so, or has ended."""
    gc.set_threshold(START_UP_OBJECTS, 10, 10)
    connection = socket.socket(fileno=int(sys.argv[1]))
    setup = _read_setup(connection)
    for descriptor in (connection.fileno(), setup.board, *setup.listeners):
        os.set_inheritable(descriptor, False)
    sys.path[:] = setup.search_path
    engine = list_engine_places()
    guard_imports(engine).exclude(WritablePlaces((os.path.realpath(os.curdir),), engine.all))
    perform(lambda: MemberServer(setup).run(connection), _make_loop)


def _read_setup(connection: socket.socket) -> ServerSetup:
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = connection.recv(MAX_LINE_BYTES)
        if not piece:
            sys.exit(FAILED)
        line += piece
    return msgspec.json.decode(line, type=ServerSetup)


def _make_loop() -> Any:
    import uvloop

    return uvloop.new_event_loop()


class _Service(NamedTuple):
    """What accepts and answers requests."""

    port: "Serving"
    socket: "Serving"
    """Answers requests that other processes forward."""
    streams: "OpenStreams"

    def count_requests(self) -> int:
        return self.port.count_requests() + self.socket.count_requests()


class MemberServer:
    """A process of the group."""

    def __init__(self, setup: ServerSetup) -> None:
        self._setup = setup
        self._listeners = [socket.socket(fileno=descriptor) for descriptor in setup.listeners]
        self._left = asyncio.Event()
        """Set when another process has taken the place of this one."""
        self._covered: Sequence[int] = ()
        self._service: _Service | None = None

    async def run(self, connection: socket.socket) -> int:
        reader, writer = await open_channel(connection)
        with Stop() as stop:
            obeying = asyncio.create_task(self._obey(reader, stop))
            try:
                async with AsyncExitStack() as opened:
                    if await self._start(writer, stop, opened):
                        await self._wait_for_end(stop)
            except TreadleError as error:
                if self._service is not None:
                    raise
                await send_message(writer, StartRefused(str(error), isinstance(error, UsageError)))
                return FAILED
            finally:
                obeying.cancel()
        return 0

    async def _obey(self, reader: asyncio.StreamReader, stop: Stop) -> None:
        """Do what the process says that started this one. When it has ended, end as well."""
        async for line in read_messages(reader):
            match msgspec.json.decode(line, type=ToProcess):
                case Listen(numbers=numbers):
                    self._covered = numbers
                    await self._cover()
                case Leave():
                    self._left.set()
                case _:
                    stop.asked.set()
                    return
        _discard_output()
        if self._service is not None:
            self._service.port.refuse_more()
        for listener in self._listeners:  # another server may need the port
            listener.close()
        stop.asked.set()

    async def _cover(self) -> None:
        if self._service is not None:
            await self._service.port.accept_only_from([self._listeners[number - 1] for number in self._covered])

    async def _start(self, writer: asyncio.StreamWriter, stop: Stop, opened: AsyncExitStack) -> bool:
        """Open the engine and serve. Return False if the process was stopped before that."""
        from treadle.api.engine import create_engine
        from treadle.bootstrap.stores import ALL, WorkerShare
        from treadle.surfaces.home_access.connection import configured_home
        from treadle.surfaces.home_access.engine_startup import open_engine
        from treadle.surfaces.server.first_token import create_first_token
        from treadle.telemetry.settings import Telemetry

        setup, options = self._setup, self._setup.options
        home = configured_home(options.new).with_live_config()
        self._settings = home.config().server
        workers = divide(options.workers, setup.processes, setup.number)
        telemetry = Telemetry.from_environment(os.environ, metrics=True, log_file=True, log_json=options.log_json)
        engine = create_engine(
            home=home,
            telemetry=msgspec.structs.replace(telemetry, process=setup.number),
            share=ALL if workers is None else WorkerShare(workers),
        )
        engine.models.local.notice = note
        if not await open_engine(engine, stop, opened):
            return False
        context, token = engine.context, None
        if setup.is_first:
            token = await create_first_token(context.access, options.host, engine.clock.now())
        self._service = await opened.enter_async_context(self._serve(engine))
        await self._cover()
        self._engine, self._background = engine, await opened.enter_async_context(AsyncExitStack())
        await self._start_background(engine, home)
        tune_for_long_run()
        code = await context.sign_ins.make_code() if options.wants_link else None
        await send_message(writer, Ready(token, code))
        return True

    async def _start_background(self, engine: "HostedEngine", home: "Home") -> None:
        """Run schedules, webhooks and channels. Processes share that work through the database."""
        start = self._background.enter_async_context
        await start(engine.context.automation().run_in_background())
        await start(home.watch_config(note if self._setup.number == 1 else _ignore))  # one of them reports changes
        await start(engine.context.watch_definitions())
        await start(engine.context.channels().run_in_background())

    @asynccontextmanager
    async def _serve(self, engine: "HostedEngine") -> "AsyncGenerator[_Service]":
        """Serve on the port, and on the socket for other processes of the group."""
        from treadle.surfaces.http.engine_server import authenticate, make_application
        from treadle.surfaces.http.open_streams import OpenStreams
        from treadle.surfaces.http.server import SameUserProtocol, raise_file_limit, serve_sockets
        from treadle.surfaces.http.shared_board import open_board
        from treadle.surfaces.http.siblings import Siblings
        from treadle.surfaces.server.listener import list_hosts, make_url

        setup, settings, host = self._setup, self._settings, self._setup.options.host
        raise_file_limit()
        board, siblings = open_board(setup.board, setup.region), Siblings(Path(setup.folder), setup.instance)
        engine.context.access.changes = engine.context.sign_ins.changes = board.access_changes
        app = make_application(engine)
        app.address = make_url(host, setup.options.port)
        app.use_siblings(siblings)
        streams = OpenStreams(
            settings.streams_per_token, max(MB, settings.stream_memory // setup.processes), board.stream_counts
        )
        answer = authenticate(app, streams, list_hosts(host, settings), settings.origins)
        own, local = self._listeners[setup.number - 1], _listen_locally(siblings.socket_path)
        async with (
            serve_sockets(answer, [local], SameUserProtocol) as on_socket,
            serve_sockets(answer, [own.dup()]) as on_port,
        ):
            try:
                yield _Service(on_port, on_socket, streams)
            finally:
                await streams.close()
                await app.close()
                await siblings.close()
                siblings.socket_path.unlink(missing_ok=True)

    async def _wait_for_end(self, stop: Stop) -> None:
        """Wait until the process is to end, and release its runs."""
        stopping = asyncio.create_task(stop.asked.wait())
        leaving = asyncio.create_task(self._left.wait())
        await asyncio.wait((stopping, leaving), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        leaving.cancel()
        if stop.asked.is_set():
            await self._engine.drain(self._settings.drain_seconds)
        else:
            await self._leave(stop)

    async def _leave(self, stop: Stop) -> None:
        """Accept no more connections, let the readers of streams continue elsewhere, release all runs, and finish
        the other requests."""
        service = self._service
        assert service is not None
        service.port.refuse_more()
        service.port.close_after_responses()
        await service.streams.close()
        await self._engine.drain(self._settings.drain_seconds)
        await self._background.aclose()
        loop = asyncio.get_running_loop()
        quiet, last = loop.time() + QUIET_SECONDS, loop.time() + LINGER_SECONDS
        while not stop.asked.is_set() and loop.time() < last:
            if loop.time() >= quiet and not service.count_requests():
                return
            await asyncio.sleep(POLL_INTERVAL_SECONDS)


def _listen_locally(path: Path) -> socket.socket:
    """Return a socket for processes of the same user."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _discard_output() -> None:
    """Write to nothing from now on: the process that read the output has ended."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nothing, descriptor)


def _ignore(line: str) -> None:
    """Say nothing: another process reports it."""
    del line
