"""The Unix socket next to the database, where other commands of the same user attach to the process that owns it.

The server is imported only when the first command connects."""

import asyncio
import hashlib
import logging
import os
import socket
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.api.engine import HostedEngine
from treadle.config.database_url import is_in_memory, is_postgres, sqlite_path
from treadle.config.home import Home
from treadle.domain.errors import ConfigError

if TYPE_CHECKING:
    from treadle.surfaces.http.application import Application

logger = logging.getLogger(__name__)

MAX_PATH_BYTES = 100
"""The length that a Unix socket path may have on every system."""


@asynccontextmanager
async def accept_attachments(
    engine: HostedEngine, home: Home, app: "Application | None" = None, hand_over: Callable[[], None] | None = None
) -> AsyncGenerator[Callable[[], bool], None]:
    """Let other commands of this user attach during the block. Yield a function that returns whether any has.

    `hand_over` is called when a server requests the home. Without it this process keeps the home."""
    path = socket_path(home)
    listener = None if path is None else _open_listener(path)
    if path is None or listener is None:
        yield lambda: False
        return
    async with AsyncExitStack() as stack:
        stack.callback(_remove, path, listener)
        loop = asyncio.get_running_loop()
        serving: asyncio.Task[Callable[[], int]] | None = None

        async def start_serving() -> Callable[[], int]:
            from treadle.surfaces.http.engine_server import (
                make_application,
                refuse_hand_over,
                serve_over_unix_socket,
            )

            application_ = app or make_application(engine, hand_over=hand_over or refuse_hand_over)
            return await stack.enter_async_context(serve_over_unix_socket(application_, listener))

        def on_first_connection() -> None:
            nonlocal serving
            loop.remove_reader(listener)
            serving = asyncio.ensure_future(start_serving())

        loop.add_reader(listener, on_first_connection)
        engine.announce(path)
        try:
            yield lambda: serving is not None and (not serving.done() or serving.result()() > 0)
        finally:
            if serving is None:
                loop.remove_reader(listener)
            else:
                await serving


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
