"""The child processes that serve models on this machine: one for each file, started on demand and once."""

import asyncio
import contextlib
import time
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from treadle.system.helper_process import start_piped_helper

SERVER_MODULE = "treadle.models.local.server"
_START_TIMEOUT_SECONDS = 300.0
_STOP_TIMEOUT_SECONDS = 2.0
_HEALTH_TIMEOUT_SECONDS = 10.0
_MAX_STDERR_BYTES = 300

Notice = Callable[[str], None]
"""Takes a line for a person."""


class ServerNotStarted(Exception):
    """The server of a model has not come up."""


class LocalServer:
    """The child process of one model. It is loading until it says where it listens."""

    def __init__(self, process: Process) -> None:
        self.url = ""
        self._process = process
        self._words = asyncio.ensure_future(_read_stderr_tail(process))

    @classmethod
    async def begin(cls, path: Path, window: int) -> Self:
        return cls(await start_piped_helper(SERVER_MODULE, str(path), str(window)))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def loaded(self) -> bool:
        """Wait until it listens; whether it does."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_TIMEOUT_SECONDS):
                line = await self._process.stdout.readline()
            self.url = msgspec.json.decode(line, type=dict[str, str])["url"]
        except (TimeoutError, msgspec.DecodeError, KeyError):
            return False
        return True

    async def is_well(self) -> bool:
        """Whether it lives and says that it can be asked."""
        if self._process.returncode is not None:
            return False
        host, _, port = self.url.removeprefix("http://").partition(":")
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_connection(host, int(port))
                with contextlib.closing(writer):
                    writer.write(f"GET /health HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                    line = await reader.readline()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in line

    async def stop(self) -> None:
        """Let it end by itself; if it does not, end it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT_SECONDS):
                    await self._process.wait()
        finally:
            await self.kill()

    async def kill(self) -> str:
        """End it at once; return the last that it said."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        return " ".join((await self._words).split()) or "it said nothing"


class LocalServers:
    """The servers of one opening: once they are closed, none of them runs and none is started."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._running: dict[Path, LocalServer] = {}
        self._loading: set[LocalServer] = set()
        self._turns: dict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closed = False

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self._running.values()]

    async def of(self, path: Path, window: int) -> LocalServer:
        """The server of a file, alive; a new one where there is none, or where it has died. Raises NotStarted."""
        async with self._turns[path]:
            server = self._running.get(path)
            if server is not None and not await server.is_well():
                await self.give_up(path, server)
                server = None
            if server is None:
                server = self._running[path] = await self._start(path, window)
            return server

    async def give_up(self, path: Path, server: LocalServer) -> None:
        if self._running.get(path) is server:
            del self._running[path]
        await server.stop()

    async def close(self) -> None:
        """End them all, also those that are loading: whoever waits for one is told. When this returns, none is
        left."""
        self._closed = True
        running, self._running = list(self._running.values()), {}
        await asyncio.gather(*(server.stop() for server in running), *(server.kill() for server in self._loading))
        for turn in list(self._turns.values()):
            async with turn:
                pass  # whoever had it has ended what they started

    async def _start(self, path: Path, window: int) -> LocalServer:
        self._check_open(path)
        began, loaded, said = time.monotonic(), False, ""
        self._notice(f"loading {path.name} …")
        server = await LocalServer.begin(path, window)
        self._loading.add(server)
        try:
            loaded = await server.loaded() and not self._closed
        finally:
            self._loading.discard(server)
            if not loaded:
                said = await server.kill()
        self._check_open(path)
        if not loaded:
            raise ServerNotStarted(f"{path} cannot be served: {said}. Check that it is a GGUF file that fits.")
        self._notice(f"loaded {path.name} in {time.monotonic() - began:.1f} s")
        return server

    def _check_open(self, path: Path) -> None:
        if self._closed:
            raise ServerNotStarted(
                f"{path} is not served: the models on this machine were closed before it had loaded. "
                "It is loaded anew when it is asked again."
            )


async def _read_stderr_tail(process: Process) -> str:
    """Read what a server says on the side, for as long as it lives; the end of it."""
    assert process.stderr is not None
    words = b""
    while piece := await process.stderr.read(4096):
        words = (words + piece)[-_MAX_STDERR_BYTES:]
    return words.decode("utf-8", "replace")
