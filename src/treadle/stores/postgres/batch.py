"""What is asked of the database in one batch, and what it answers: what goes to `write_all` and comes back."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.envelope import VERSION, Draft, Origin
from treadle.domain.errors import RunDeleted, SessionDeleted, UnknownRun
from treadle.domain.ids import Instant, RunId
from treadle.domain.quotas import QuotaKind
from treadle.domain.time_format import minute
from treadle.ports.accounts import Short
from treadle.stores.postgres.connection import escape_nul_json
from treadle.stores.reservations import find_reset_time

Header = dict[str, Any]
_encode = msgspec.json.Encoder().encode


class PlainAdvance(Struct, frozen=True, gc=False):
    """An advance that adds events and asks for nothing else: most are. All of a batch are done at once."""

    run_id: str
    number: int
    """Of the run, in the database."""
    epoch: int
    seen: int
    facts: int
    intents: int

    @property
    def events(self) -> int:
        return self.facts + self.intents

    def header(self) -> Header:
        """The same as one of the others, for what asks for more, or is not the only one of its run in a batch."""
        names = ("epoch", "seen", "facts", "intents", "events")
        return {"do": "advance", "run": self.run_id, **{name: getattr(self, name) for name in names}}


@dataclass(slots=True)
class Operation:
    """One verb on its way: its header, the events that go with it, and what must be locked for it."""

    header: bytes
    drafts: Sequence[Draft]
    plain: PlainAdvance | None = None
    said: bytes | None = None
    """What a run that ends adds to its session."""
    runs: Sequence[str] = ()
    """Those that it changes."""
    turns: Sequence[str] = ()
    """Runs whose sessions stand still meanwhile."""
    ends: Sequence[str] = ()
    places: Sequence[str] = ()
    """Runs that have one, or leave it."""
    sessions: Sequence[str] = ()
    """Those that it adds a run to."""
    agents: Sequence[str] = ()
    """Those that it adds a run to, and that have so many places."""
    keys: Sequence[str] = ()
    """Of submissions."""
    accounts: Sequence[str] = ()
    settling: Sequence[str] = ()
    """Runs that may have something reserved, which is settled."""


def encode_header(header: Header) -> bytes:
    """The header as it is sent. Raises UnicodeEncodeError for text that cannot be stored."""
    return escape_nul_json(_encode(header))


_LOCK_KINDS = ("runs", "turns", "ends", "places", "sessions", "agents", "keys", "accounts", "settling")


def order_operations(operations: Sequence[Operation]) -> tuple[list[int], int]:
    """The places of the operations as they are sent, and how many of them, at the beginning, are plain. Those are
    in the order in which runs are locked. What touches the same run as another is done in its turn."""
    runs = Counter([run for operation in operations for run in operation.runs])
    plains = [(at, each.plain) for at, each in enumerate(operations) if each.plain is not None]
    first = [at for _, at in sorted([(each.number, at) for at, each in plains if runs[each.run_id] == 1])]
    return [*first, *sorted(set(range(len(operations))).difference(first))], len(first)


def build_arguments(operations: Sequence[Operation], plain: int, now: Instant | None) -> tuple[Any, ...]:
    """What `write_all` is called with, from the third on; so many of them at the beginning are plain."""
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


def _join_headers(operations: Sequence[Operation]) -> str:
    parts, said = list[bytes](), 0
    for operation in operations:
        if operation.plain is not None:
            parts.append(encode_header(operation.plain.header()))
        elif operation.said is None:
            parts.append(operation.header)
        else:  # which of all that is said is this one's
            said += 1
            parts.append(b'%b,"said":%d}' % (operation.header[:-1], said))
    return f"[{b','.join(parts).decode()}]"


def _encode_locks(operations: Sequence[Operation], plain: int) -> str:
    if not operations:
        return "{}"  # what is plain is locked as it is done
    if not plain and len(operations) == 1 and not any(getattr(operations[0], name) for name in _LOCK_KINDS[1:]):
        return "{}"  # it locks its run by itself
    wanted: dict[str, list[str]] = {}
    for name in _LOCK_KINDS:
        if found := {each for operation in operations for each in getattr(operation, name)}:
            wanted[name] = sorted(found)
    if not wanted.keys().isdisjoint(("turns", "places", "sessions", "keys")):
        wanted.setdefault("runs", [])
    if "settling" in wanted:
        wanted.setdefault("accounts", [])
    return escape_nul_json(_encode(wanted)).decode()


# ── Answers ────────────────────────────────────────────────────────────────────────────────────────


class AccountStanding(Struct, frozen=True):
    """A `Short`, as the database sees it."""

    account: str
    kind: QuotaKind
    ceiling: float
    used: float
    reserved: float
    wants: float
    buckets: tuple[tuple[int, int], ...] | None = None
    """What was used within the window, bucket by bucket; None: there is no window."""

    def to_short(self) -> Short:
        resets_at = None
        if self.buckets is not None:
            excess = self.used + self.reserved + self.wants - self.ceiling
            resets_at = find_reset_time(self.kind, self.buckets, excess)
        values = self.account, self.kind, self.ceiling, self.used, self.reserved, self.wants
        return Short(*values, resets_at)


OriginRow = tuple[str, str, str, str | None]
DeletionRow = tuple[str | None, float | None, str | None]
"""A session, when it was deleted and by whom."""


class BatchResult(Struct, frozen=True):
    """What became of one operation. Which fields are set depends on the verb."""

    gone: DeletionRow | None = None
    """There is no such run."""
    buried: DeletionRow | None = None
    """The session was deleted."""
    taken: str | None = None
    """The session of another owner that a run was to begin in."""
    fenced: int | None = None
    """The epoch that the run is in."""
    not_claimable: str | None = None
    no_place: int | None = None
    """So many others of its agent are owned."""
    closed: bool = False
    """The approval is not open any more."""
    existing: str | None = None
    """The run that was submitted with this key before."""
    accepted: bool = False
    sequence: int | None = None
    before: int = 0
    """The sequence of the run before an advance."""
    refused: AccountStanding | None = None
    near: tuple[AccountStanding, ...] = ()
    woken: tuple[str, float | None] | None = None
    """Which run to look at next, and when; None: now."""
    following: tuple[str, ...] = ()
    """Runs of its agent for which there is a place now."""
    told: "tuple[BatchResult, ...]" = ()
    new: bool = False
    """The delivery was not there before."""
    origin: OriginRow | None = None
    epoch: int = 0
    lost: str | None = None
    """The worker that died while it owned the run."""
    counted: int = 0
    id: int = 0
    last: int | None = None
    """The number of the run before this one that has added to the conversation."""
    opening: tuple[tuple[int, str, float, str, int, str], ...] | None = None
    """The events of a run that has only begun, as `event_of` takes them, the last field in hexadecimal."""


_decode = msgspec.json.Decoder(tuple[BatchResult | bool, ...]).decode


def decode_results(operations: Sequence[Operation], written: str) -> list[BatchResult]:
    """What `write_all` has answered. To what is plain and was done it says only that."""
    decoded = _decode(written)
    return [
        answer if isinstance(answer, BatchResult) else _accept_plain(operation.plain)
        for operation, answer in zip(operations, decoded, strict=True)
    ]


def _accept_plain(plain: PlainAdvance | None) -> BatchResult:
    assert plain is not None
    return BatchResult(accepted=True, sequence=plain.seen + plain.events, before=plain.seen)


def to_origin(whose: OriginRow) -> Origin:
    return Origin(*whose)  # pyright: ignore[reportArgumentType] -- ids are text in the database


def explain_missing_run(run_id: RunId, grave: DeletionRow) -> UnknownRun:
    """Why there is no such run: nobody knows of it, or it was deleted."""
    session_id, at, by = grave
    if session_id is None or at is None:
        return UnknownRun(f"There is no run {run_id} in this database. `treadle runs list` shows those there are.")
    return RunDeleted(
        f"{run_id} was deleted with its session {session_id} on {minute(at)} by {by}: nothing of it is left."
    )


def explain_deleted_session(grave: DeletionRow) -> SessionDeleted:
    """For a session that was deleted: it is not begun again."""
    session_id, at, by = grave
    when = "" if at is None else f" on {minute(at)} by {by}"
    return SessionDeleted(f"{session_id} was deleted{when}: nothing of it is left. Begin another session.")
