"""A batch of operations: the arguments of the SQL function `write_all`, and its results."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.envelope import VERSION, Draft, Origin
from treadle.domain.errors import RunDeleted, SessionDeleted, UnknownRun
from treadle.domain.ids import Instant, RunId
from treadle.domain.quotas import QuotaKind, Shortage, find_known_amount
from treadle.domain.time_format import format_minute
from treadle.stores.postgres.connection import escape_nul_json
from treadle.stores.reservations import find_reset_time

Header = dict[str, Any]
_encode = msgspec.json.Encoder().encode


class PlainAdvance(Struct, frozen=True, gc=False):
    """An advance that only appends events, as most do. All plain advances of a batch are written at once."""

    run_id: str
    number: int
    """The number of the run in the database."""
    epoch: int
    seen: int
    facts: int
    intents: int

    @property
    def events(self) -> int:
        return self.facts + self.intents

    def header(self) -> Header:
        """Return the equivalent general header, for a batch that contains several operations of the run."""
        names = ("epoch", "seen", "facts", "intents", "events")
        return {"do": "advance", "run": self.run_id, **{name: getattr(self, name) for name in names}}


@dataclass(slots=True)
class BatchOperation:
    """One pending verb: its header, its events, and what must be locked for it."""

    header: bytes
    drafts: Sequence[Draft]
    plain: PlainAdvance | None = None
    said: bytes | None = None
    """The messages that a run that ends adds to its session."""
    runs: Sequence[str] = ()
    """Runs that it changes."""
    turns: Sequence[str] = ()
    """Runs whose sessions are locked meanwhile."""
    ends: Sequence[str] = ()
    places: Sequence[str] = ()
    """Runs that count against a concurrency limit, or stop doing so."""
    sessions: Sequence[str] = ()
    """Sessions that it adds a run to."""
    agents: Sequence[str] = ()
    """Agents with a concurrency limit that it adds a run to."""
    keys: Sequence[str] = ()
    """Submission keys."""
    accounts: Sequence[str] = ()
    settling: Sequence[str] = ()
    """Runs whose reservations are settled."""


def encode_header(header: Header) -> bytes:
    """Return the header as it is sent. Raise UnicodeEncodeError if text cannot be stored."""
    return escape_nul_json(_encode(header))


_LOCK_KINDS = ("runs", "turns", "ends", "places", "sessions", "agents", "keys", "accounts", "settling")


def order_operations(operations: Sequence[BatchOperation]) -> tuple[list[int], int]:
    """Return the indexes of the operations in the order in which they are sent, and how many of the first are
    plain. Plain advances are sorted in the order in which runs are locked. An operation on the same run as another
    keeps its position."""
    runs = Counter([run for operation in operations for run in operation.runs])
    plains = [(at, each.plain) for at, each in enumerate(operations) if each.plain is not None]
    first = [at for _, at in sorted([(each.number, at) for at, each in plains if runs[each.run_id] == 1])]
    return [*first, *sorted(set(range(len(operations))).difference(first))], len(first)


def build_arguments(operations: Sequence[BatchOperation], plain: int, now: Instant | None) -> tuple[Any, ...]:
    """Return the arguments of `write_all` from the third on. The first `plain` operations are plain."""
    drafts = [draft for operation in operations for draft in operation.drafts]
    said = [operation.said for operation in operations if operation.said is not None]
    plains = [operation.plain for operation in operations[:plain] if operation.plain is not None]
    return (
        [each.run_id for each in plains],
        [each.number for each in plains],
        [each.epoch for each in plains],
        [each.seen for each in plains],
        [each.facts for each in plains],
        [each.intents for each in plains],
        _join_headers(operations[plain:]),
        _encode_locks(operations[plain:], plain),
        [draft.event_id for draft in drafts],
        [draft.timestamp for draft in drafts],
        [draft.type for draft in drafts],
        [draft.raw for draft in drafts],
        [each.number for each in plains for _ in range(each.events)],
        [each.seen + number for each in plains for number in range(1, each.events + 1)],
        said,
        VERSION,
        now,
    )


def _join_headers(operations: Sequence[BatchOperation]) -> str:
    parts, said = list[bytes](), 0
    for operation in operations:
        if operation.plain is not None:
            parts.append(encode_header(operation.plain.header()))
        elif operation.said is None:
            parts.append(operation.header)
        else:  # the index of its messages among those of the batch
            said += 1
            parts.append(b'%b,"said":%d}' % (operation.header[:-1], said))
    return f"[{b','.join(parts).decode()}]"


def _encode_locks(operations: Sequence[BatchOperation], plain: int) -> str:
    if not operations:
        return "{}"  # plain advances lock their runs when they are written
    if not plain and len(operations) == 1 and not any(getattr(operations[0], name) for name in _LOCK_KINDS[1:]):
        return "{}"  # the operation locks its own run
    wanted: dict[str, list[str]] = {}
    for name in _LOCK_KINDS:
        if found := {each for operation in operations for each in getattr(operation, name)}:
            wanted[name] = sorted(found)
    if not wanted.keys().isdisjoint(("turns", "places", "sessions", "keys")):
        wanted.setdefault("runs", [])
    if "settling" in wanted:
        wanted.setdefault("accounts", [])
    return escape_nul_json(_encode(wanted)).decode()


# ── Results ────────────────────────────────────────────────────────────────────────────────────────


class AccountStanding(Struct, frozen=True):
    """A `Short` as the database reports it."""

    account: str
    kind: QuotaKind
    ceiling: float
    used: float
    reserved: float
    wants: float
    buckets: tuple[tuple[int, int], ...] | None = None
    """The amounts used within the window, per bucket; None without a window."""

    def to_shortage(self) -> Shortage:
        resets_at = None
        if self.buckets is not None:
            excess = self.used + self.reserved + self.wants - self.ceiling
            resets_at = find_reset_time(self.kind, self.buckets, excess)
        values = self.account, self.kind, self.ceiling, self.used, self.reserved
        return Shortage(*values, find_known_amount(self.wants), resets_at)


OriginRow = tuple[str, str, str, str | None]
DeletionRow = tuple[str | None, float | None, str | None]
"""A session, when it was deleted, and by whom."""


class BatchResult(Struct, frozen=True):
    """The result of one operation. Which fields are set depends on the verb."""

    gone: DeletionRow | None = None
    """The run does not exist."""
    buried: DeletionRow | None = None
    """The session was deleted."""
    taken: str | None = None
    """The session that a run was submitted to belongs to another owner."""
    continued: str | None = None
    """The session that a run was submitted to has a later run than the one that the new run follows."""
    fenced: int | None = None
    """The current epoch of the run."""
    not_claimable: str | None = None
    no_place: int | None = None
    """The number of other owned runs of the agent, which reached its concurrency limit."""
    closed: bool = False
    """The approval is no longer open."""
    existing: str | None = None
    """The run that was submitted earlier with this key."""
    accepted: bool = False
    sequence: int | None = None
    before: int = 0
    """The sequence of the run before the advance."""
    refused: AccountStanding | None = None
    near: tuple[AccountStanding, ...] = ()
    woken: tuple[str, float | None] | None = None
    """The run to poll next, and when; None means now."""
    following: tuple[str, ...] = ()
    """Runs of the agent that the concurrency limit no longer blocks."""
    told: "tuple[BatchResult, ...]" = ()
    new: bool = False
    """The event was not delivered before."""
    origin: OriginRow | None = None
    epoch: int = 0
    lost: str | None = None
    """The worker that died while it owned the run."""
    counted: int = 0
    id: int = 0
    last: int | None = None
    """The number of the previous run that added messages to the session."""
    opening: tuple[tuple[int, str, float, str, int, str], ...] | None = None
    """The events of a run that has just started, as `to_event` takes them, with the last field in hexadecimal."""


_decode = msgspec.json.Decoder(tuple[BatchResult | bool, ...]).decode


def decode_results(operations: Sequence[BatchOperation], written: str) -> list[BatchResult]:
    """Decode the result of `write_all`. For a plain advance that succeeded it only reports success."""
    decoded = _decode(written)
    return [
        answer if isinstance(answer, BatchResult) else _accept_plain(operation.plain)
        for operation, answer in zip(operations, decoded, strict=True)
    ]


def _accept_plain(plain: PlainAdvance | None) -> BatchResult:
    assert plain is not None
    return BatchResult(accepted=True, sequence=plain.seen + plain.events, before=plain.seen)


def to_origin(origin_row: OriginRow) -> Origin:
    return Origin(*origin_row)  # pyright: ignore[reportArgumentType] -- ids are text in the database


def explain_missing_run(run_id: RunId, deletion: DeletionRow) -> UnknownRun:
    """Return the error for a run that does not exist: it is unknown, or it was deleted."""
    session_id, at, by = deletion
    if session_id is None or at is None:
        return UnknownRun(f"There is no run {run_id} in this database. `treadle runs list` shows all runs.")
    return RunDeleted(
        f"{run_id} was deleted with its session {session_id} on {format_minute(at)} by {by}. Its data was removed."
    )


def explain_deleted_session(deletion: DeletionRow) -> SessionDeleted:
    """Return the error for a session that was deleted and cannot be used again."""
    session_id, at, by = deletion
    when = "" if at is None else f" on {format_minute(at)} by {by}"
    return SessionDeleted(f"{session_id} was deleted{when}. Start another session.")
