"""The tables to migrate, how a SQLite row becomes a PostgreSQL row, and how the two are compared."""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.stores.postgres.connection import escape_nul
from treadle.stores.postgres.driver import to_bit_string

Row = tuple[Any, ...]
_encode = msgspec.msgpack.Encoder().encode


def _escape_text(value: Any) -> Any:
    return escape_nul(value) if isinstance(value, str) else value


def _normalize_vector(in_bytes: bytes) -> list[float]:
    """Return a vector of length 1 from one with a byte per number."""
    numbers = array("b", in_bytes)
    length = math.hypot(*numbers) or 1.0
    return list(array("f", [number / length for number in numbers]))


class MigratedTable(Struct, frozen=True):
    """One table and its columns, which have the same names on both sides unless `source` says otherwise."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """The order in which rows are read from SQLite, and from which a migration resumes."""
    identity: str | None = None
    """The column that PostgreSQL numbers automatically."""
    source: Mapping[str, str] = {}
    """SQLite expressions for columns that have another name there or are not stored."""
    converters: Mapping[str, Callable[[Any], Any]] = {}
    """Conversion of the values of a column."""

    def convert(self, row: Sequence[Any]) -> Row:
        """Return a SQLite row, which starts with its key, as PostgreSQL stores it."""
        values = zip(self.columns, row[len(self.key) :], strict=True)
        return tuple([self.converters.get(column, _escape_text)(value) for column, value in values])

    def select_rows(self, where: str = "") -> str:
        """Return the statement that reads the SQLite rows in order, each preceded by its key."""
        columns = [*self.key, *(self.source.get(column, column) for column in self.columns)]
        return f"SELECT {', '.join(columns)} FROM {self.name} {where} ORDER BY {', '.join(self.key)}"  # noqa: S608 -- constant names

    @property
    def select_rows_after_key(self) -> str:
        """Return the statement that reads the rows after a key."""
        return self.select_rows(f"WHERE ({', '.join(self.key)}) > ({', '.join('?' * len(self.key))})")

    @property
    def select_count(self) -> str:
        return f"SELECT count(*) FROM {self.name}"  # noqa: S608 -- constant names

    @property
    def select_all(self) -> str:
        """Return the statement that reads all rows from PostgreSQL, in any order."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name}"  # noqa: S608 -- constant names


def _table(name: str, columns: str, key: str, **more: Any) -> MigratedTable:
    return MigratedTable(name, tuple(columns.split()), tuple(key.split()), **more)


