"""Projections of events: approvals, sessions, results, child runs, messages between runs, and the feed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.stores.postgres.harness import opened
from tests.stores.postgres.servers import tell
from treadle.domain.envelope import Origin
from treadle.domain.errors import InvalidState, RunDeleted, SessionDeleted, UnknownApproval, UnknownRun
from treadle.domain.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    CancelRequested,
    MessageSteered,
    RunStart,
    SegmentOpened,
)
from treadle.domain.ids import AgentId, ApprovalId, RunId, SegmentId, SessionId
from treadle.domain.messages import user
from treadle.ports.approvals import Grant
from treadle.ports.journal import Advance, RunDraft, RunFilter, RunMessage, Submitted
from treadle.stores.postgres.approvals import PostgresApprovals
from treadle.stores.postgres.driver import open_connection
from treadle.stores.postgres.results import PostgresResults
from treadle.stores.postgres.sessions import PostgresSessions
from treadle.testing.conformance.store import END, OPENING, Recorder, StoreProcess, check_not_claimable, make_step
from treadle.testing.time import CountingIds, FakeClock


class ProjectionProcess(StoreProcess):
    """A process, with its lists."""

    approvals: PostgresApprovals
    sessions: PostgresSessions
    results: PostgresResults


@asynccontextmanager
async def desk(url: str) -> AsyncGenerator[ProjectionProcess, None]:
    clock, told = FakeClock(), Recorder()
    async with opened(url, told, clock) as (journal, database, _):
        process = ProjectionProcess(journal, told, clock, CountingIds(), "worker")
        process.approvals, process.sessions = PostgresApprovals(database), PostgresSessions(database)
        process.results = PostgresResults(database)
        yield process


def make_approval_request(
    number: int, expires_at: float | None = None, pattern: str | None = "ls *"
) -> ApprovalRequested:
    return ApprovalRequested(
        approval_id=ApprovalId(f"apr_{number}"),
        call_id="call",
        name="bash",
        arguments='{"command": "ls\x00"}',
        reason="why",
        pattern=pattern,
        expires_at=expires_at,
    )


# ── Approvals ──────────────────────────────────────────────────────────────────────────────────────


async def test_an_approval_is_listed_until_it_is_decided(url: str) -> None:
    async with desk(url) as process:
        claim = await process.claimed("s")
        run_id = claim.origin.run_id
        await process.advance(claim, 2, [], [make_approval_request(1), make_approval_request(2)])
        assert [each.approval_id for each in await process.approvals.list_pending()] == ["apr_1", "apr_2"]
        assert await process.approvals.list_pending(RunId("run_other")) == []
        record = await process.approvals.find(ApprovalId("apr_1"))
        assert (record.origin, record.tool, record.decision) == (claim.origin, "bash", None)
        assert record.arguments == '{"command": "ls\x00"}', "as it was, NUL included"
        decided = process.draft(ApprovalDecided(ApprovalId("apr_1"), "approve", remember="session"))
        assert await process.store.deliver(run_id, decided, "k") == 5
        assert await process.store.deliver(run_id, decided, "k") == 5
        assert (await process.approvals.find(ApprovalId("apr_1"))).decision == "approve"
        assert await process.approvals.grants(run_id) == [Grant("bash", "ls *")]
        with pytest.raises(InvalidState, match="apr_1 is no longer open"):
            await process.store.deliver(run_id, decided, "again")
        assert not await process.approvals.revoke(run_id, Grant("bash", "rm *"))
        assert await process.approvals.revoke(run_id, Grant("bash", "ls *"))
        assert await process.approvals.grants(run_id) == []
        await process.advance(claim, 5, [ApprovalExpired(ApprovalId("apr_2"), "call")])
        assert (await process.approvals.find(ApprovalId("apr_2"))).decision == "expired"
        assert await process.approvals.list_pending(run_id) == []
        with pytest.raises(UnknownApproval, match="apr_3"):
            await process.approvals.find(ApprovalId("apr_3"))


async def test_an_expired_approval_accepts_no_decision(url: str) -> None:
    async with desk(url) as process:
        claim = await process.claimed()
        await process.advance(claim, 2, [], [make_approval_request(1, process.clock.now() + 60)])
        process.clock.pass_time(60)
        answer = process.draft(ApprovalDecided(ApprovalId("apr_1"), "approve"))
        with pytest.raises(InvalidState):
            await process.store.deliver(claim.origin.run_id, answer, "k")
        await process.end(claim, 3)
        assert (await process.approvals.find(ApprovalId("apr_1"))).decision == "expired"


# ── Sessions and results ───────────────────────────────────────────────────────────────────────────


async def test_sessions_are_listed_with_their_runs(url: str) -> None:
    async with desk(url) as process:
        await process.store.agent("ada", AgentId("agt_conformance"))
        first = await process.claimed("s")
        opened_ = SegmentOpened(SegmentId("seg_2"), SegmentId("seg_1"), "compaction", 3)
        await process.advance(first, 2, [], [RunStart((), (), "n\x00tes", "/work"), opened_])
        await process.end(first, 4)
        second = await process.submit("s")
        other = await process.submit("other")
        [latest, earlier] = await process.sessions.newest()
        assert (latest.session_id, latest.first_run, latest.agent) == ("other", other, "ada")
        assert (earlier.runs, earlier.unfinished, earlier.segments) == (2, 1, 1)
        assert await process.sessions.newest(before=SessionId("other")) == [earlier]
        assert await process.sessions.newest(agents=("grace",)) == []
        assert await process.sessions.find(SessionId("s")) == earlier
        assert await process.sessions.find(SessionId("nowhere")) is None
        found = await process.sessions.runs(SessionId("s"))
        assert [record.origin.run_id for record in found] == [first.origin.run_id, second]
        assert await process.sessions.ends(SessionId("s")) == [END]
        [segment] = await process.sessions.segments(SessionId("s"))
        assert (segment.segment_id, segment.run_id, segment.messages) == ("seg_2", first.origin.run_id, 3)
        names = await process.store.find(RunFilter(agents=("ada",), session_id=SessionId("s"), unfinished=True))
        assert [record.origin.run_id for record in names] == [second]


async def test_the_text_of_a_result_is_kept(url: str) -> None:
    async with desk(url) as process:
        claim = await process.claimed("s")
        assert await process.results.read(SessionId("s"), "c") is None
        for content in ("one", "two\x00\x1a"):
            await process.results.keep(claim.origin, "c", content)
            assert await process.results.read(SessionId("s"), "c") == content
        nowhere = Origin(RunId("run_nowhere"), SessionId("s"), AgentId("a"))
        with pytest.raises(UnknownRun):
            await process.results.keep(nowhere, "c", "text")


# ── Runs among each other ──────────────────────────────────────────────────────────────────────────


async def test_runs_are_started_and_messages_delivered_with_the_intents(url: str) -> None:
    async with desk(url) as process:
        parent, other = await process.claimed(), await process.claimed()
        new = process.origin("under")
        child = RunDraft(Origin(new.run_id, new.session_id, new.agent_id, parent.origin.run_id), process.opening())
        told = RunMessage(other.origin.run_id, process.draft(MessageSteered(user("hi"), "steer")), "k")
        lost = RunMessage(RunId("run_gone"), told.event, "k")
        await process.steer(parent.origin.run_id)
        process.told.wakes.clear()

        async def begin(seen: int) -> bool:
            made = (process.draft(make_step(1)),)
            advance = Advance(
                parent.origin.run_id, parent.epoch, seen, made, made, begin=(child,), tell=(told, lost)
            )
            return (await process.store.advance(advance)).accepted

        assert not await begin(2), "nothing of it while a delivery is not seen"
        assert process.told.wakes == []
        assert await process.types(other.origin.run_id) == OPENING
        assert await begin(4)
        assert await process.types(new.run_id) == OPENING
        assert await process.types(other.origin.run_id) == [*OPENING, "message_steered"]
        assert [run_id for run_id, _ in process.told.wakes] == [new.run_id, other.origin.run_id]
        assert process.told.deliveries[1:] == [other.origin.run_id]
        assert (await process.store.record(new.run_id)).origin.parent_run_id == parent.origin.run_id
        assert await process.store.find_submitted("k") == Submitted(other.origin.run_id, 3)


async def test_a_cancelled_run_can_be_claimed_before_its_turn(url: str) -> None:
    async with desk(url) as process:
        await process.submit("s")
        second, third = await process.submit("s"), await process.submit("s")
        await check_not_claimable(process, second)
        cancel = process.draft(CancelRequested("enough"))
        await process.store.deliver(second, cancel, "k")
        assert (await process.claim(second)).epoch == 1
        _, claim = await asyncio.gather(  # in one batch
            process.store.deliver(third, process.draft(CancelRequested("enough")), "k"), process.claim(third)
        )
        assert claim.events[-1].type == "cancel_requested"


async def test_a_deleted_run_is_reported_as_deleted(url: str) -> None:
    async with desk(url) as process:
        claim = await process.claimed()
        await tell(
            url,
            "INSERT INTO treadle.deleted_sessions VALUES ('gone', 'a', 1, 1, 0, 0, 0, 1800000000, 'ada')",
            "INSERT INTO treadle.deleted_runs VALUES ('run_gone', 'gone')",
        )
        with pytest.raises(RunDeleted, match="with its session gone on Friday, 2027-01-15 08:00 UTC by ada"):
            await process.steer(RunId("run_gone"))
        with pytest.raises(RunDeleted):
            await process.store.read(RunId("run_gone"))
        with pytest.raises(SessionDeleted, match="by ada"):
            await process.submit("gone")
        with pytest.raises(SessionDeleted):
            await process.sessions.find(SessionId("gone"))
        child = RunDraft(process.origin("gone"), process.opening())
        fact = (process.draft(make_step(1)),)
        with pytest.raises(SessionDeleted):
            await process.store.advance(Advance(claim.origin.run_id, claim.epoch, 2, fact, fact, begin=(child,)))
        assert await process.types(claim.origin.run_id) == OPENING, "nothing of it"


# ── The feed ───────────────────────────────────────────────────────────────────────────────────────


async def test_the_feed_contains_the_events_of_all_runs(url: str) -> None:
    async with desk(url) as process:
        assert await process.store.position() == 0
        await process.store.agent("ada", AgentId("agt_conformance"))
        one, two = await process.claimed(), await process.claimed()
        await process.advance(one, 2, [make_step(1)])
        found = await process.store.after(0)
        assert [placed.event.run_id for placed in found] == [
            *[one.origin.run_id] * 2, *[two.origin.run_id] * 2, one.origin.run_id,
        ]  # fmt: skip
        assert found[-1].position == await process.store.position()
        assert await process.store.after(found[2].position, limit=1) == [found[3]]
        assert await process.store.after(0, ["ada"]) == found
        assert await process.store.after(0, ["grace"]) == []


async def test_a_reader_of_the_feed_waits_for_open_transactions_before_its_position(url: str) -> None:
    """A batch that has its positions and is not committed yet is not overtaken: what it adds is seen."""

    async with desk(url) as one, desk(url) as two:
        await one.submit("before")
        seen = await one.store.after(0)
        await tell(
            url,
            "CREATE SEQUENCE treadle.tries",
            "CREATE FUNCTION treadle.waits() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN "
            "IF nextval('treadle.tries') = 1 THEN PERFORM pg_advisory_xact_lock(4242); END IF; "
            "RETURN NULL; END $$",
            "CREATE TRIGGER waits AFTER INSERT ON treadle.events EXECUTE FUNCTION treadle.waits()",
        )
        gate = await open_connection(url, 10, {})
        await gate.execute("SELECT pg_advisory_lock(4242)")
        slow = asyncio.ensure_future(one.submit("slow"))
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not await gate.fetchval(waiting):  # noqa: ASYNC110 -- the server sends no event
            await asyncio.sleep(0.01)
        fast = Origin(RunId("run_fast"), SessionId("fast"), AgentId("a"))
        await two.store.submit(fast, two.opening())
        assert await two.store.after(seen[-1].position) == []
        assert await two.store.position() == seen[-1].position
        await gate.execute("SELECT pg_advisory_unlock(4242)")
        first = await slow
        await gate.close()
        found = await two.store.after(seen[-1].position)
        assert [placed.event.run_id for placed in found] == [first, first, "run_fast", "run_fast"]


async def test_a_reader_that_starts_slowly_also_keeps_the_order(url: str) -> None:
    """Between its look at who may still add something and its look at the events, one takes a position and another,
    which comes after it, is committed."""

    async with desk(url) as one, desk(url) as two, desk(url) as reader:
        await one.submit("before")
        [*_, seen] = await reader.store.after(0)
        await tell(
            url,
            "CREATE SEQUENCE treadle.tries",
            "CREATE FUNCTION treadle.waits() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN "
            "IF nextval('treadle.tries') = 1 THEN PERFORM pg_advisory_xact_lock(4242); END IF; "
            "RETURN NULL; END $$",
            "CREATE TRIGGER waits AFTER INSERT ON treadle.events EXECUTE FUNCTION treadle.waits()",
            "ALTER FUNCTION treadle.feed_bound RENAME TO true_bound",
            "CREATE FUNCTION treadle.feed_bound() RETURNS BIGINT LANGUAGE plpgsql AS $$ "
            "DECLARE bound BIGINT := true_bound(); BEGIN "
            "PERFORM pg_advisory_xact_lock_shared(4243); RETURN bound; END $$",
        )
        gate = await open_connection(url, 10, {})
        await gate.execute("SELECT pg_advisory_lock(4242), pg_advisory_lock(4243)")
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        reading = asyncio.ensure_future(reader.store.after(seen.position))
        while await gate.fetchval(waiting) < 1:  # noqa: ASYNC110 -- the server sends no event
            await asyncio.sleep(0.01)
        slow = asyncio.ensure_future(one.submit("slow"))
        while await gate.fetchval(waiting) < 2:  # noqa: ASYNC110 -- likewise
            await asyncio.sleep(0.01)
        fast = Origin(RunId("run_fast"), SessionId("fast"), AgentId("a"))
        await two.store.submit(fast, two.opening())
        await gate.execute("SELECT pg_advisory_unlock(4243)")
        assert await reading == [], "what is before it may still come"
        await gate.execute("SELECT pg_advisory_unlock(4242)")
        first = await slow
        await gate.close()
        found = await reader.store.after(seen.position)
        assert [placed.event.run_id for placed in found] == [first, first, "run_fast", "run_fast"]


async def test_events_of_two_concurrent_writers_are_read_without_gaps(url: str) -> None:
    async with desk(url) as one, desk(url) as two:

        async def write(process: ProjectionProcess) -> None:
            for number in range(30):
                name = f"{id(process)}_{number}"
                origin = Origin(RunId(f"run_{name}"), SessionId(f"ses_{name}"), AgentId("a"))
                await process.store.submit(origin, process.opening())

        writing = asyncio.gather(write(one), write(two))
        position, count = 0, 0
        while not writing.done() or await one.store.after(position):
            found = await one.store.after(position, limit=7)
            count += len(found)
            position = found[-1].position if found else position
        assert count == 120


# ── News ───────────────────────────────────────────────────────────────────────────────────────────


async def test_every_listening_process_is_notified_of_every_commit(url: str) -> None:
    """With the writer, so that it can leave out its own; in messages that are not too long."""

    heard: list[str] = []
    listening: Any = await open_connection(url, 10, {})

    def hear(_: object, __: int, ___: str, payload: str) -> None:
        heard.append(payload)

    await listening.add_listener("treadle", hear)
    async with desk(url) as process:
        claim = await process.claimed()
        await process.steer(claim.origin.run_id)
        refused = await process.advance(claim, 2, [], [make_step(1)])
        assert not refused.accepted
        await process.advance(claim, 3, [], [make_step(1)])
        await asyncio.gather(*(process.submit() for _ in range(100)))
        await listening.fetch("SELECT 1")
        told = [msgspec.json.decode(message) for message in heard]
        assert len({message["by"] for message in told}) == 1
        assert all(len(message) < 8000 for message in heard)
        runs = [run for message in told for run in message["runs"]]
        mine = claim.origin.run_id
        assert runs[:3] == [[mine, 2, False], [mine, 3, True], [mine, 4, False]]
        assert len({run_id for run_id, _, _ in runs[3:]}) == 100
    await listening.close()
