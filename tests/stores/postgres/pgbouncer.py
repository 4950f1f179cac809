"""A real pgbouncer in front of a test server, with the settings that its package comes with."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.patience import HANG_SECONDS


@contextmanager
def pgbouncer(url: str, pool_mode: str) -> Generator[str, None, None]:
    """Yield the URL of the same database behind pgbouncer."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("no pgbouncer: apt-get install pgbouncer")
    parts = urlsplit(url)
    host = parse_qs(parts.query).get("host", [parts.hostname or "127.0.0.1"])[0]
    user, name, port = parts.username or "postgres", parts.path.lstrip("/"), _find_port()
    folder = Path(tempfile.mkdtemp(prefix="bouncer"))
    folder.chmod(0o755)
    (folder / "users").write_text(f'"{user}" "{parts.password or ""}"\n')
    (folder / "ini").write_text(
        f"[databases]\n{name} = host={host} port={parts.port or 5432} dbname={name} user={user}"
        f"{f' password={parts.password}' if parts.password else ''}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {folder}/users\npool_mode = {pool_mode}\n"
    )
    other = _find_user(host) if os.geteuid() == 0 else None
    silent = subprocess.DEVNULL
    process = subprocess.Popen([program, "-q", str(folder / "ini")], stdout=silent, stderr=silent, user=other)
    try:
        _wait_until_open(port)
        yield f"postgresql://{user}@127.0.0.1:{port}/{name}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _find_user(host: str) -> int:
    """Return the user who can reach the server: the owner of the folder of its socket, if it has one."""
    owner = Path(host).stat().st_uid if host.startswith("/") else 0
    return owner or pwd.getpwnam("nobody").pw_uid


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_until_open(port: int) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
