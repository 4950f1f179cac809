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
from treadle.stores.postgres.connection import storable_json
from treadle.stores.reservations import frees_at

Op = dict[str, Any]
_encode = msgspec.json.Encoder().encode


class Plain(Struct, frozen=True, gc=False):
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

    def header(self) -> Op:
        """The same as one of the others, for what asks for more, or is not the only one of its run in a batch."""
        names = ("epoch", "seen", "facts", "intents", "events")
        return {"do": "advance", "run": self.run_id, **{name: getattr(self, name) for name in names}}


@dataclass(slots=True)
class Operation:
    """One verb on its way: its header, the events that go with it, and what must be locked for it."""

    header: bytes
    drafts: Sequence[Draft]
    plain: Plain | None = None
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


def encoded(header: Op) -> bytes:
    """The header as it is sent. Raises UnicodeEncodeError for text that cannot be stored."""
    return storable_json(_encode(header))


_LOCKED = ("runs", "turns", "ends", "places", "sessions", "agents", "keys", "accounts", "settling")


def in_order(operations: Sequence[Operation]) -> tuple[list[int], int]:
    """The places of the operations as they are sent, and how many of them, at the beginning, are plain. Those are
    in the order in which runs are locked. What touches the same run as another is done in its turn."""
    runs = Counter([run for operation in operations for run in operation.runs])
    plains = [(at, each.plain) for at, each in enumerate(operations) if each.plain is not None]
    first = [at for _, at in sorted([(each.number, at) for at, each in plains if runs[each.run_id] == 1])]
    return [*first, *sorted(set(range(len(operations))).difference(first))], len(first)


def arguments(operations: Sequence[Operation], plain: int, now: Instant | None) -> tuple[Any, ...]:
    """What `write_all` is called with, from the third on; so many of them at the beginning are plain."""
    drafts = [made for operation in operations for made in operation.drafts]
    said = [operation.said for operation in operations if operation.said is not None]
    plains = [operation.plain for operation in operations[:plain] if operation.plain is not None]
    return (
        [each.run_id for each in plains],
        [each.number for each in plains],
        [each.epoch for each in plains],
        [each.seen for each in plains],
        [each.facts for each in plains],
        [each.intents for each in plains],
        _joined(operations[plain:]),
        _locks(operations[plain:], plain),
        [made.event_id for made in drafts],
        [made.timestamp for made in drafts],
        [made.type for made in drafts],
        [made.raw for made in drafts],
        [each.number for each in plains for _ in range(each.events)],
        [each.seen + number for each in plains for number in range(1, each.events + 1)],
        said,
        VERSION,
        now,
    )


def _joined(operations: Sequence[Operation]) -> str:
    parts, said = list[bytes](), 0
    for operation in operations:
        if operation.plain is not None:
            parts.append(encoded(operation.plain.header()))
        elif operation.said is None:
            parts.append(operation.header)
        else:  # which of all that is said is this one's
            said += 1
            parts.append(b'%b,"said":%d}' % (operation.header[:-1], said))
    return f"[{b','.join(parts).decode()}]"


def _locks(operations: Sequence[Operation], plain: int) -> str:
    if not operations:
        return "{}"  # what is plain is locked as it is done
    if not plain and len(operations) == 1 and not any(getattr(operations[0], name) for name in _LOCKED[1:]):
        return "{}"  # it locks its run by itself
    wanted: dict[str, list[str]] = {}
    for name in _LOCKED:
        if found := {each for operation in operations for each in getattr(operation, name)}:
            wanted[name] = sorted(found)
    if not wanted.keys().isdisjoint(("turns", "places", "sessions", "keys")):
        wanted.setdefault("runs", [])
    if "settling" in wanted:
        wanted.setdefault("accounts", [])
    return storable_json(_encode(wanted)).decode()


# ── Answers ────────────────────────────────────────────────────────────────────────────────────────


class Standing(Struct, frozen=True):
    """A `Short`, as the database sees it."""

    account: str
    kind: QuotaKind
    ceiling: float
    used: float
    reserved: float
    wants: float
    buckets: tuple[tuple[int, int], ...] | None = None
    """What was used within the window, bucket by bucket; None: there is no window."""

    def short(self) -> Short:
        resets_at = None
        if self.buckets is not None:
            excess = self.used + self.reserved + self.wants - self.ceiling
            resets_at = frees_at(self.kind, self.buckets, excess)
        values = self.account, self.kind, self.ceiling, self.used, self.reserved, self.wants
        return Short(*values, resets_at)


Whose = tuple[str, str, str, str | None]
Grave = tuple[str | None, float | None, str | None]
"""A session, when it was deleted and by whom."""


class BatchResult(Struct, frozen=True):
    """What became of one operation. Which fields are set depends on the verb."""

    gone: Grave | None = None
    """There is no such run."""
    buried: Grave | None = None
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
    refused: Standing | None = None
    near: tuple[Standing, ...] = ()
    woken: tuple[str, float | None] | None = None
    """Which run to look at next, and when; None: now."""
    following: tuple[str, ...] = ()
    """Runs of its agent for which there is a place now."""
    told: "tuple[BatchResult, ...]" = ()
    new: bool = False
    """The delivery was not there before."""
    origin: Whose | None = None
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


def answers_to(operations: Sequence[Operation], written: str) -> list[BatchResult]:
    """What `write_all` has answered. To what is plain and was done it says only that."""
    decoded = _decode(written)
    return [
        answer if isinstance(answer, BatchResult) else _moved(operation.plain)
        for operation, answer in zip(operations, decoded, strict=True)
    ]


def _moved(plain: Plain | None) -> BatchResult:
    assert plain is not None
    return BatchResult(accepted=True, sequence=plain.seen + plain.events, before=plain.seen)


def origin_of(whose: Whose) -> Origin:
    return Origin(*whose)  # pyright: ignore[reportArgumentType] -- ids are text in the database


def gone(run_id: RunId, grave: Grave) -> UnknownRun:
    """Why there is no such run: nobody knows of it, or it was deleted."""
    session_id, at, by = grave
    if session_id is None or at is None:
        return UnknownRun(f"There is no run {run_id} in this database. `treadle runs list` shows those there are.")
    return RunDeleted(
        f"{run_id} was deleted with its session {session_id} on {minute(at)} by {by}: nothing of it is left."
    )


def session_deleted(grave: Grave) -> SessionDeleted:
    """For a session that was deleted: it is not begun again."""
    session_id, at, by = grave
    when = "" if at is None else f" on {minute(at)} by {by}"
    return SessionDeleted(f"{session_id} was deleted{when}: nothing of it is left. Begin another session.")
