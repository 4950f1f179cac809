"""What is asked of the database in one batch, and what it answers: what goes to `write_all` and comes back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.calendar import minute
from treadle.domain.envelope import VERSION, Draft, Origin
from treadle.domain.errors import RunDeleted, SessionDeleted, UnknownRun
from treadle.domain.identity import Instant, RunId
from treadle.domain.quotas import QuotaKind
from treadle.ports.accounts import Short
from treadle.stores.postgres.connection import storable_json
from treadle.stores.reserving import frees_at

Op = dict[str, Any]
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Operation:
    """One verb on its way: its header, the events that go with it, and what must be locked for it."""

    header: bytes
    drafts: Sequence[Draft]
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


def arguments(operations: Sequence[Operation], now: Instant | None) -> tuple[Any, ...]:
    """What `write_all` is called with, from the third on."""
    drafts = [made for operation in operations for made in operation.drafts]
    said = [operation.said for operation in operations if operation.said is not None]
    return (
        _joined(operations),
        _locks(operations),
        [made.event_id for made in drafts],
        [made.timestamp for made in drafts],
        [made.type for made in drafts],
        [made.raw for made in drafts],
        said,
        VERSION,
        now,
    )


def _joined(operations: Sequence[Operation]) -> str:
    parts, said = list[bytes](), 0
    for operation in operations:
        if operation.said is None:
            parts.append(operation.header)
        else:  # which of all that is said is this one's
            said += 1
            parts.append(b'%b,"said":%d}' % (operation.header[:-1], said))
    return f"[{b','.join(parts).decode()}]"


def _locks(operations: Sequence[Operation]) -> str:
    if len(operations) == 1 and not any(getattr(operations[0], name) for name in _LOCKED[1:]):
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


class Answer(Struct, frozen=True):
    """What became of one operation. Which fields are set depends on the verb."""

    gone: Grave | None = None
    """There is no such run."""
    buried: Grave | None = None
    """The session was deleted."""
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
    told: "tuple[Answer, ...]" = ()
    new: bool = False
    """The delivery was not there before."""
    origin: Whose | None = None
    epoch: int = 0
    recovering: bool = False
    counted: int = 0
    id: int = 0
    last: int | None = None
    """The number of the run before this one that has added to the conversation."""


decode_answers = msgspec.json.Decoder(tuple[Answer, ...]).decode


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
