"""Connections to a PostgreSQL server, and errors that say what failed and what to do."""

import re
import ssl
from collections.abc import Mapping
from importlib import resources

from treadle.domain.errors import StoreAway, StoreError, StoreFull, StoreLocked, UsageError
from treadle.stores.postgres.driver import (
    InterfaceError,
    InternalClientError,
    PostgresConnection,
    PostgresError,
    open_connection,
)

SCHEMA = "treadle"
"""Treadle has a schema of its own, because the database may be shared."""
MIN_SERVER_VERSION = 14
"""The oldest PostgreSQL that supports all statements."""
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 30.0
LOCK_SECONDS = 5.0
SETTINGS = {
    "application_name": "treadle",
    "search_path": f"{SCHEMA}, public",
    "statement_timeout": f"{STATEMENT_SECONDS:.0f}s",
    "lock_timeout": f"{LOCK_SECONDS:.0f}s",
    "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS:.0f}s",
    "jit": "off",  # compilation takes longer than any statement here
}
WRITER_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
}
"""Settings of the writer, which reads rows by key with the same few statements: no statement is planned twice, no
plan made for a small table scans a large one, and rows are locked in key order."""
ENSURE_DURABLE_COMMITS = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""
"""An acknowledged commit is on disk whatever the server's default. Synchronous standbys stay synchronous."""
SHOW_SESSION = "SELECT current_setting('synchronous_commit'), current_setting('search_path'), pg_backend_pid()"
UNSAFE_COMMITS = frozenset(("off", "local"))
LOST_STATEMENT_STATES = frozenset(("26000", "42P05"))
"""A prepared statement is unknown, or another client's: a pooler changes the connection between statements."""

CONNECTION_ERRORS = (OSError, TimeoutError, InterfaceError, InternalClientError)
"""The server is unreachable, or the outcome of the last statement is unknown."""
DRIVER_ERRORS = (*CONNECTION_ERRORS, PostgresError)
"""All exceptions that the driver raises."""
UNAVAILABLE_STATES = frozenset(("57P01", "57P02", "57P03", "57P05", "53300", "25006", "25P03"))
"""The server is shutting down, starting up or out of connections, closed this connection, or is a read-only
standby."""
LOCKED_STATES = frozenset(("55P03", "57014"))
CONFLICT_STATES = frozenset(("40001", "40P01"))
"""Serialization failure or deadlock: the server aborted this transaction in favour of another."""
FULL_STATES = frozenset(("53100", "53200", "53400"))


