"""The journal, the wakes and the run lists on SQLite. Each verb is part of one transaction."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.errors import Fenced, NotClaimable, UnknownRun
from treadle.domain.events import ApprovalDecided, RunEnd, SegmentOpened
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.messages import Message
from treadle.domain.users import UserId
from treadle.ports.clock import Clock
from treadle.ports.journal import (
    ALL_RUNS,
    ANY,
    LEASE_SECONDS,
    Advance,
    Advanced,
    Claim,
    Death,
    PositionedEvent,
    Publisher,
    Release,
    RunDraft,
    RunFilter,
    RunMessage,
    RunRecord,
    RunSums,
    SessionFacts,
    Submitted,
)
from treadle.stores.concurrency import describe_full_agent, read_concurrency_limit
from treadle.stores.run_facts import (
    explain_continued_session,
    read_followed_run,
    read_mode_of_run,
    read_owner_of_run,
    read_workspace_of_run,
)
from treadle.stores.sqlite.concurrency import Wakes, count_other_owned_runs, find_unblocked_runs
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.projections import require_open_approval
from treadle.stores.sqlite.reservations import reserve
from treadle.stores.sqlite.run_lists import find_runs, sum_runs
from treadle.stores.sqlite.transaction import (
    RunRow,
    Transaction,
    explain_missing_run,
    read_run_row,
    require_usable_session,
    to_event,
    to_run_record,
)
from treadle.stores.sqlite.worker_deaths import record_death
from treadle.stores.sqlite.writer import SqliteWriter

NO_LIMIT = -1
IMMEDIATELY = 0.0
"""For `wake_at`: due whatever the clock says, which may be set back."""
_encode = msgspec.json.Encoder().encode
_decode_said = msgspec.json.Decoder(tuple[Message, ...]).decode


class DeliveredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event appended to a run by someone other than its owner."""

    origin: Origin
    sequence: int | None  # None if the run has ended
    event: Draft
    is_new: bool


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """The effects of an advance, published after the commit."""

    origin: Origin
    drafts: tuple[Draft, ...]
    advanced: Advanced
    wakes: Wakes
    begun: tuple[RunDraft, ...] = ()
    told: tuple[DeliveredEvent, ...] = ()