LAST_SEQUENCE = "(SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.id)"
TABLES = (
    _table("agents", "agent_id name state", "agent_id"),
    _table("agent_versions", "agent number text at author origin restored", "agent number"),
    _table("agent_labels", "agent label number at author", "agent label"),
    _table("shared_skills", "name sha256 files at author", "name"),
    _table(
        "runs",
        "id run_id session_id agent_id parent_run_id submission_key created_at status outcome waiting_for sequence "
        "epoch worker lease_until wake_at counted places owner lost_worker title session_model session_mode "
        "workspace folder",
        "id",
        identity="id",
        source={"sequence": LAST_SEQUENCE},
    ),
    _table("events", "position run sequence event_id timestamp type version data", "position", identity="position"),
    _table("deliveries", "run key sequence", "run key"),
    _table("deaths", "worker runs at run", "worker"),
    _table("evaluations", "evaluation_id name ended_at summary content", "evaluation_id"),
    _table("feedback", "feedback_id run author score note at", "feedback_id"),
    _table("run_summaries", "run message cost tokens steps duration_ms labels facts", "run"),
    _table("run_labels", "key value run owner", "key value run"),
    _table("said", "session_id run messages whole", "session_id run", converters={"whole": bool}),
    _table(
        "approvals",
        "approval_id run call_id tool arguments reason pattern requested_at expires_at decision",
        "approval_id",
    ),
    _table("grants", "session_id workspace tool pattern run", "session_id workspace tool pattern run"),
    _table("results", "id session_id run call_id content", "id", identity="id"),
    _table("segments", "id segment_id session_id parent run reason messages opened_at", "id", identity="id"),
    _table("session_notes", "session_id workspace notes", "session_id"),
    _table(
        "memories",
        "id memory_id agent_id kind text digest created_at source used_at uses pinned session_id run_id owner "
        "workspace",
        "id",
        identity="id",
        converters={"pinned": bool},
    ),
    _table("memory_spaces", "id agent_id owner embedder dimensions done_to", "id", identity="id"),
    _table("memory_codes", "space memory code", "space memory", converters={"code": to_bit_string}),
    _table(
        "memory_vectors",
        "space memory numbers",
        "space memory",
        source={"numbers": "bytes"},
        converters={"numbers": _normalize_vector},
    ),
    _table(
        "tokens",
        "token_id name digest scopes agents quotas created_at expires_at revoked_at owner visibility multi_user "
        "last_used_at",
        "token_id",
        converters={"multi_user": bool},
    ),
    _table("sign_ins", "sign_in_id digest token_id created_at used_at", "sign_in_id"),
    _table("requests", "token_id route key digest at status body", "token_id route key"),
    _table("accounts", "account cost credits", "account"),
    _table("windows", "account kind bucket amount", "account kind bucket"),
    _table("reservations", "account run step attempt tokens cost credits", "account run step attempt"),
    _table("warnings", "account kind ceiling at", "account kind"),
    _table(
        "usage",
        "day agent token model owner tags runs model_calls input_tokens output_tokens cache_read_tokens "
        "cache_write_tokens tool_calls cost credits unpriced_calls",
        "day agent token model owner tags",
    ),
    _table(
        "deleted_sessions",
        "session_id agent_id runs events memories first_at latest_at deleted_at deleted_by",
        "session_id",
    ),
    _table("deleted_runs", "run_id session_id", "run_id"),
    _table(
        "schedules",
        "schedule_id agent message every zone anchor next_at session_id is_heartbeat paused firing_at firing_since "
        "fired_at run_id problem owner deliver",
        "rowid",
        converters={"is_heartbeat": bool, "paused": bool},
    ),
    _table("hooks", "hook_id name agent message session created_at owner scheme", "rowid"),
    _table(
        "webhooks",
        "webhook_id url events agents created_at position most_attempts attempts first_failed_at retry_at "
        "delivered_at problem disabled",
        "rowid",
        converters={"disabled": bool},
    ),
    _table(
        "dead_letters",
        "webhook_id event_id run_id sequence type attempts reason died_at queued",
        "webhook_id event_id",
        converters={"queued": bool},
    ),
    _table("channel_people", "channel sender name owner grants added_at", "channel sender"),
    _table("channel_codes", "code channel sender name conversation expires_at owner grants", "code"),
    _table(
        "channel_conversations",
        "channel conversation session_id owner is_direct",
        "channel conversation",
        converters={"is_direct": bool},
    ),
    _table("channel_cursors", "channel cursor", "channel"),
    _table(
        "channel_inbox",
        "number channel message_id conversation received_at content state run_id",
        "number",
        identity="number",
    ),
    _table(
        "channel_outbox",
        "number channel key conversation state created_at content message_id attempts first_failed_at retry_at "
        "run_id problem",
        "number",
        identity="number",
    ),
)
"""Ordered so that each table follows the tables it references."""
NOT_MIGRATED = frozenset(("memory_words", "said_parts", "said_index", "sign_in_codes", "channel_states"))
"""Indexes, which are made again, codes that expire within minutes, and the state of connections, which the next
server records again."""


class TableChecksum:
    """The number of rows of a table, and a sum over their digests that does not depend on the order."""

    def __init__(self) -> None:
        self.rows = 0
        self._digests = 0

    def add(self, row: Sequence[Any]) -> None:
        """Add a row in the form that PostgreSQL stores."""
        written = _encode([value if isinstance(value, _PLAIN_TYPES) else _to_bytes(value) for value in row])
        self.rows += 1
        self._digests += int.from_bytes(blake2b(written, digest_size=16).digest(), "big")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableChecksum) and (self.rows, self._digests) == (other.rows, other._digests)

    __hash__ = None  # pyright: ignore[reportAssignmentType] -- mutable


_PLAIN_TYPES = str | int | float | bytes | bool | None


def _to_bytes(value: Any) -> bytes:
    return array("f", cast("list[float]", value)).tobytes() if isinstance(value, list) else value.bytes