def load_statements() -> dict[str, str]:
    """Return the named statements of the .sql files of this package."""
    folder, found = resources.files("treadle.stores.postgres"), dict[str, str]()
    for file in (entry for entry in folder.iterdir() if entry.name.endswith(".sql")):
        parts = re.split(r"^-- name: (\w+)\n", file.read_text(), flags=re.MULTILINE)
        found |= {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    return found


SQL = load_statements()


def redact_url(url: str) -> str:
    """Return the URL without its password."""
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1***", re.sub(r"^(\w+:(?://)?[^:@/?]*):.*@", r"\1@", url))


async def connect(url: str, schema: str = SCHEMA, more: Mapping[str, str] | None = None) -> PostgresConnection:
    """Return a connection to a supported server. Raise StoreError with the cause and the remedy."""
    if re.match(r"\w+://[^/?#]*@[^/?#]*@", url):  # the driver would treat part of the password as the host
        raise explain_bad_url(None, url)
    try:
        connection = await open_connection(url, CONNECT_SECONDS, {})
    except (ValueError, OverflowError) as error:  # asyncpg raises these for a malformed URL or a port out of range
        raise explain_bad_url(error, url) from error
    except DRIVER_ERRORS as error:
        raise explain(error, url) from error
    version = connection.get_server_version()
    if version.major < MIN_SERVER_VERSION:
        await connection.close()
        raise StoreError(
            f"The server at {redact_url(url)} is PostgreSQL {version.major}, but Treadle needs "
            f"{MIN_SERVER_VERSION} or newer. Upgrade the server, or name another one in TREADLE_DATABASE_URL."
        )
    try:
        await set_up(connection, url, {"search_path": f"{schema}, public", **(more or {})})
    except DRIVER_ERRORS as error:
        connection.terminate()
        raise explain(error, url) from error
    except BaseException:  # the caller was cancelled, or the connection cannot be used
        connection.terminate()
        raise
    return connection


async def set_up(connection: PostgresConnection, url: str, more: Mapping[str, str] | None = None) -> None:
    """Apply the settings of a new connection, after connecting: poolers refuse most settings before. Raise
    StoreError unless commits are durable and the settings last."""
    settings = {**SETTINGS, **(more or {})}
    changes = "; ".join(f"SET {name} = {value}" for name, value in map(_quote_setting, settings.items()))
    await connection.execute(changes)
    await connection.execute(ENSURE_DURABLE_COMMITS)
    [(commits, path, _)] = await connection.fetch(SHOW_SESSION, timeout=STATEMENT_SECONDS)
    if path != settings["search_path"]:
        raise explain_transaction_pooling(url)
    if commits in UNSAFE_COMMITS:
        raise StoreError(
            f"{redact_url(url)} does not make commits durable: synchronous_commit is `{commits}` and cannot be set "
            "to `on`. Allow the user to set it, or turn it on for the database: ALTER DATABASE NAME SET "
            "synchronous_commit = on"
        )


def _quote_setting(setting: tuple[str, str]) -> tuple[str, str]:
    name, value = setting
    if name == "search_path":  # a list of names, not one name with a comma in it
        return name, value
    return name, "'" + value.replace("'", "''") + "'"


def explain_transaction_pooling(url: str) -> StoreError:
    return StoreError(
        f"{redact_url(url)} is a pooler in transaction or statement mode, but Treadle needs connections that keep "
        "their settings, locks and notifications. Set pool_mode = session for this database, or connect to "
        "PostgreSQL directly."
    )


async def refuse_transaction_pooling(connection: PostgresConnection, url: str) -> None:
    """Raise StoreError if a pooler gives the server connection of a client to others between its transactions.

    A pooler invents the process id that it reports to a client. Without a pooler nothing else is tried."""
    [(_, path, pid)] = await connection.fetch(SHOW_SESSION, timeout=STATEMENT_SECONDS)
    if pid == connection.get_server_pid():
        return
    other = await connect(url)
    try:
        await other.execute("BEGIN")  # it takes the connection that is free, if there is one
        [(_, _, taken)] = await other.fetch(SHOW_SESSION, timeout=STATEMENT_SECONDS)
        [(_, now, mine)] = await connection.fetch(SHOW_SESSION, timeout=STATEMENT_SECONDS)
        if taken == pid or mine != pid or now != path:
            raise explain_transaction_pooling(url)
        await other.execute("ROLLBACK")
    except PostgresError as error:
        if get_sqlstate(error).startswith("08"):  # a pooler in statement mode refuses transactions
            raise explain_transaction_pooling(url) from error
        raise
    finally:
        other.terminate()


def explain_bad_url(error: Exception | None, url: str) -> UsageError:
    """Return the error for a malformed URL. It includes the driver's message but not Python's, which could show
    part of a password that contains a reserved character."""
    if isinstance(error, InterfaceError) and "certificate" in str(error):
        return UsageError(
            f"{redact_url(url)}: the CA certificate is missing: {error}. Set sslrootcert to its file."
        )
    why = f" ({error})" if isinstance(error, InterfaceError) else ""
    return UsageError(
        f"`{redact_url(url)}` is not a database URL{why}; accepted: "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE. In a password, write / as %2F, ? as %3F, # as %23 and @ as "
        "%40, or set PGPASSWORD."
    )


def get_sqlstate(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the connection is unusable and the outcome of its last statement unknown."""
    state = get_sqlstate(error)
    return (
        isinstance(error, (*CONNECTION_ERRORS, StoreAway)) or state in UNAVAILABLE_STATES or state.startswith("08")
    )


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may well succeed."""
    passing = LOCKED_STATES | CONFLICT_STATES | FULL_STATES
    return is_connection_lost(error) or isinstance(error, StoreLocked | StoreFull) or get_sqlstate(error) in passing


def explain(error: BaseException, url: str) -> StoreError:
    """Return a database error as a StoreError with the cause and the remedy."""
    where, state = redact_url(url), get_sqlstate(error)
    if isinstance(error, StoreError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreError(
            f"The certificate of {where} is not trusted: {error.verify_message}. Set sslrootcert to the CA that "
            "signed it, and connect to a host name that it contains."
        )
    if isinstance(error, ssl.SSLError):
        return StoreError(
            f"The encrypted connection to {where} failed: {error.reason or error}. Check that sslrootcert, sslcert "
            "and sslkey are PEM files, and that the server accepts this version of TLS."
        )
    if state in LOST_STATEMENT_STATES:
        return explain_transaction_pooling(url)
    if state == "25006":
        return StoreAway(
            f"The PostgreSQL server at {where} accepts no writes: {error}. It is a standby, or "
            "default_transaction_read_only is on. Connect to the primary, or turn that off. Acknowledged work is "
            "safe."
        )
    if state.startswith("28"):
        return StoreError(
            f"{where} rejected the connection: {error}. Check the user and the password in TREADLE_DATABASE_URL."
        )
    if state == "3D000":
        name = re.search(r'"([^"]+)"', str(error))  # without a name in the URL it is the name of the user
        return StoreError(f"There is no such database: {where}. Create it with: createdb {name[1] if name else ''}")
    if state == "42501":
        return explain_missing_rights(str(error), url)
    if is_connection_lost(error):
        return StoreAway(
            f"The PostgreSQL server at {where} cannot be reached: {_describe(error)}. Start it, or check "
            "TREADLE_DATABASE_URL. Acknowledged work is safe, and runs in progress resume when the server is back."
        )
    if state in FULL_STATES:
        return StoreFull(f"{where} is out of space: {error}. Free some space. Acknowledged work is safe.")
    if state in LOCKED_STATES | CONFLICT_STATES:
        return StoreLocked(
            f"{where} timed out: {error}. Another client holds a lock, or the server is overloaded. Check "
            "pg_stat_activity and try again."
        )
    return StoreError(f"The database {where} failed: {type(error).__name__}: {error}")


def explain_missing_rights(why: str, url: str) -> StoreError:
    return StoreError(
        f"The user of {redact_url(url)} lacks a privilege: {why.rstrip('.')}. Make the user the owner of the "
        f"database, or of its schema {SCHEMA}."
    )


def _describe(error: BaseException) -> str:
    return str(error) or ("no answer" if isinstance(error, TimeoutError) else type(error).__name__)


# ── Text ───────────────────────────────────────────────────────────────────────────────────────────

ESCAPE = "\x1a"
_JSON_ESCAPE = re.compile(rb"\\(?:u0000|u001a|.)", re.DOTALL)
_ESCAPED = {rb"\u0000": rb"\u001a0", rb"\u001a": rb"\u001a\u001a"}


def escape_nul(text: str) -> str:
    """Return the text without NUL, which PostgreSQL cannot store. `unescape_nul` is the inverse."""
    if "\x00" in text or ESCAPE in text:
        return text.replace(ESCAPE, ESCAPE * 2).replace("\x00", f"{ESCAPE}0")
    return text


def escape_nul_json(written: bytes) -> bytes:
    """Apply `escape_nul` to all texts in a JSON document."""
    if b"\\u00" in written:
        return _JSON_ESCAPE.sub(lambda found: _ESCAPED.get(found[0], found[0]), written)
    return written


def unescape_nul(text: str) -> str:
    if ESCAPE in text:
        return re.sub(f"{ESCAPE}([{ESCAPE}0])", lambda found: ESCAPE if found[1] == ESCAPE else "\x00", text)
    return text
