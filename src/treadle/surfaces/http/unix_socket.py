"""The Unix socket next to the database, where other commands of the same user attach to the process that owns it.

The server is imported only when the first command connects."""

import asyncio
import hashlib
import logging
import os
import socket
import stat
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.api.engine import HostedEngine
from treadle.config.database_url import is_in_memory, is_postgres, sqlite_path
from treadle.config.home import Home
from treadle.domain.errors import ConfigError

if TYPE_CHECKING:
    from treadle.surfaces.http.application import Application
    from treadle.surfaces.http.server import Serving

logger = logging.getLogger(__name__)

MAX_PATH_BYTES = 100
"""The length that a Unix socket path may have on every system."""


class Attachments:
    """The commands that use this process over its Unix socket."""

    def __init__(self, listener: socket.socket | None, start: "Callable[[], Awaitable[Serving]]") -> None:
        self._listener = listener
        self._start = start
        self._serving: asyncio.Task[Serving] | None = None
        if listener is not None:
            asyncio.get_running_loop().add_reader(listener, self._on_first_connection)

    @property
    def are_open(self) -> bool:
        """Whether a command is connected."""
        serving = self._serving
        return serving is not None and (not serving.done() or serving.result().count_connections() > 0)

    def refuse_more(self) -> None:
        """Accept no more connections. A command that cannot connect tries again until it owns the home itself."""
        if self._serving is None:
            self._stop_listening()
        elif self._serving.done():
            self._serving.result().refuse_more()

    async def finish(self) -> None:
        if self._serving is None:
            self._stop_listening()
        else:
            await self._serving

    def _on_first_connection(self) -> None:
        assert self._listener is not None
        asyncio.get_running_loop().remove_reader(self._listener)
        self._serving = asyncio.ensure_future(self._start())

    def _stop_listening(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None


@asynccontextmanager
async def accept_attachments(
    engine: HostedEngine, home: Home, app: "Application | None" = None, hand_over: Callable[[], None] | None = None
) -> AsyncGenerator[Attachments, None]:
    """Let other commands of this user attach during the block.

    `hand_over` is called when a server requests the home. Without it this process keeps the home."""
    path = socket_path(home)
    listener = None if path is None else _open_listener(path)
    async with AsyncExitStack() as stack:

        async def start_serving() -> "Serving":
            from treadle.surfaces.http.engine_server import (
                make_application,
                refuse_hand_over,
                serve_over_unix_socket,
            )

            assert listener is not None
            application_ = app or make_application(engine, hand_over=hand_over or refuse_hand_over)
            return await stack.enter_async_context(serve_over_unix_socket(application_, listener))

        if path is not None and listener is not None:
            stack.callback(_remove, path, listener)
            engine.announce(path)
        attachments = Attachments(listener, start_serving)
        try:
            yield attachments
        finally:
            await attachments.finish()


def socket_path(home: Home) -> Path | None:
    """Return the path of the socket: next to the database, or in a private system folder if that path would be too
    long. None: the database is in memory, or on a PostgreSQL server."""
    if is_postgres(home.database_url) or is_in_memory(home.database_url):
        return None
    path = Path(f"{sqlite_path(home.database_url)}.sock").absolute()
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        return path
    name = hashlib.blake2b(os.fsencode(path), digest_size=12).hexdigest()
    return _private_folder() / f"{name}.sock"


def _private_folder() -> Path:
    """Return a folder that only this user can access. Raise ConfigError if another user created it."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"treadle-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"The folder {folder} is accessible to other users. Remove it, or set XDG_RUNTIME_DIR.")
    return folder


def _open_listener(path: Path) -> socket.socket | None:
    """Return a listening socket, or None if it cannot be created, as on some file systems; the process works
    without it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)  # left by an owner that died: only one process owns the database at a time
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        logger.warning("other commands cannot attach: the socket %s cannot be created: %s", path, error.strerror)
        return None
    finally:
        os.umask(before)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _remove(path: Path, listener: socket.socket) -> None:
    listener.close()
    with suppress(OSError):
        path.unlink()
