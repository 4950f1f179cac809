"""The child processes that serve models on this machine: one per file, started on demand."""

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
"""Receives a line for the user."""


class ServerNotStarted(Exception):
    """The server of a model did not start."""


class LocalServer:
    """The child process of one model. It is loading until it reports its address."""

    def __init__(self, process: Process) -> None:
        self.url = ""
        self._process = process
        self._stderr_tail = asyncio.ensure_future(_read_stderr_tail(process))

    @classmethod
    async def start(cls, path: Path, window: int) -> Self:
        return cls(await start_piped_helper(SERVER_MODULE, str(path), str(window)))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait_until_loaded(self) -> bool:
        """Wait until the server listens. Return whether it does."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_TIMEOUT_SECONDS):
                line = await self._process.stdout.readline()
            self.url = msgspec.json.decode(line, type=dict[str, str])["url"]
        except (TimeoutError, msgspec.DecodeError, KeyError):
            return False
        return True

    async def is_healthy(self) -> bool:
        """Return whether the process is alive and its health check succeeds."""
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
        """Ask the process to exit, and kill it if it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT_SECONDS):
                    await self._process.wait()
        finally:
            await self.kill()

    async def kill(self) -> str:
        """Kill the process, and return the last lines of its output."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        return " ".join((await self._stderr_tail).split()) or "no output"


class LocalServers:
    """The running servers. After `close`, none of them runs and none can be started."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._running: dict[Path, LocalServer] = {}
        self._loading: set[LocalServer] = set()
        self._locks: dict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closed = False

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self._running.values()]

    async def get(self, path: Path, window: int) -> LocalServer:
        """Return the server of a file. Start it if there is none or it has died. Raise ServerNotStarted if it does
        not start."""
        async with self._locks[path]:
            server = self._running.get(path)
            if server is not None and not await server.is_healthy():
                await self.discard(path, server)
                server = None
            if server is None:
                server = self._running[path] = await self._start(path, window)
            return server

    async def discard(self, path: Path, server: LocalServer) -> None:
        if self._running.get(path) is server:
            del self._running[path]
        await server.stop()

    async def close(self) -> None:
        """Stop all servers, including those that are loading; callers waiting for one get ServerNotStarted. When
        this returns, none is running."""
        self._closed = True
        running, self._running = list(self._running.values()), {}
        await asyncio.gather(*(server.stop() for server in running), *(server.kill() for server in self._loading))
        for lock in list(self._locks.values()):
            async with lock:
                pass  # its holder has stopped the server that it was starting

    async def _start(self, path: Path, window: int) -> LocalServer:
        self._check_open(path)
        began, loaded, said = time.monotonic(), False, ""
        self._notice(f"loading {path.name} …")
        server = await LocalServer.start(path, window)
        self._loading.add(server)
        try:
            loaded = await server.wait_until_loaded() and not self._closed
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
                "The next call loads it again."
            )


async def _read_stderr_tail(process: Process) -> str:
    """Read the standard error of a server until it ends, and return the last part."""
    assert process.stderr is not None
    words = b""
    while piece := await process.stderr.read(4096):
        words = (words + piece)[-_MAX_STDERR_BYTES:]
    return words.decode("utf-8", "replace")
