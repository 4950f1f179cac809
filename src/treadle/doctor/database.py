"""The database: whether it can be read, whether it is sound, and what guards did in it."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from treadle.config.database_url import is_postgres, path_of, shown
from treadle.config.home import Home
from treadle.doctor.findings import Finding, setting
from treadle.domain.errors import TreadleError, UsageError
from treadle.stores.sqlite.backup import check_integrity, count_guard_events, read_facts
from treadle.stores.sqlite.connection import load_migrations

LATELY = 100_000
CHECKED_BELOW = 256 * 2**20
"""A larger database is not read whole."""
SERVER_SECONDS = 5.0


async def describe_database(home: Home, *, offline: bool) -> Sequence[Finding]:
    """Look at the database and leave it as it is."""
    if not is_postgres(home.database_url):
        return await asyncio.to_thread(lambda: list(_describe_file(home)))
    if offline:
        return [setting("database", f"{shown(home.database_url)}, not tried")]
    return await _describe_server(home)


def _describe_file(home: Home) -> Iterator[Finding]:
    try:
        path = path_of(home.database_url)
    except UsageError as error:
        yield Finding("database", "wrong", str(error), "Set TREADLE_DATABASE_URL to a URL that can be used.")
        return
    if path == ":memory:" or not Path(path).exists():
        yield Finding("database", "note", f"{path} is not there yet", "It is made with the first run.")
        return
    try:
        size = Path(path).stat().st_size
        if size < CHECKED_BELOW:
            check_integrity(path)
        facts = read_facts(path)
        fired = count_guard_events(path, LATELY)
    except TreadleError as error:
        yield Finding("database", "wrong", str(error), "Put a backup back: treadle restore FILE --force")
        return
    yield from _other_format(path, facts.version, len(load_migrations()))
    checked = "every page was checked" if size < CHECKED_BELOW else "it can be read; too large to check every page"
    held = f"{facts.runs} runs, {facts.unfinished} of them unfinished, {facts.events} events"
    yield Finding("database", "ok", f"{path}: {checked}, {size / 2**20:.1f} MB; {held}")
    yield _describe_fired(fired)


async def _describe_server(home: Home) -> Sequence[Finding]:
    from treadle.bootstrap.stores import look_at_server

    where = shown(home.database_url)
    advice = "Check the server and TREADLE_DATABASE_URL."
    try:
        async with asyncio.timeout(SERVER_SECONDS):
            facts, known, fired, vectors = await look_at_server(home.database_url, LATELY)
    except TimeoutError:
        return [Finding("database", "wrong", f"{where} did not answer within {SERVER_SECONDS:g} s", advice)]
    except TreadleError as error:
        return [Finding("database", "wrong", str(error), advice)]
    if facts is None:
        return [Finding("database", "note", f"{where} is empty", "What is needed is made with the first run.")]
    held = f"{facts.runs} runs, {facts.unfinished} of them unfinished, {facts.events} events"
    return [
        *_other_format(where, facts.version, known),
        Finding("database", "ok", f"{where}: {held}; vectors are compared with {vectors}"),
        _describe_fired(fired),
    ]


def _describe_fired(fired: Sequence[tuple[str, int]]) -> Finding:
    told = ", ".join(f"{name} {count}" for name, count in fired)
    return Finding("guards", "ok", f"what they did in the last {LATELY:,} events: {told or 'nothing'}")


def _other_format(where: str, version: int, known: int) -> Iterator[Finding]:
    if version != known:
        yield Finding(
            "database",
            "wrong" if version > known else "note",
            f"{where} has format {version}; this version has {known}",
            "Install the newer version." if version > known else "The next run brings it up to date.",
        )
