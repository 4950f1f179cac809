"""The journal and the wakes on PostgreSQL. Each verb is an operation of the next batch."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.errors import Fenced, InvalidState, NotClaimable, StoreError
from treadle.domain.events import ApprovalDecided, RunEnd, SegmentOpened
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Message
from treadle.domain.users import LOCAL_USER
from treadle.ports.clock import Clock
from treadle.ports.journal import (
    ANY,
    LEASE_SECONDS,
    RECENT_DEATH_SECONDS,
    Advance,
    Advanced,
    Claim,
    Death,
    DepsProvider,
    Publisher,
    Release,
    RunDraft,
    RunMessage,
    SessionFacts,
)
from treadle.stores.concurrency import describe_full_agent, read_concurrency_limit
from treadle.stores.postgres.batch import (
    BatchOperation,
    BatchResult,
    Header,
    PlainAdvance,
    encode_header,
    explain_deleted_session,
    explain_missing_run,
    to_origin,
)
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow
from treadle.stores.postgres.owned_runs import HeldRun, has_counted_events
from treadle.stores.postgres.projections import project_events, project_progress
from treadle.stores.postgres.runs import PostgresRuns, to_event
from treadle.stores.postgres.writer import PostgresWriter
from treadle.stores.run_facts import (
    explain_continued_session,
    explain_taken_session,
    has_own_deps,
    read_followed_run,
    read_mode_of_run,
    read_owner_of_run,
    read_workspace_of_run,
)
from treadle.stores.usage_counts import rebuild_payer

NO_LIMIT = 2**31 - 1
_encode = msgspec.json.Encoder().encode
_decode_said = msgspec.json.Decoder(tuple[Message, ...]).decode


class PostgresJournal(PostgresRuns):
    """Implements `Journal`, `Wakes` and `Runs`."""

    def __init__(
        self, database: PostgresDatabase, writer: PostgresWriter, publisher: Publisher, clock: Clock
    ) -> None:
        super().__init__(database)
        self._writer = writer
        self._publisher = publisher
        self._clock = clock
        self._held: dict[RunId, HeldRun] = {}
        self._deps: DepsProvider | None = None
        self._worker = ""
        self._is_deps_holder = False

    def provide_deps(self, worker: str, deps: DepsProvider) -> None:
        """Leave the runs whose deps this process has to its worker."""
        self._worker, self._deps, self._is_deps_holder = worker, deps, deps.makes_deps

    # ── Submission ──

    async def submit(self, origin: Origin, events: Sequence[Draft], key: str | None = None) -> RunId:
        new = RunDraft(origin, tuple(events))
        header = _make_submission_header(new, self._find_deps_holder, key)
        if header.get("deps_holder") and not self._is_deps_holder:
            await self._hold_deps()
        operation = BatchOperation(
            encode_header(header),
            new.events,
            sessions=(origin.session_id,),
            agents=_list_limited_agents(new),
            keys=() if key is None else (key,),
        )
        return await self._writer.write(operation, partial(self._finish_submission, new), patient=False)

    def _finish_submission(self, new: RunDraft, answer: BatchResult) -> RunId:
        if answer.buried is not None:
            raise explain_deleted_session(answer.buried)
        if answer.taken is not None:
            raise explain_taken_session(SessionId(answer.taken))
        if answer.continued is not None:
            raise explain_continued_session(SessionId(answer.continued))
        if answer.existing is not None:
            return RunId(answer.existing)
        self._publish_new_run(new)
        return new.origin.run_id

    def _publish_new_run(self, new: RunDraft) -> None:
        self._publisher.on_committed(new.origin, 1, new.events)
        self._publisher.wake(new.origin.run_id, self._clock.now())

    def _find_deps_holder(self, new: RunDraft) -> str | None:
        """Return the worker that has the deps of a new run: empty if there is none, None if the run needs none."""
        if not has_own_deps(new.events):
            return None
        run_id, parent = new.origin.run_id, new.origin.parent_run_id
        is_here = self._deps is not None and (
            self._deps.makes_deps or self._deps.holds(run_id) or (parent is not None and self._deps.holds(parent))
        )
        return self._worker if is_here else ""

    @property
    def _makes_deps(self) -> bool:
        return self._deps is not None and self._deps.makes_deps

    async def _hold_deps(self) -> None:
        """Tell other processes that this one is alive and has deps of runs, or makes them."""
        assert self._deps is not None
        await self._database.rows(
            "hold_deps", self._worker, self._deps.makes_deps, self._writer.now(), LEASE_SECONDS, patient=True
        )
        self._is_deps_holder = True

    # ── Ownership ──

    async def claim(self, run_id: RunId, worker: str) -> Claim:
        header: Header = {"do": "claim", "run": run_id, "worker": worker, "lease": LEASE_SECONDS}
        if self._makes_deps:
            header["makes_deps"] = True
        operation = BatchOperation(encode_header(header), (), runs=(run_id,), turns=(run_id,), settling=(run_id,))
        answer = await self._writer.write(operation, partial(_check_claim, run_id), patient=True)
        assert answer.origin is not None
        origin = to_origin(answer.origin)
        if answer.opening is not None:
            events = [(*record, bytes.fromhex(raw)) for *record, raw in answer.opening]
        else:
            found = await self._database.rows("events_of_run", run_id, 0, NO_LIMIT, patient=True)
            events = [tuple(row)[6:] for row in found]
        self._held[run_id] = HeldRun(origin, answer.id, rebuild_payer(events, answer.counted))
        facts = None
        if answer.last is not None:
            facts = await self._database.row("session_facts", origin.session_id, answer.last, patient=True)
        return Claim(
            origin,
            answer.epoch,
            tuple([to_event(origin, record) for record in events]),
            None if answer.lost is None else await self._record_death(answer.lost, answer.id),
            _to_session_facts(facts),
        )

    async def _record_death(self, worker: str, run: int) -> Death:
        """Record that a worker died while it owned this run; return what that says about the run."""
        row = await self._database.row(
            "record_death", worker, self._writer.now(), RECENT_DEATH_SECONDS, run, patient=True
        )
        assert row is not None
        return Death(alone=row[0] == 1, lately=row[1])

    async def _load_held_run(self, run_id: RunId) -> HeldRun:
        """Return the state of an owned run that is not cached, from its journal."""
        found = await self._database.rows("events_of_run", run_id, 0, NO_LIMIT, patient=True)
        if not found:
            raise await self._unknown(run_id)
        rows = [tuple(row) for row in found]
        events = [row[6:] for row in rows if row[6] is not None]
        held = self._held[run_id] = HeldRun(Origin(*rows[0][:4]), rows[0][5], rebuild_payer(events, rows[0][4]))
        return held

    # ── Progress ──

    async def advance(self, advance: Advance) -> Advanced:
        held = self._held.get(advance.run_id)
        if held is None and (
            advance.release or has_counted_events(advance.facts) or has_counted_events(advance.intents)
        ):
            held = await self._load_held_run(advance.run_id)
        operation = _build_advance(advance, held, self._find_deps_holder)
        try:
            answer = await self._writer.write(operation, partial(self._finish_advance, advance, held), True)
        except StoreError:
            self._held.pop(advance.run_id, None)  # the counted usage was not committed
            raise
        delivered: tuple[Event, ...] = ()
        if answer.before > advance.seen:
            limit = answer.before - advance.seen
            found = await self._database.rows("events_of_run", advance.run_id, advance.seen, limit, patient=True)
            delivered = tuple([to_event(Origin(*tuple(row)[:4]), tuple(row)[6:]) for row in found])
        return Advanced(
            answer.accepted,
            delivered,
            answer.sequence or 0,
            None if answer.refused is None else answer.refused.to_shortage(),
            tuple([near.to_shortage() for near in answer.near]),
        )

    def _finish_advance(self, advance: Advance, held: HeldRun | None, answer: BatchResult) -> BatchResult:
        """Publish what was committed. Keep the cached run only if the whole advance was accepted."""
        if not answer.accepted or advance.release is not None:
            self._held.pop(advance.run_id, None)
        if answer.gone is not None:
            raise explain_missing_run(advance.run_id, answer.gone)
        if answer.fenced is not None:
            if answer.fenced == advance.epoch and advance.key is not None:
                raise Fenced(f"Something was delivered to {advance.run_id} before {advance.key}.")
            raise Fenced(
                f"{advance.run_id} has another owner: epoch {answer.fenced}, not {advance.epoch}."
                if answer.fenced != advance.epoch
                else f"{advance.run_id} was released in epoch {advance.epoch}."
            )
        if answer.buried is not None:
            raise explain_deleted_session(answer.buried)
        if answer.taken is not None:
            raise explain_taken_session(SessionId(answer.taken))
        assert answer.sequence is not None
        origin = held.origin if held is not None else to_origin(answer.origin or ("", "", "", None))
        drafts = advance.facts + advance.intents if answer.accepted else advance.facts
        self._publisher.on_committed(origin, answer.sequence - len(drafts) + 1, drafts)
        if answer.woken is not None:
            run_id, at = answer.woken
            self._publisher.wake(RunId(run_id), self._clock.now() if at is None else at)
        for following in answer.following:
            self._publisher.wake(RunId(following), self._clock.now())
        if answer.accepted:
            for new in advance.begin:
                self._publish_new_run(new)
            for tell, told in zip(advance.tell, answer.told, strict=True):
                self._publish_delivered(tell.run_id, tell.event, told)
        return answer

    # ── Delivery ──

    async def deliver(self, run_id: RunId, event: Draft, key: str, seen: int = ANY) -> int | None:
        header = _make_delivery_header(RunMessage(run_id, event, key))
        if seen < ANY:
            header["seen"] = seen
        operation = BatchOperation(encode_header(header), (event,), runs=(run_id,))
        return await self._writer.write(operation, partial(self._finish_delivery, run_id, event), patient=False)

    def _finish_delivery(self, run_id: RunId, event: Draft, answer: BatchResult) -> int | None:
        if answer.gone is not None:
            raise explain_missing_run(run_id, answer.gone)
        if answer.fenced is not None:
            raise Fenced(f"{run_id} has events that its client does not know.")
        if answer.closed:
            assert isinstance(event.data, ApprovalDecided)
            raise InvalidState(f"{event.data.approval_id} is no longer open.")
        self._publish_delivered(run_id, event, answer)
        return answer.sequence

    def _publish_delivered(self, run_id: RunId, event: Draft, answer: BatchResult) -> None:
        if answer.new and answer.sequence is not None and answer.origin is not None:
            self._publisher.on_committed(to_origin(answer.origin), answer.sequence, (event,))
            self._publisher.on_delivered(run_id)
            self._publisher.wake(run_id, self._clock.now())

    # ── Reads ──

    async def history(self, run_id: RunId) -> Sequence[Message]:
        found = await self._database.rows("said_before", run_id)
        if not found:
            raise await self._unknown(run_id)
        return tuple([message for row in found if row[0] is not None for message in _decode_said(row[0])])

    async def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        found = [
            tuple(row) for row in await self._database.rows("events_of_run", run_id, min(after, NO_LIMIT), limit)
        ]
        if not found:
            raise await self._unknown(run_id)
        origin = Origin(*found[0][:4])
        return [to_event(origin, row[6:]) for row in found if row[6] is not None]

    # ── Wakes ──

    async def runnable(self, limit: int = 100) -> Sequence[RunId]:
        if self._is_deps_holder:
            await self._hold_deps()
        found = await self._database.rows("runnable", self._writer.now(), limit, self._worker, self._makes_deps)
        return [RunId(row[0]) for row in found]

    async def renew(self, worker: str) -> Sequence[RunId]:
        found = await self._database.rows("renew", worker, self._writer.now(), LEASE_SECONDS, patient=True)
        return [RunId(row[0]) for row in found]

    async def close(self) -> None:
        if self._is_deps_holder:
            with suppress(StoreError):
                await self._database.rows("stop_holding_deps", self._worker)
        await self._writer.close()
        await self._database.close()


def _check_claim(run_id: RunId, answer: BatchResult) -> BatchResult:
    if answer.gone is not None:
        raise explain_missing_run(run_id, answer.gone)
    if answer.not_claimable is not None:
        raise NotClaimable(f"{run_id} {answer.not_claimable}.")
    if answer.no_place is not None:
        raise NotClaimable(describe_full_agent(run_id, answer.no_place))
    return answer


def _make_submission_header(
    new: RunDraft, find_deps_holder: Callable[[RunDraft], str | None], key: str | None = None
) -> Header:
    origin = new.origin
    header: Header = {
        "do": "submit",
        "run": origin.run_id,
        "session": origin.session_id,
        "agent": origin.agent_id,
        "parent": origin.parent_run_id,
        "key": key,
        "events": len(new.events),
    }
    if (owner := read_owner_of_run(new.events)) != LOCAL_USER:
        header["owner"] = owner
    if (workspace := read_workspace_of_run(new.events)).id:
        header["workspace"], header["folder"] = workspace.id, workspace.folder
    if (places := read_concurrency_limit(new.events)) is not None:
        header["places"] = places
    if (mode := read_mode_of_run(new.events)) is not None:
        header["mode"] = mode
    if (holder := find_deps_holder(new)) is not None:
        header["deps_holder"] = holder
    if (followed := read_followed_run(new.events)) is not None:
        header["follows"] = followed
    if projected := project_events(new.events):
        header["beside"] = projected
    return header


def _list_limited_agents(*new_runs: RunDraft) -> list[str]:
    """Return the agents of these runs that have a concurrency limit."""
    return [new.origin.agent_id for new in new_runs if read_concurrency_limit(new.events) is not None]


def _make_delivery_header(tell: RunMessage) -> Header:
    header: Header = {"do": "deliver", "run": tell.run_id, "key": tell.key, "events": 1}
    if isinstance(tell.event.data, ApprovalDecided):
        header["approval"] = tell.event.data.approval_id
    if projected := project_events((tell.event,)):
        header["beside"] = projected
    return header


def _build_advance(
    advance: Advance, held: HeldRun | None, find_deps_holder: Callable[[RunDraft], str | None]
) -> BatchOperation:
    run_id, release, reserve = advance.run_id, advance.release, advance.reserve
    header: Header = {}
    operation = BatchOperation(b"", advance.facts + advance.intents, runs=(run_id,))
    if held is None:
        header["whose"] = True
        fact_projections, intent_projections = project_events(advance.facts), project_events(advance.intents)
    else:
        fact_projections, intent_projections = held.count(advance.facts), held.count(advance.intents)
        if (operation.drafts and held.payer.is_due(operation.drafts[-1].timestamp)) or release is not None:
            rows = held.take_usage()
            header["usage"] = [[*key, *sums] for key, sums in rows.items()]
            if rows and not (operation.drafts and isinstance(operation.drafts[-1].data, RunEnd)):
                intent_projections.append(project_progress(held.payer.build_progress(rows)))
        if held.payer.is_bounded:
            operation.settling = (run_id,)
    if fact_projections:
        header["beside_facts"] = fact_projections
    if intent_projections:
        header["beside"] = intent_projections
    if advance.key is not None:
        header["key"] = advance.key
    if reserve is not None:
        header["reserve"] = reserve
        operation.accounts = [ceilings.account for ceilings in reserve.accounts]
    if release is not None:
        header["release"] = _make_release_header(operation, run_id, release)
    if advance.begin or advance.tell:
        header["begin"], header["tell"] = (
            [_make_submission_header(new, find_deps_holder) for new in advance.begin],
            list(map(_make_delivery_header, advance.tell)),
        )
        operation.sessions = [new.origin.session_id for new in advance.begin]
        operation.agents = _list_limited_agents(*advance.begin)
        operation.runs = (run_id, *(tell.run_id for tell in advance.tell))
        more = [new.events for new in advance.begin] + [(tell.event,) for tell in advance.tell]
        operation.drafts = [*operation.drafts, *(draft for events in more for draft in events)]
    plain = PlainAdvance(
        run_id=run_id,
        number=held.number if held else 0,
        epoch=advance.epoch,
        seen=advance.seen,
        facts=len(advance.facts),
        intents=len(advance.intents),
    )
    if header or not operation.drafts or advance.seen > NO_LIMIT - plain.events:
        operation.header = encode_header({**plain.header(), **header})
    else:
        operation.plain = plain
    return operation


def _make_release_header(operation: BatchOperation, run_id: RunId, release: Release) -> Header:
    last = operation.drafts[-1].data if operation.drafts else None
    if not isinstance(last, RunEnd):
        operation.places = (run_id,)
        return {"waiting_for": release.waiting_for, "wake_at": release.wake_at}
    operation.turns = operation.ends = (run_id,)
    operation.said = _encode(release.said or ())
    return {"status": last.status, "outcome": last.outcome, "whole": release.whole}


def _to_session_facts(facts: PostgresRow | None) -> SessionFacts:
    if facts is None:
        return SessionFacts()
    workspace, notes, last, segment_id, parent, reason, messages, opened_at = facts
    opened = None if segment_id is None else SegmentOpened(segment_id, parent, reason, messages)
    workspace_notes = None if workspace is None else (unescape_nul(workspace), unescape_nul(notes))
    return SessionFacts(opened, opened_at or 0.0, workspace_notes, last)