class SqliteJournal:
    """Implements `Journal`, `Wakes` and `Runs`."""

    def __init__(self, writer: SqliteWriter, publisher: Publisher, clock: Clock) -> None:
        self._writer = writer
        self._publisher = publisher
        self._clock = clock

    # ── Journal ──

    async def submit(self, origin: Origin, events: Sequence[Draft], key: str | None = None) -> RunId:
        def work(transaction: Transaction) -> RunId | None:
            if key is not None and (found := transaction.db.execute(SQL["run_of_submission"], (key,)).fetchone()):
                return RunId(str(found[0]))
            self._insert_run(transaction, RunDraft(origin, tuple(events)), key)
            return None

        def then(existing: RunId | None) -> None:
            if existing is None:
                self._publish_new_run(RunDraft(origin, tuple(events)))

        return await self._writer.write(work, then, patient=False) or origin.run_id

    def _insert_run(self, transaction: Transaction, new: RunDraft, key: str | None = None) -> None:
        origin, now, workspace = new.origin, self._clock.now(), read_workspace_of_run(new.events)
        inserted = transaction.db.execute(
            SQL["insert_run"],
            (
                origin.run_id,
                origin.session_id,
                origin.agent_id,
                origin.parent_run_id,
                key,
                now,
                IMMEDIATELY,
                read_concurrency_limit(new.events),
                read_owner_of_run(new.events),
                workspace.id,
                workspace.folder,
                read_followed_run(new.events),
                read_mode_of_run(new.events),
            ),
        )
        if inserted.fetchone() is None:
            require_usable_session(transaction.db, new)
            raise explain_continued_session(origin.session_id)
        transaction.append(transaction.run(origin.run_id), new.events)

    def _publish_new_run(self, new: RunDraft) -> None:
        self._publisher.on_committed(new.origin, 1, new.events)
        self._publisher.wake(new.origin.run_id, self._clock.now())

    async def claim(self, run_id: RunId, worker: str) -> Claim:
        def work(transaction: Transaction) -> tuple[Origin, int, Death | None, list[Any], Any]:
            row, now, db = transaction.run(run_id), self._clock.now(), transaction.db
            if row.outcome is not None:
                raise NotClaimable(f"{run_id} has ended.")
            lost = row.worker
            if lost is not None and (row.lease_until or 0) > now:
                raise NotClaimable(f"{run_id} is owned by {row.worker}.")
            earlier = db.execute(SQL["earlier_unfinished"], (row.origin.session_id, row.id)).fetchone()
            if earlier and not (row.status == "pending" and _is_cancelled(transaction, row)):
                raise NotClaimable(f"{run_id} waits for {earlier[0]}, which comes first in its session.")
            taken = 0 if row.places is None else count_other_owned_runs(db, row)
            if row.places is not None and taken >= row.places and not _is_cancelled(transaction, row):
                raise NotClaimable(describe_full_agent(run_id, taken))
            row.epoch, row.worker, row.lease_until = row.epoch + 1, worker, now + LEASE_SECONDS
            if row.status == "pending":  # a waiting run may still be waiting after this claim
                row.status = "running"
            db.execute(SQL["open_epoch"], (row.epoch, worker, row.lease_until, row.status, row.id))
            death = None if lost is None else record_death(db, row.id, lost, now)
            transaction.own(row)
            transaction.flush()
            events = db.execute(SQL["events_after"], (row.id, 0, NO_LIMIT)).fetchall()
            transaction.adopt(row, events, now)
            return row.origin, row.epoch, death, events, _read_session_facts(db, row)

        origin, epoch, death, events, facts = await self._writer.write(work, _do_nothing, patient=True)
        history = tuple(to_event(origin, record) for record in events)
        return Claim(origin, epoch, history, death, _to_session_facts(facts))

    async def advance(self, advance: Advance) -> Advanced:
        work = partial(self._advance, advance)
        return (await self._writer.write(work, self._publish, True)).advanced

    def _advance(self, advance: Advance, transaction: Transaction) -> "AppendResult":
        row = transaction.run(advance.run_id)
        if row.epoch != advance.epoch or row.outcome is not None or row.worker is None:
            raise Fenced(f"{advance.run_id} has another owner: epoch {row.epoch}, not {advance.epoch}.")
        if advance.key is not None and row.sequence > advance.seen:
            raise Fenced(f"Something was delivered to {advance.run_id} before {advance.key}.")
        for new in advance.begin:  # reject before anything is appended
            require_usable_session(transaction.db, new)
        delivered: tuple[Event, ...] = ()
        if row.sequence > advance.seen:
            transaction.flush()
            found = transaction.db.execute(SQL["events_after"], (row.id, advance.seen, NO_LIMIT))
            delivered = tuple(to_event(row.origin, record) for record in found)
        accepted, refused, near = not delivered, None, ()
        if advance.key is not None:
            transaction.db.execute(SQL["insert_delivery"], (row.id, advance.key, row.sequence + 1))
        transaction.append(row, advance.facts)  # settles before the new reservation
        if accepted and advance.reserve is not None:
            refused, near = reserve(transaction.db, row.id, advance.reserve, self._clock.now())
            accepted = refused is None
        if accepted:
            transaction.append(row, advance.intents)
        drafts = advance.facts + advance.intents if accepted else advance.facts
        wakes: Wakes = ()
        if accepted and advance.release is not None:
            wakes = self._release(transaction, row, drafts, advance.release)
        elif accepted and advance.intents and row.status != "running":
            row.status = "running"
            transaction.db.execute(SQL["go_on"], (row.id,))
        advanced = Advanced(accepted, delivered, row.sequence, refused, near)
        if not accepted or not (advance.begin or advance.tell):
            return AppendResult(row.origin, drafts, advanced, wakes)
        for new in advance.begin:
            self._insert_run(transaction, new)
        told = self._deliver_messages(transaction, advance.tell)
        return AppendResult(
            origin=row.origin, drafts=drafts, advanced=advanced, wakes=wakes, begun=advance.begin, told=told
        )

    def _deliver_messages(self, transaction: Transaction, told: Sequence[RunMessage]) -> tuple[DeliveredEvent, ...]:
        delivered: list[DeliveredEvent] = []
        for each in told:
            with suppress(UnknownRun):  # the run was deleted
                delivered.append(self._deliver(each.run_id, each.event, each.key, ANY, transaction))
        return tuple(delivered)

    def _release(self, transaction: Transaction, row: RunRow, drafts: tuple[Draft, ...], release: Release) -> Wakes:
        """Release the run, ended or not, and return which runs to poll next, and when."""
        db, session = transaction.db, row.origin.session_id
        row.worker = row.lease_until = None
        last = drafts[-1].data if drafts else None
        transaction.release(row, has_ended=isinstance(last, RunEnd))
        if not isinstance(last, RunEnd):
            row.status = row.status if release.waiting_for is None else "waiting"
            db.execute(SQL["let_go"], (row.status, release.waiting_for, release.wake_at, row.counted, row.id))
            own = () if release.wake_at is None else ((row.origin.run_id, release.wake_at),)
            return *own, *find_unblocked_runs(db, row, self._clock.now())
        row.outcome = last.outcome
        db.execute(SQL["end_run"], (last.status, last.outcome, row.counted, row.id))
        db.execute(SQL["insert_said"], (session, row.id, _encode(release.said or ()), release.whole))
        following = db.execute(SQL["later_unfinished"], (session, row.id)).fetchone()
        if following is None:
            return find_unblocked_runs(db, row, self._clock.now())
        db.execute(SQL["wake"], (IMMEDIATELY, following[0]))
        return *find_unblocked_runs(db, row, self._clock.now()), (RunId(str(following[1])), self._clock.now())

    def _publish(self, appended: "AppendResult") -> None:
        advanced, drafts = appended.advanced, appended.drafts
        self._publisher.on_committed(appended.origin, advanced.sequence - len(drafts) + 1, drafts)
        for run_id, at in appended.wakes:
            self._publisher.wake(run_id, at)
        for new in appended.begun:
            self._publish_new_run(new)
        for told in appended.told:
            self._publish_delivered(told)

    async def deliver(self, run_id: RunId, event: Draft, key: str, seen: int = ANY) -> int | None:
        work = partial(self._deliver, run_id, event, key, seen)
        return (await self._writer.write(work, self._publish_delivered, patient=False)).sequence

    def _deliver(
        self, run_id: RunId, event: Draft, key: str, seen: int, transaction: Transaction
    ) -> DeliveredEvent:
        row, db = transaction.run(run_id), transaction.db
        if found := db.execute(SQL["delivery"], (row.id, key)).fetchone():
            return DeliveredEvent(row.origin, int(found[0]), event, False)
        if row.outcome is not None:
            return DeliveredEvent(row.origin, None, event, False)
        if row.sequence > seen:
            raise Fenced(f"{run_id} has events after {seen}.")
        if isinstance(event.data, ApprovalDecided):
            require_open_approval(db, event.data.approval_id, self._clock.now())
        transaction.append(row, (event,))
        db.execute(SQL["insert_delivery"], (row.id, key, row.sequence))
        db.execute(SQL["wake"], (IMMEDIATELY, row.id))
        return DeliveredEvent(row.origin, row.sequence, event, True)

    def _publish_delivered(self, delivered: DeliveredEvent) -> None:
        run_id = delivered.origin.run_id
        if delivered.is_new and delivered.sequence is not None:
            self._publisher.on_committed(delivered.origin, delivered.sequence, (delivered.event,))
            self._publisher.on_delivered(run_id)
            self._publisher.wake(run_id, self._clock.now())

    async def history(self, run_id: RunId) -> Sequence[Message]:
        def work(db: SqliteDatabase) -> list[Any]:
            row = read_run_row(db, run_id)
            return db.execute(SQL["said_before"], (row.origin.session_id, row.id)).fetchall()

        return _decode_messages(await self._writer.read(work))

    async def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        def work(db: SqliteDatabase) -> tuple[Origin, list[Any]]:
            row = read_run_row(db, run_id)
            return row.origin, db.execute(SQL["events_after"], (row.id, after, limit)).fetchall()

        origin, found = await self._writer.read(work)
        return [to_event(origin, record) for record in found]

    # ── Wakes ──

    async def runnable(self, limit: int = 100) -> Sequence[RunId]:
        now = self._clock.now()
        return await self._writer.read(
            lambda db: [RunId(str(row[0])) for row in db.execute(SQL["runnable"], (now, limit))]
        )

    async def renew(self, worker: str) -> Sequence[RunId]:
        def work(transaction: Transaction) -> list[RunId]:
            until = self._clock.now() + LEASE_SECONDS
            transaction.forget()
            return [RunId(str(row[0])) for row in transaction.db.execute(SQL["renew"], (until, worker))]

        return await self._writer.write(work, _do_nothing, patient=True)

    async def void_leases(self) -> None:
        """Void all leases, for a process that has just become the only owner of the database: all other lease
        holders are dead."""

        def work(transaction: Transaction) -> None:
            transaction.forget()
            transaction.db.execute(SQL["void_leases"])

        await self._writer.write(work, _do_nothing, patient=False)

    # ── Runs ──

    async def record(self, run_id: RunId) -> RunRecord:
        def look(db: SqliteDatabase) -> RunRecord:
            found = db.execute(SQL["record"], (run_id,)).fetchone()
            if found is None:
                raise explain_missing_run(db, run_id)
            return to_run_record(found)

        return await self._writer.read(look)

    async def find(self, filter: RunFilter = ALL_RUNS, limit: int = 50) -> Sequence[RunRecord]:
        return await self._writer.read(lambda db: [to_run_record(row) for row in find_runs(db, filter, limit)])

    async def sum(self, filter: RunFilter = ALL_RUNS) -> RunSums:
        return await self._writer.read(lambda db: sum_runs(db, filter))

    async def list_unfinished(self, session_id: SessionId | None = None) -> Sequence[RunRecord]:
        def work(db: SqliteDatabase) -> list[RunRecord]:
            if session_id is None:
                return [to_run_record(row) for row in db.execute(SQL["unfinished"])]
            return [to_run_record(row) for row in db.execute(SQL["unfinished_of_session"], (session_id,))]

        return await self._writer.read(work)

    async def position(self) -> int:
        [position] = await self._writer.read(lambda db: db.execute(SQL["latest_position"]).fetchall()[0])
        return int(position)

    async def after(
        self,
        position: int,
        agents: Sequence[str] | None = None,
        limit: int = 500,
        owner: UserId | None = None,
    ) -> Sequence[PositionedEvent]:
        if owner is None:
            statement, values = SQL["events_after_position"], (position, _encode_names(agents), limit)
        else:
            statement, values = (
                SQL["events_after_position_of_owner"],
                (position, _encode_names(agents), limit, owner),
            )
        found = await self._writer.read(lambda db: db.execute(statement, values).fetchall())
        return [PositionedEvent(row[0], to_event(Origin(*row[1:5]), row[5:])) for row in found]

    async def find_submitted(self, key: str) -> Submitted | None:
        found = await self._writer.read(lambda db: db.execute(SQL["submitted"], (key, key)).fetchone())
        return None if found is None else Submitted(RunId(str(found[0])), int(found[1]))

    async def agent(self, name: str, proposed: AgentId) -> AgentId:
        def work(transaction: Transaction) -> AgentId:
            if found := transaction.db.execute(SQL["agent"], (name,)).fetchone():
                return AgentId(str(found[0]))
            transaction.db.execute(SQL["insert_agent"], (proposed, name))
            return proposed

        return await self._writer.write(work, _do_nothing, patient=False)

    async def close(self) -> None:
        await self._writer.close()


