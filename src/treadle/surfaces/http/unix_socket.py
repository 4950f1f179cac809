"""The Unix socket beside the database, where other commands of the same user attach to the process that owns it.

Nothing of the server is imported before the first of them connects."""

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

from treadle.api.engine import Engine
from treadle.config.database_url import is_in_memory, is_postgres, sqlite_path
from treadle.config.home import Home
from treadle.domain.errors import ConfigError

if TYPE_CHECKING:
    from treadle.surfaces.http.application import Application

logger = logging.getLogger(__name__)

MAX_PATH_BYTES = 100
"""Bytes that the name of a Unix socket may have, everywhere."""


@asynccontextmanager
async def accept_attachments(
    engine: Engine, home: Home, app: "Application | None" = None, hand_over: Callable[[], None] | None = None
) -> AsyncGenerator[Callable[[], bool], None]:
    """Let other commands of this user attach while the block is entered; whether any has can be asked.

    `hand_over` is called when a server asks for the home; without it this process keeps the home."""
    path = socket_path(home)
    listener = None if path is None else _open_listener(path)
    if path is None or listener is None:
        yield lambda: False
        return
    async with AsyncExitStack() as opened:
        opened.callback(_remove, path, listener)
        loop = asyncio.get_running_loop()
        serving: asyncio.Task[Callable[[], int]] | None = None

        async def begin() -> Callable[[], int]:
            from treadle.surfaces.http.engine_server import (
                make_application,
                refuse_hand_over,
                serve_over_unix_socket,
            )

            offered = app or make_application(engine, hand_over=hand_over or refuse_hand_over)
            return await opened.enter_async_context(serve_over_unix_socket(offered, listener))

        def first() -> None:
            nonlocal serving
            loop.remove_reader(listener)
            serving = asyncio.ensure_future(begin())

        loop.add_reader(listener, first)
        engine.announce(path)
        try:
            yield lambda: serving is not None and (not serving.done() or serving.result()() > 0)
        finally:
            if serving is None:
                loop.remove_reader(listener)
            else:
                await serving


def socket_path(home: Home) -> Path | None:
    """Beside the database; in a private folder of the system where that name would be too long. None: the database
    is in memory, and nobody else's; or on a server, and everybody's."""
    if is_postgres(home.database_url) or is_in_memory(home.database_url):
        return None
    beside = Path(f"{sqlite_path(home.database_url)}.sock").absolute()
    if len(os.fsencode(beside)) <= MAX_PATH_BYTES:
        return beside
    name = hashlib.blake2b(os.fsencode(beside), digest_size=12).hexdigest()
    return _private_folder() / f"{name}.sock"


def _private_folder() -> Path:
    """A folder that is this user's alone. Raises ConfigError where somebody else has made it."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"treadle-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"The folder {folder} is not this user's alone; remove it, or set XDG_RUNTIME_DIR.")
    return folder


def _open_listener(path: Path) -> socket.socket | None:
    """A socket that listens there. None: there cannot be one, as on some file systems; the work goes on without."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)  # of an owner that has died: there is one at a time, and this process is it
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        logger.warning("no other command can attach: the socket %s cannot be made: %s", path, error.strerror)
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
