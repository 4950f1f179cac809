"""Checks of the database: readable, sound, and what guards did recently."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from treadle.config.database_url import is_postgres, mask_password, sqlite_path
from treadle.config.home import Home
from treadle.doctor.findings import setting
from treadle.domain.errors import StoreNewer, StoreOutdated, TreadleError, UsageError
from treadle.operations.system_facts import DoctorFinding
from treadle.stores.sqlite.backup import check_integrity, count_guard_events, read_facts
from treadle.stores.sqlite.connection import current_version

RECENT_EVENTS = 100_000
MAX_CHECKED_BYTES = 256 * 2**20
"""A larger database is not read completely."""
SERVER_SECONDS = 5.0


async def describe_database(home: Home, *, offline: bool) -> Sequence[DoctorFinding]:
    """Check the database without changing it."""
    if not is_postgres(home.database_url):
        return await asyncio.to_thread(lambda: list(_describe_file(home)))
    if offline:
        return [setting("database", f"{mask_password(home.database_url)}, not tried")]
    return await _describe_server(home)


def _describe_file(home: Home) -> Iterator[DoctorFinding]:
    try:
        path = sqlite_path(home.database_url)
    except UsageError as error:
        yield DoctorFinding("database", "wrong", str(error), "Set TREADLE_DATABASE_URL to a valid URL.")
        return
    if path == ":memory:" or not Path(path).exists():
        yield DoctorFinding("database", "note", f"{path} does not exist yet", "The first run creates it.")
        return
    try:
        size = Path(path).stat().st_size
        if size < MAX_CHECKED_BYTES:
            check_integrity(path)
        facts = read_facts(path)
        fired = count_guard_events(path, RECENT_EVENTS)
    except TreadleError as error:
        yield DoctorFinding(
            "database", "wrong", str(error), _advise(error, "Restore a backup: treadle restore FILE --force")
        )
        return
    yield from _describe_version(path, facts.version, current_version())
    checked = (
        "every page was checked" if size < MAX_CHECKED_BYTES else "it can be read; too large to check every page"
    )
    contents = f"{facts.runs} runs, {facts.unfinished} of them unfinished, {facts.events} events"
    yield DoctorFinding("database", "ok", f"{path}: {checked}, {size / 2**20:.1f} MB; {contents}")
    yield _describe_guard_actions(fired)


async def _describe_server(home: Home) -> Sequence[DoctorFinding]:
    from treadle.bootstrap.databases import read_server_facts

    where = mask_password(home.database_url)
    advice = "Check the server and TREADLE_DATABASE_URL."
    try:
        async with asyncio.timeout(SERVER_SECONDS):
            facts, known, fired, vectors = await read_server_facts(home.database_url, RECENT_EVENTS)
    except TimeoutError:
        return [DoctorFinding("database", "wrong", f"{where} did not answer within {SERVER_SECONDS:g} s", advice)]
    except TreadleError as error:
        return [DoctorFinding("database", "wrong", str(error), _advise(error, advice))]
    if facts is None:
        return [DoctorFinding("database", "note", f"{where} is empty", "The first run creates the tables.")]
    contents = f"{facts.runs} runs, {facts.unfinished} of them unfinished, {facts.events} events"
    return [
        *_describe_version(where, facts.version, known),
        DoctorFinding("database", "ok", f"{where}: {contents}; vectors are compared with {vectors}"),
        _describe_guard_actions(fired),
    ]


def _describe_guard_actions(fired: Sequence[tuple[str, int]]) -> DoctorFinding:
    counts = ", ".join(f"{name} {count}" for name, count in fired)
    return DoctorFinding("guards", "ok", f"actions in the last {RECENT_EVENTS:,} events: {counts or 'none'}")


def _describe_version(where: str, version: int, known: int) -> Iterator[DoctorFinding]:
    if version < known:
        found = f"{where} has schema version {version}; this Treadle has {known}"
        yield DoctorFinding("database", "note", found, "The next run migrates it.")


def _advise(error: TreadleError, otherwise: str) -> str:
    match error:
        case StoreNewer():
            return "Install that version."
        case StoreOutdated():
            return "Export it with that commit, or use another database (TREADLE_DATABASE_URL)."
        case _:
            return otherwise
