"""Connecting to a PostgreSQL server, with a clear word when that cannot be done, or something fails there."""

import re
from collections.abc import Mapping
from importlib import resources

from treadle.domain.errors import StoreAway, StoreError, StoreFull, StoreLocked, StoreNewer, UsageError
from treadle.stores.postgres.driver import (
    InterfaceError,
    InternalClientError,
    PostgresConnection,
    PostgresError,
    open_connection,
)

SCHEMA = "treadle"
"""What is ours in the database has a schema of its own: the database may serve others too."""
MIN_SERVER_VERSION = 14
"""The oldest PostgreSQL that has what we use."""
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 30.0
LOCK_SECONDS = 5.0
SETTINGS = {
    "application_name": "treadle",
    "search_path": f"{SCHEMA}, public",
    "statement_timeout": f"{STATEMENT_SECONDS:.0f}s",
    "lock_timeout": f"{LOCK_SECONDS:.0f}s",
    "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS:.0f}s",
    "jit": "off",  # no statement here takes as long as its compilation
}
WRITER_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
}
"""For a writer, which asks for rows by their keys, with the same few statements again and again: none is planned
twice, no plan from when a table was small reads all of it when it is large, and rows are come to in the order of
their keys."""
ENSURE_DURABLE_COMMITS = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""
"""What is acknowledged is on disk, whatever the server is set to; where a standby is waited for, it is."""

CONNECTION_ERRORS = (OSError, TimeoutError, InterfaceError, InternalClientError)
"""What says that the server cannot be heard, or that nobody knows what has become of what it was told."""
DRIVER_ERRORS = (*CONNECTION_ERRORS, PostgresError)
"""All that the driver raises."""
UNAVAILABLE_STATES = frozenset(("57P01", "57P02", "57P03", "57P05", "53300", "25006", "25P03"))
"""It goes down, comes up, has no connection left, has closed this one, or is a standby that takes no writes."""
LOCKED_STATES = frozenset(("55P03", "57014"))
CONFLICT_STATES = frozenset(("40001", "40P01"))
"""Two transactions stood in each other's way, and this one was given up for the other."""
FULL_STATES = frozenset(("53100", "53200", "53400"))


