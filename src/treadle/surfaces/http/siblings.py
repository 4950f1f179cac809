"""The processes behind one port, as one of them sees the others.

Each has a Unix socket in a folder of the server, where it answers the same requests as on the port, with the same
authentication. A process forwards a request there that only another one can answer: of an MCP session, or for its
metrics. Requests with the same idempotency key are held apart by a lock in that folder."""

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import aiohttp
import msgspec
from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send

from treadle.operations.refusal import Refusal
from treadle.operations.system_facts import ProcessState, ProcessView
from treadle.surfaces.http.auth import send_problem

logger = logging.getLogger(__name__)

SESSION_HEADER = b"mcp-session-id"
LIST_FILE = "processes.json"
METRICS_SECONDS = 2.0
"""How long another process may take to return its metrics. Without them the page is not complete."""
CONNECT_SECONDS = 2.0
HOLD_INTERVAL_SECONDS = 0.02
"""How often a process tries to hold what another one holds."""
_HOP_HEADERS = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"te", b"upgrade"))
"""Headers that concern one connection alone. The length is that of the body, which is sent on as it arrives."""
_URL = "http://localhost"


class ServerProcess(Struct, frozen=True):
    """A process of a server, as the process that started it describes it to all of them."""

    number: int
    """From 1. A process and its replacement have the same number."""
    instance: str
    """Name of its socket, which no other process has."""
    process_id: int
    started_at: datetime
    state: ProcessState
    restarts: int = 0
    """How often the process with this number has ended unexpectedly."""


class Siblings:
    """The processes of a server, for the one with this instance name."""

    def __init__(self, folder: Path, instance: str) -> None:
        self._folder = folder
        self._instance = instance
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    @property
    def socket_path(self) -> Path:
        return self._folder / f"{self._instance}.sock"

    def list(self) -> tuple[ServerProcess, ...]:
        """Return all processes, as last described. It is nothing while the server starts or ends."""
        try:
            return msgspec.json.decode((self._folder / LIST_FILE).read_bytes(), type=tuple[ServerProcess, ...])
        except (OSError, msgspec.DecodeError):
            return ()

    def describe(self) -> Sequence[ProcessView]:
        return [
            ProcessView(each.number, each.process_id, each.started_at, each.state, each.restarts)
            for each in self.list()
        ]

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    # ── Metrics ──

    async def fetch_metrics(self, scope: Scope) -> Mapping[int, bytes]:
        """Return the metrics of the other processes that are ready, by number. One that does not answer in time is
        left out."""
        others = [each for each in self.list() if each.state == "ready" and each.instance != self._instance]
        found = await asyncio.gather(*(self._fetch_metrics(each, scope) for each in others))
        return {each.number: page for each, page in zip(others, found, strict=True) if page is not None}

    async def _fetch_metrics(self, process: ServerProcess, scope: Scope) -> bytes | None:
        url, headers = f"{_URL}/metrics?alone=true", _read_headers(scope)
        try:
            async with asyncio.timeout(METRICS_SECONDS):
                async with self._connect(process.instance).get(url, headers=headers) as response:
                    return await response.read() if response.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            logger.warning("process %d did not return its metrics: %s", process.number, error or "it is too slow")
            return None

    @property
    def number(self) -> int:
        """Number of this process; 0 while it is not listed."""
        return next((each.number for each in self.list() if each.instance == self._instance), 0)

    # ── Sign-ins and idempotency keys ──

    @property
    def sign_in_failures(self) -> Path:
        """File in which all processes record failed attempts to sign in."""
        return self._folder / "sign-in-failures"

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncGenerator[None]:
        """Keep the other processes from holding the same name during the block, or until this process ends."""
        path = self._folder / f"{name}.lock"
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if _try_lock(descriptor, path):
                break
            os.close(descriptor)
            await asyncio.sleep(HOLD_INTERVAL_SECONDS)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    # ── MCP sessions ──

    def find_session_owner(self, scope: Scope) -> str | None:
        """Return the instance of another process that a request is for. If this process has its session, remove the
        mark from the session ID."""
        headers = scope["headers"]
        for place, (name, value) in enumerate(headers):
            if name == SESSION_HEADER:
                session, _, instance = value.decode("latin-1").rpartition(".")
                if instance != self._instance:
                    return instance if any(instance == each.instance for each in self.list()) else None
                headers[place] = (name, session.encode("latin-1"))
        return None

    def mark_session(self, send: Send) -> Send:
        """Add the instance of this process to the session ID of a response."""

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                marked = [
                    (name, b"%b.%b" % (value, self._instance.encode()) if name.lower() == SESSION_HEADER else value)
                    for name, value in message["headers"]
                ]
                message = {**message, "headers": marked}
            await send(message)

        return send_marked

    async def forward(self, instance: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a request to another process, and its response to the client, as both arrive."""
        body = await _read_body(receive)
        if body is None:
            return
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        answering = asyncio.create_task(self._forward(instance, scope, body, send))
        try:
            await asyncio.wait((leaving, answering), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leaving, answering):
                task.cancel()
            await asyncio.wait((leaving, answering))
        if not answering.cancelled():
            answering.result()

    async def _forward(self, instance: str, scope: Scope, body: bytes, send: Send) -> None:
        url, headers = f"{_URL}{scope['path']}", _read_headers(scope)
        is_started = False
        try:
            async with self._connect(instance).request(
                scope["method"], url, headers=headers, data=body or None
            ) as response:
                raw = [(name.lower(), value) for name, value in response.raw_headers]
                kept = [(name, value) for name, value in raw if name not in _HOP_HEADERS]
                is_started = True
                await send({"type": "http.response.start", "status": response.status, "headers": kept})
                async for piece in response.content.iter_any():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (aiohttp.ClientError, OSError):
            if is_started:
                raise
            refusal = Refusal(404, "SessionGone", "The process of this MCP session has ended. Begin a new session.")
            await send_problem(refusal, scope, send)

    def _connect(self, instance: str) -> aiohttp.ClientSession:
        session = self._sessions.get(instance)
        if session is None:
            connector = aiohttp.UnixConnector(str(self._folder / f"{instance}.sock"), limit=0)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            session = self._sessions[instance] = aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=False
            )
        return session


def _try_lock(descriptor: int, path: Path) -> bool:
    """Lock an open file, and return whether that worked and the file still has its name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _read_headers(scope: Scope) -> list[tuple[str, str]]:
    """Return the headers of a request as they are sent on."""
    headers = scope["headers"]
    return [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in headers if name not in _HOP_HEADERS
    ]


async def _read_body(receive: Receive) -> bytes | None:
    """Return the whole body, or None if the client disconnected while sending it."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