def _do_nothing(_: object) -> None:
    """Do nothing after the commit."""


def _is_cancelled(transaction: Transaction, row: RunRow) -> bool:
    """Return whether the run was cancelled, in which case it need not wait for its turn."""
    transaction.flush()
    return transaction.db.execute(SQL["cancel_requested"], (row.id,)).fetchone() is not None


def _decode_messages(said: list[Any]) -> tuple[Message, ...]:
    return tuple([message for record in said for message in _decode_said(record[0])])


def _read_session_facts(db: SqliteDatabase, row: RunRow) -> Any:
    """Return what earlier runs settled in the session, or None if this is its first run."""
    session = row.origin.session_id
    last = db.execute(SQL["last_said"], (session, row.id)).fetchone()
    if last is None or last[0] is None:
        return None
    return db.execute(SQL["session_facts"], (session, last[0])).fetchone()


def _to_session_facts(facts: Any) -> SessionFacts:
    if facts is None:
        return SessionFacts()
    workspace, notes, last, segment_id, parent, reason, messages, opened_at = facts
    opened = None if segment_id is None else SegmentOpened(segment_id, parent, reason, messages)
    return SessionFacts(opened, opened_at or 0.0, None if workspace is None else (workspace, notes), last)


def _encode_names(names: Sequence[str] | None) -> str | None:
    return None if names is None else _encode(names).decode()
