"""The lock file next to a SQLite database, which names the one process that owns it."""

import fcntl
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from treadle.domain.errors import StoreError, StoreOwned


class Owner(Struct, frozen=True):
    """The owner of a database, as its lock file records it."""

    pid: int
    command: str
    since: float
    socket: str | None = None
    """The Unix socket where clients connect to the owner, if it has one."""


class DatabaseLock:
    """Held from construction until `release`, or until the process dies for any reason."""

    def __init__(self, database: str) -> None:
        self._path = Path(f"{database}.lock")
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if not self._path.parent.is_dir():
                raise StoreError(
                    f"The folder {self._path.parent} of the database does not exist. Create it, or name another."
                ) from None
            raise StoreError(
                f"The folder {self._path.parent} is not writable: {self._path.name}: {error.strerror}. Change its "
                "permissions, or set TREADLE_HOME to another folder."
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = self._owner()
            os.close(self._file)
            raise explain_owned(database, owner) from None
        self._owned_by = Owner(os.getpid(), _current_command(), time.time())
        self._write(self._owned_by)

    def announce(self, socket: str) -> None:
        """Record the socket where clients can connect to the owner."""
        self._owned_by = msgspec.structs.replace(self._owned_by, socket=socket)
        self._write(self._owned_by)

    def release(self) -> None:
        self._write(None)
        os.close(self._file)

    def _write(self, owner: Owner | None) -> None:
        with suppress(OSError):  # disk full: the lock holds, but does not name its owner
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, msgspec.json.encode(owner), 0)

    def _owner(self) -> Owner | None:
        return _decode(os.pread(self._file, 4096, 0))


def read_owner(database: str) -> Owner | None:
    """Return the owner of a database according to its lock file, or None if no process owns it."""
    try:
        return _decode(Path(f"{database}.lock").read_bytes())
    except OSError:
        return None


def _decode(content: bytes) -> Owner | None:
    """Return what a lock file records. A socket of another user is left out: clients trust the owner."""
    try:
        owner = msgspec.json.decode(content, type=Owner | None)
    except msgspec.DecodeError:
        return None
    if owner is None or owner.socket is None or _is_own(owner.socket):
        return owner
    return msgspec.structs.replace(owner, socket=None)


def _is_own(path: str) -> bool:
    """Return whether a file belongs to this user. One that is missing cannot be connected to."""
    try:
        return os.stat(path).st_uid == os.geteuid()
    except (OSError, ValueError):
        return True


def _current_command() -> str:
    return " ".join([Path(sys.argv[0]).name or "python", *sys.argv[1:2]])


def _describe(owner: Owner) -> str:
    since = time.strftime("%H:%M:%S", time.localtime(owner.since))
    return f"process {owner.pid} (`{owner.command}`, since {since})"


def explain_owned(database: str, owner: Owner | None) -> StoreOwned:
    """Return the error that names the owner of a database and says what to do."""
    if owner is None:
        return StoreOwned(_explain(database, "owned by another process", "Wait for it to end"))
    who = _describe(owner)
    if owner.pid == os.getpid():
        text = (
            f"The database {database} is open in this process already, and a SQLite database has one owner at a "
            "time. Use the engine that is open, or close it first."
        )
    else:
        remedy = (
            f"Wait for it to end, or stop it (kill {owner.pid}, or kill -9 {owner.pid} if it does not react; its "
            "runs resume later)"
        )
        text = _explain(database, f"owned by {who}", remedy)
    return StoreOwned(text, owner.socket, who, owner.since, owner.pid)


def _explain(database: str, state: str, remedy: str) -> str:
    return (
        f"The database {database} is {state}, and a SQLite database has one owner at a time. {remedy}; or use "
        "another database (TREADLE_DATABASE_URL). Several processes need PostgreSQL, or one `treadle serve` whose "
        "clients they are."
    )
