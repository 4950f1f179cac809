"""The marker of a home: which database files it has used. One of them that is missing was deleted, or its disk is
not mounted, so no empty one is created in its place."""

from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from treadle.config.database_url import is_in_memory, is_postgres, sqlite_path
from treadle.config.home import Home
from treadle.config.private_files import write_atomically
from treadle.domain.errors import ConfigError, StoreMissing

MARKER = "databases.json"
VERSION_BYTES = slice(60, 64)
"""Where a SQLite file holds its schema version."""
HEADER_BYTES = 100


class Marker(Struct, frozen=True):
    """The content of the marker."""

    databases: tuple[str, ...] = ()
    """Paths; inside of the home they are relative to it, so that a home can be moved."""


def refuse_missing_database(home: Home) -> None:
    """Raise StoreMissing if the home had a database and it is missing or empty now, unless a new one is wanted."""
    path = _find_path(home)
    if path is None or home.new or _name(home, path) not in _read(home).databases or not _is_empty(path):
        return
    raise StoreMissing(
        f"The database {path} is missing or empty, but this home had one. Put the file back (is its disk "
        "mounted?), or restore a backup (treadle restore FILE --force). To start with a new, empty database: "
        "treadle serve --new, treadle run --new or treadle chat --new; in a program: Engine(new=True)."
    )


def record_database(home: Home) -> None:
    """Record that the home has a database. A home that cannot be written works without its marker."""
    path = _find_path(home)
    if path is None or _name(home, path) in (known := _read(home).databases):
        return
    with suppress(ConfigError):
        marker = Marker((*known, _name(home, path)))
        write_atomically(home.path / MARKER, msgspec.json.encode(marker).decode() + "\n")


def forget_database(home: Home) -> None:
    """Forget the database of a home: it was moved aside on purpose."""
    path = _find_path(home)
    known = _read(home).databases
    if path is not None and _name(home, path) in known:
        rest = tuple(each for each in known if each != _name(home, path))
        write_atomically(home.path / MARKER, msgspec.json.encode(Marker(rest)).decode() + "\n")


def _find_path(home: Home) -> Path | None:
    """Return the database file of a home; None if it is on a server or in memory."""
    if is_postgres(home.database_url) or is_in_memory(home.database_url):
        return None
    return Path(sqlite_path(home.database_url)).absolute()


def _name(home: Home, path: Path) -> str:
    return str(path.relative_to(home.path) if path.is_relative_to(home.path) else path)


def _read(home: Home) -> Marker:
    try:
        return msgspec.json.decode((home.path / MARKER).read_bytes(), type=Marker)
    except (OSError, msgspec.DecodeError):
        return Marker()


def _is_empty(path: Path) -> bool:
    """Return whether a file is missing, or a database without tables. Companion files may hold its content."""
    try:
        if Path(f"{path}-wal").exists() and path.exists():
            return False
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # opening it reports why
    return not header or (len(header) == HEADER_BYTES and not any(header[VERSION_BYTES]))