def load_statements() -> dict[str, str]:
    """The statements of the files beside this one, by their names."""
    folder, found = resources.files("treadle.stores.postgres"), dict[str, str]()
    for file in (entry for entry in folder.iterdir() if entry.name.endswith(".sql")):
        parts = re.split(r"^-- name: (\w+)\n", file.read_text(), flags=re.MULTILINE)
        found |= {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    return found


SQL = load_statements()


def redact_url(url: str) -> str:
    """The URL as it may be shown: without the password."""
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1***", re.sub(r"^(\w+:(?://)?[^:@/?]*):.*@", r"\1@", url))


async def connect(url: str, schema: str = SCHEMA, more: Mapping[str, str] | None = None) -> PostgresConnection:
    """A connection to a server that is fit to be used, or a StoreError that says why not and what to do."""
    if re.match(r"\w+://[^/?#]*@[^/?#]*@", url):  # the driver would take the rest of a password for a host
        raise explain_bad_url(None, url)
    try:
        settings = {**SETTINGS, "search_path": f"{schema}, public", **(more or {})}
        connection = await open_connection(url, CONNECT_SECONDS, settings)
    except (ValueError, OverflowError) as error:  # asyncpg's own for a URL that it cannot read; a port too high
        raise explain_bad_url(error, url) from error
    except DRIVER_ERRORS as error:
        raise explain(error, url) from error
    version = connection.get_server_version()
    if version.major < MIN_SERVER_VERSION:
        await connection.close()
        raise StoreError(
            f"The server at {redact_url(url)} is PostgreSQL {version.major}; Treadle needs {MIN_SERVER_VERSION} or newer. "
            "Upgrade the server, or name another in TREADLE_DATABASE_URL."
        )
    try:
        await connection.execute(ENSURE_DURABLE_COMMITS)
    except DRIVER_ERRORS as error:
        connection.terminate()
        raise explain(error, url) from error
    except BaseException:  # nobody waits for it any more
        connection.terminate()
        raise
    return connection


def explain_bad_url(error: Exception | None, url: str) -> UsageError:
    """What a URL that is none is called. Python's own words for it would show the part of a password behind a sign
    that must not stand in one; those of the driver do not."""
    why = f" ({error})" if isinstance(error, InterfaceError) else ""
    return UsageError(
        f"`{redact_url(url)}` is not a database URL{why}; accepted: postgresql://USER:PASSWORD@HOST:PORT/DATABASE. In a "
        "password write / as %2F, ? as %3F, # as %23 and @ as %40, or set PGPASSWORD."
    )


def get_sqlstate(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection is of no use any more, and it is not known what was done on it last."""
    state = get_sqlstate(error)
    return (
        isinstance(error, (*CONNECTION_ERRORS, StoreAway)) or state in UNAVAILABLE_STATES or state.startswith("08")
    )


def is_transient(error: BaseException) -> bool:
    """Whether the same may well succeed a moment later."""
    passing = LOCKED_STATES | CONFLICT_STATES | FULL_STATES
    return is_connection_lost(error) or isinstance(error, StoreLocked | StoreFull) or get_sqlstate(error) in passing


def explain(error: BaseException, url: str) -> StoreError:
    """A database error in words a person can act on."""
    where, state = redact_url(url), get_sqlstate(error)
    if isinstance(error, StoreError):
        return error
    if state.startswith("28"):
        return StoreError(
            f"{where} does not let us in: {error}. Check the user and the password in TREADLE_DATABASE_URL."
        )
    if state == "3D000":
        name = re.search(r'"([^"]+)"', str(error))  # where the URL names none, it is that of the user
        return StoreError(f"There is no such database: {where}. Make it with: createdb {name[1] if name else ''}")
    if state == "42501":
        return explain_missing_rights(str(error), url)
    if is_connection_lost(error):
        return StoreAway(
            f"The PostgreSQL server at {where} cannot be reached: {_describe(error)}. Start it, or check "
            "TREADLE_DATABASE_URL; what was acknowledged is safe, and work under way goes on when it is back."
        )
    if state in FULL_STATES:
        return StoreFull(f"{where} has no room left: {error}. Free some; what was acknowledged is safe.")
    if state in LOCKED_STATES | CONFLICT_STATES:
        return StoreLocked(
            f"{where} keeps us waiting: {error}. Somebody else holds a lock in it, or it is overloaded; look at "
            "pg_stat_activity, and try again."
        )
    return StoreError(f"The database {where} failed: {type(error).__name__}: {error}")


def explain_missing_rights(why: str, url: str) -> StoreError:
    return StoreError(
        f"The user of {redact_url(url)} may not do this: {why.rstrip('.')}. Make it the owner of the database, or of "
        f"the schema {SCHEMA} in it."
    )


def explain_newer_schema(url: str, found: int, known: int) -> StoreNewer:
    return StoreNewer(
        f"The database {redact_url(url)} was written by a newer Treadle (format {found}; this one knows {known}). "
        "Install that version, or point TREADLE_DATABASE_URL at another database. Nothing was changed."
    )


def _describe(error: BaseException) -> str:
    return str(error) or ("it does not answer" if isinstance(error, TimeoutError) else type(error).__name__)


# ── Text ───────────────────────────────────────────────────────────────────────────────────────────

ESCAPE = "\x1a"
_JSON_ESCAPE = re.compile(rb"\\(?:u0000|u001a|.)", re.DOTALL)
_ESCAPED = {rb"\u0000": rb"\u001a0", rb"\u001a": rb"\u001a\u001a"}


def escape_nul(text: str) -> str:
    """The text without NUL, which PostgreSQL cannot hold; `restored` is the inverse."""
    if "\x00" in text or ESCAPE in text:
        return text.replace(ESCAPE, ESCAPE * 2).replace("\x00", f"{ESCAPE}0")
    return text


def escape_nul_json(written: bytes) -> bytes:
    """The same for all texts in JSON."""
    if b"\\u00" in written:
        return _JSON_ESCAPE.sub(lambda found: _ESCAPED.get(found[0], found[0]), written)
    return written


def unescape_nul(text: str) -> str:
    if ESCAPE in text:
        return re.sub(f"{ESCAPE}([{ESCAPE}0])", lambda found: ESCAPE if found[1] == ESCAPE else "\x00", text)
    return text
