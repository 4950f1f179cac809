"""Other processes that hold a database open."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

HOLD_THE_WRITE_LOCK = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
connection.close()
print("let go", flush=True)
"""

KEEP_EVERYONE_OUT = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("PRAGMA locking_mode = EXCLUSIVE")
connection.execute("BEGIN EXCLUSIVE")
connection.execute("CREATE TABLE IF NOT EXISTS held (x)")
print("held", flush=True)
sys.stdin.readline()
"""

OWN_AN_ENGINE = """
import asyncio, sys
from treadle.api.engine import create_engine

async def own():
    async with create_engine(f"sqlite:///{sys.argv[1]}"):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(own())
"""


@contextmanager
def holder(script: str, path: str) -> Generator["subprocess.Popen[str]", None, None]:
    """Yield a process that runs the script and holds the database."""
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def discard(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
