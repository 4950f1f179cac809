"""Models on this machine, without an account: a GGUF file, served by a child process that is started when it is
first asked and ends with the engine."""

import asyncio
import contextlib
import importlib.util
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

import msgspec

from treadle.domain.errors import UsageError
from treadle.domain.models import Profile
from treadle.domain.providers import NO_TIMEOUTS
from treadle.models.local.known_weights import WEIGHTS
from treadle.ports.model import Completed, Failed, ModelRequest, Show

PROVIDER = "local"
CONTEXT_WINDOW = 8192
"""Tokens, where `models` in `config.yaml` does not say otherwise: memory is taken for all of them."""
PROFILE = Profile(CONTEXT_WINDOW, tools="schema", local=True)
LONGEST_REPLY = 1024
_STARTS_WITHIN = 300.0
_STOPS_WITHIN = 2.0
_ANSWERS_WITHIN = 10.0
_LAST_WORDS = 300

Notice = Callable[[str], None]
"""Takes a line for a person."""


class _Server:
    """The child process of one model."""

    def __init__(self, process: Process, url: str, words: "asyncio.Task[str]") -> None:
        self.url = url
        self._process = process
        self._words = words

    @property
    def pid(self) -> int:
        return self._process.pid

    async def is_well(self) -> bool:
        """Whether it lives and says that it can be asked."""
        if self._process.returncode is not None:
            return False
        host, _, port = self.url.removeprefix("http://").partition(":")
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(f"GET /health HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                line = await reader.readline()
                writer.close()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in line

    async def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOPS_WITHIN):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await self._words


class LocalModels:
    """Implements `ports.model.Model` for every file: one server each, started on demand and once."""

    def __init__(self, folder: Path) -> None:
        self.notice: Notice = lambda _: None
        self._folder = folder
        self._servers: dict[str, _Server] = {}
        self._starting: dict[str, asyncio.Lock] = {}

    def find(self, model: str) -> str:
        """The id of a model that can be asked: a name whose weights are here, or the path of a file. Raises
        UsageError, saying what to do."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise UsageError("A model on this machine needs the extra `local`: pip install 'treadle[local]'.")
        path = self._path(model)
        if path.is_file():
            return model if model in WEIGHTS else str(path.absolute())
        if model in WEIGHTS:
            size = WEIGHTS[model].megabytes
            raise UsageError(
                f"The weights of {model} are not here yet; fetch them ({size} MB) with: treadle models pull {model}"
            )
        names = ", ".join(WEIGHTS)
        raise UsageError(f"There is no file {path}; write local/ and the path of a GGUF file, or one of: {names}.")

    def _path(self, model: str) -> Path:
        return self._folder / f"{model}.gguf" if model in WEIGHTS else Path(model).expanduser()

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        # Imported when the first call is made: the HTTP client is half of what starting a command costs.
        from treadle.models.formats.chat_completions import FORMAT
        from treadle.models.http.client import Client
        from treadle.models.http.endpoint import Endpoint
        from treadle.models.http.transport import Connections

        try:
            server = await self._server(request.model, request.profile.context_window)
        except _NotStarted as error:
            return Failed("unreachable", str(error), retryable=False, next_model=True)
        connections = Connections()
        url = f"{server.url}/v1{FORMAT.path}"
        endpoint = Endpoint(provider=PROVIDER, url=url, timeouts=NO_TIMEOUTS)
        try:
            end = await Client(FORMAT, endpoint, connections).reply(_bounded(request), show)
        finally:
            await connections.close()
        if isinstance(end, Failed) and end.kind == "unreachable":
            await self._give_up(request.model, server)  # the next attempt starts another
        return end

    async def _give_up(self, model: str, server: _Server) -> None:
        if self._servers.get(model) is server:
            del self._servers[model]
        await server.stop()

    async def close(self) -> None:
        servers, self._servers = list(self._servers.values()), {}
        await asyncio.gather(*(server.stop() for server in servers))

    async def _server(self, model: str, window: int) -> _Server:
        """The server of a model, alive; a new one where there is none, or where it has died."""
        async with self._starting.setdefault(model, asyncio.Lock()):
            server = self._servers.get(model)
            if server is not None and not await server.is_well():
                await self._give_up(model, server)
                server = None
            if server is None:
                server = self._servers[model] = await self._start(model, window)
            return server

    async def _start(self, model: str, window: int) -> _Server:
        path, began = self._path(model), time.monotonic()
        self.notice(f"loading {path.name} …")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "treadle.models.local.server", str(path), str(window),
            stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True,
        )  # fmt: skip
        words = asyncio.ensure_future(_last_words(process))
        try:
            url = await _address(process)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await _Server(process, "", words).stop()
            if not isinstance(error, _NotStarted):
                raise
            said = " ".join(words.result().split()) or "it said nothing"
            raise _NotStarted(f"{path} cannot be served: {said}. Check that it is a GGUF file that fits.") from None
        self.notice(f"loaded {path.name} in {time.monotonic() - began:.1f} s")
        return _Server(process, url, words)


def _bounded(request: ModelRequest) -> ModelRequest:
    """A small model may ramble on for as long as it is let."""
    if request.settings.max_tokens is not None:
        return request
    settings = msgspec.structs.replace(request.settings, max_tokens=request.profile.max_output or LONGEST_REPLY)
    return msgspec.structs.replace(request, settings=settings)


class _NotStarted(Exception):
    """The server of a model has not come up."""


async def _address(process: Process) -> str:
    """Where a server listens, once it does."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_STARTS_WITHIN):
            line = await process.stdout.readline()
        return msgspec.json.decode(line, type=dict[str, str])["url"]
    except (TimeoutError, msgspec.DecodeError, KeyError):
        raise _NotStarted from None


async def _last_words(process: Process) -> str:
    """Read what a server says on the side, for as long as it lives; the end of it."""
    assert process.stderr is not None
    words = b""
    while piece := await process.stderr.read(4096):
        words = (words + piece)[-_LAST_WORDS:]
    return words.decode("utf-8", "replace")
