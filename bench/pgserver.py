"""A PostgreSQL server for a measurement, which waits for the disk as in production."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.stores.postgres.servers import start

from treadle.stores.postgres.connection import connect


@contextmanager
def open_database(url: str | None = None) -> Generator[str, None, None]:
    """Yield the URL of an empty database on a server of its own, or the given one."""
    if url is not None:
        yield url
        return
    folder = Path(tempfile.mkdtemp(prefix="bench"))
    server = start(folder / "data", settings="")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


async def read_server_cpu(url: str) -> float:
    """Return the CPU seconds that a local server has used so far, all its processes together."""
    connection = await connect(url)
    try:
        return _sum_cpu(await connection.fetchval("SELECT pg_backend_pid()"))
    finally:
        await connection.close()


def _sum_cpu(backend: int) -> float:
    first = int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])
    others = map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())
    return sum(map(read_cpu_seconds, (first, *others)))


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far, including ended child processes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
