"""Checks for implementers of `ports.journal.Journal`: submitting a run, and owning it."""

import asyncio
from typing import Final

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import SessionContinued
from treadle.domain.events import RunQueued, RunStart, SegmentOpened
from treadle.domain.ids import RunId, SegmentId, SessionId
from treadle.domain.messages import user
from treadle.domain.runs import RunPart
from treadle.ports.journal import (
    LEASE_SECONDS,
    RECENT_DEATH_SECONDS,
    Advance,
    Death,
    Release,
    RunFilter,
    SessionFacts,
)
from treadle.testing.conformance.store import (
    END,
    OPENING,
    StoreCheck,
    StoreHarness,
    check_not_claimable,
    check_unknown,
    make_step,
    open_in_one_process,
    open_in_two_processes,
)

# ── Submit ─────────────────────────────────────────────────────────────────────────────────────────


async def a_submitted_run_is_pending(harness: StoreHarness) -> None:
    """`submit` creates a pending run without an owner, with its events from sequence 1 on."""
    async with open_in_one_process(harness) as process:
        origin = process.origin()
        run_id = await process.store.submit(origin, process.opening())
        assert run_id == origin.run_id
        record = await process.store.record(run_id)
        assert (record.origin, record.status, record.outcome) == (origin, "pending", None)
        assert record.sequence == 2
        assert await process.types(run_id) == OPENING


async def a_submission_key_creates_one_run(harness: StoreHarness) -> None:
    """The same key again creates nothing and returns the first run, also later, from another worker, and
    concurrently."""
    async with open_in_two_processes(harness) as (one, two):
        first, *others = await asyncio.gather(*(p.submit(key="k") for p in (one, two, one, two)))
        assert set(others) == {first}
        assert await two.submit(session="another", key="k") == first
        assert await one.submit(key="other") != first
        assert await one.submit() != await one.submit()
        assert await two.types(first) == OPENING
        assert len(await one.store.find()) == 4


async def one_run_follows_the_latest_of_a_session(harness: StoreHarness) -> None:
    """Of several submissions that follow the same run, concurrently and in two processes, one continues its
    session. In a session without runs, each is accepted."""
    async with open_in_two_processes(harness) as (one, two):
        first = await one.submit(session="s")
        queued = RunQueued(AgentSpec("conformance", "none"), follows=RunPart(first))
        found = await asyncio.gather(
            *(each.store.submit(each.origin("s"), (each.draft(queued),)) for each in (one, two, one, two)),
            return_exceptions=True,
        )
        assert [isinstance(each, SessionContinued) for each in found].count(False) == 1
        assert len(await one.store.find(RunFilter(session_id=SessionId("s")))) == 2
        assert await two.store.submit(two.origin("other"), (two.draft(queued),))


async def submitted_events_are_read_back(harness: StoreHarness) -> None:
    """`read` returns the events as they were appended: ids, times, types and data."""
    async with open_in_one_process(harness) as process:
        drafts = process.opening()
        origin = process.origin()
        await process.store.submit(origin, drafts)
        for made, event in zip(drafts, await process.gapless(origin.run_id), strict=True):
            assert (event.event_id, event.timestamp, event.type) == (made.event_id, made.timestamp, made.type)
            assert (event.data, event.raw, event.origin) == (made.data, made.raw, origin)


# ── Claim ──────────────────────────────────────────────────────────────────────────────────────────


async def a_claim_opens_an_epoch(harness: StoreHarness) -> None:
    """`claim` returns all events so far and a higher epoch each time. A pending run is running then."""
    async with open_in_one_process(harness) as process:
        run_id = await process.submit()
        await process.steer(run_id)
        claim = await process.claim(run_id)
        assert [event.type for event in claim.events] == [*OPENING, "message_steered"]
        assert list(claim.events) == list(await process.gapless(run_id))
        assert (claim.session, claim.death) == (SessionFacts(), None)
        assert (await process.store.record(run_id)).status == "running"
        await process.advance(claim, 3, release=Release(wake_at=process.clock.now()))
        assert (await process.claim(run_id)).epoch > claim.epoch


async def a_session_has_a_history(harness: StoreHarness) -> None:
    """`history` returns what earlier runs of the session said, in order, and nothing of other sessions. `claim`
    names the last of them."""
    async with open_in_one_process(harness) as process:
        for session, said in (("s", "first"), ("other", "elsewhere"), ("s", "second")):
            last = await process.claimed(session)
            await process.end(last, 2, said)
        claim = await process.claimed("s")
        assert [message.text for message in await process.store.history(claim.origin.run_id)] == ["first", "second"]
        assert claim.session.last == last.origin.run_id


async def a_complete_conversation_replaces_the_history(harness: StoreHarness) -> None:
    """After a run that stores the complete conversation, later runs get that and what follows. Earlier runs are
    not affected."""
    async with open_in_one_process(harness) as process:
        first = await process.claimed("s")
        await process.end(first, 2, "first")
        second = await process.claimed("s")
        opened = SegmentOpened(SegmentId("seg_2"), SegmentId("seg_1"), "compaction", 1)
        whole = Release(said=(user("all of it"),), whole=True)
        await process.advance(second, 2, intents=[opened, END], release=whole)
        third = await process.claimed("s")
        assert third.session.segment == opened
        await process.end(third, 2, "third")
        fourth = await process.claimed("s")
        said = [message.text for message in await process.store.history(fourth.origin.run_id)]
        assert said == ["all of it", "third"]
        assert [message.text for message in await process.store.history(second.origin.run_id)] == ["first"]
        assert (await process.claimed("other")).session == SessionFacts()


async def a_session_keeps_its_notes_until_a_new_segment(harness: StoreHarness) -> None:
    """Later runs of a session get the workspace notes with which a run started, until a new segment starts."""
    async with open_in_one_process(harness) as process:
        first = await process.claimed("s")
        start = RunStart((), (), "notes", "/work")
        await process.advance(first, 2, intents=[start, END], release=Release(said=()))
        second = await process.claimed("s")
        assert second.session.notes == ("/work", "notes")
        opened = SegmentOpened(SegmentId("seg_2"), SegmentId("seg_1"), "reset")
        await process.advance(second, 2, intents=[opened, END], release=Release(said=(), whole=True))
        assert (await process.claimed("s")).session.notes is None


async def a_leased_run_cannot_be_claimed(harness: StoreHarness) -> None:
    """While a worker holds the lease, no other worker gets the run, nor the same worker a second time."""
    async with open_in_two_processes(harness) as (one, two):
        claim = await one.claimed()
        one.clock.pass_time(LEASE_SECONDS - 0.1)
        await check_not_claimable(two, claim.origin.run_id)
        await check_not_claimable(one, claim.origin.run_id)
        assert (await one.advance(claim, 2, [make_step(1)])).accepted


async def one_of_many_claims_wins(harness: StoreHarness) -> None:
    """When several workers claim at the same time, exactly one gets the run."""
    async with open_in_two_processes(harness) as (one, two):
        run_id = await one.submit()
        answers = await asyncio.gather(*(p.claim(run_id) for p in (one, two) * 5), return_exceptions=True)
        assert sum(not isinstance(answer, BaseException) for answer in answers) == 1, answers


async def an_expired_lease_can_be_claimed(harness: StoreHarness) -> None:
    """After the lease has expired another worker may claim the run, and learns that it recovers it."""
    async with open_in_two_processes(harness) as (one, two):
        first = await one.claimed()
        one.clock.pass_time(LEASE_SECONDS)
        second = await two.claim(first.origin.run_id)
        assert second.death == Death(alone=True, lately=1)
        assert second.epoch > first.epoch
        await check_not_claimable(one, first.origin.run_id)


async def a_claim_after_a_death_says_whether_other_runs_were_owned(harness: StoreHarness) -> None:
    """The claim says whether the dead worker owned other runs, also after those were claimed again, and how many
    workers have died recently."""
    async with open_in_two_processes(harness) as (one, two):
        runs = [(await one.claimed(f"ses_{number}")).origin.run_id for number in range(2)]
        one.clock.pass_time(LEASE_SECONDS)
        claims = [await two.claim(run_id) for run_id in runs]
        assert [claim.death for claim in claims] == [Death(alone=False, lately=1)] * 2
        await two.advance(claims[0], 2, release=Release())
        two.clock.pass_time(LEASE_SECONDS)
        assert (await one.claim(runs[1])).death == Death(alone=True, lately=2)
        one.clock.pass_time(RECENT_DEATH_SECONDS)
        again = await two.claim(runs[1])
        assert again.death is not None
        assert again.death.lately == 1


async def deaths_of_another_run_alone_count_once(harness: StoreHarness) -> None:
    """A run that kills its workers again and again explains these deaths: they are no evidence of another cause."""
    async with open_in_two_processes(harness) as (one, two):
        deadly, other, third = [await one.submit(f"ses_{name}") for name in ("deadly", "other", "third")]
        for number in range(4):
            death = (await one.store.claim(deadly, f"deadly_{number}")).death
            assert death == (Death(alone=True, lately=number) if number else None)
            one.clock.pass_time(LEASE_SECONDS)
        await one.store.claim(other, "other")
        one.clock.pass_time(LEASE_SECONDS)
        assert (await two.store.claim(other, "last")).death == Death(alone=True, lately=2)
        assert (await two.store.claim(deadly, "next")).death == Death(alone=True, lately=5)
        await one.store.claim(third, "next")
        one.clock.pass_time(LEASE_SECONDS)
        assert (await two.store.claim(deadly, "end")).death == Death(alone=False, lately=6)
        assert (await two.store.claim(third, "end")).death == Death(alone=False, lately=3)


async def a_released_run_can_be_claimed(harness: StoreHarness) -> None:
    """Any worker can claim a released run at once, and does not recover it. The run keeps waiting until its new
    owner decides: it may find that it still must wait."""
    async with open_in_two_processes(harness) as (one, two):
        first = await one.claimed()
        await one.advance(first, 2, [make_step(1)], release=Release("retry", wake_at=one.clock.now() + 60))
        record = await two.store.record(first.origin.run_id)
        assert (record.status, record.waiting_for) == ("waiting", "retry")
        second = await two.claim(first.origin.run_id)
        assert second.death is None
        record = await two.store.record(first.origin.run_id)
        assert (record.status, record.waiting_for) == ("waiting", "retry")
        await two.advance(second, 3, intents=[make_step(2)])
        record = await two.store.record(first.origin.run_id)
        assert (record.status, record.waiting_for) == ("running", None)


async def an_ended_run_cannot_be_claimed(harness: StoreHarness) -> None:
    """No worker gets a run that has ended, however long ago."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        await process.end(claim, 2)
        await check_not_claimable(process, claim.origin.run_id)
        process.clock.pass_time(10 * LEASE_SECONDS)
        await check_not_claimable(process, claim.origin.run_id)


async def a_session_runs_in_order(harness: StoreHarness) -> None:
    """A run cannot be claimed before every earlier run of its session has ended, whether that is pending, owned,
    orphaned or waiting. Other sessions do not matter."""
    async with open_in_two_processes(harness) as (one, two):
        first, second, third = [await one.submit("s") for _ in range(3)]
        await two.claimed("other")
        await check_not_claimable(two, second)
        claim = await one.claim(first)
        await check_not_claimable(two, second)
        one.clock.pass_time(LEASE_SECONDS)
        await check_not_claimable(two, second)
        await one.advance(claim, 2, release=Release("interrupted"))
        await check_not_claimable(two, second)
        await one.end(await one.claim(first), 2)
        await check_not_claimable(two, third)
        await one.end(await two.claim(second), 2)
        await two.claim(third)


async def a_missing_run_is_unknown(harness: StoreHarness) -> None:
    """Every method that names a run raises UnknownRun if there is none with that id."""
    async with open_in_one_process(harness) as process:
        nowhere = RunId("run_nowhere")
        await check_unknown(process.claim(nowhere))
        await check_unknown(process.steer(nowhere))
        await check_unknown(process.store.read(nowhere))
        await check_unknown(process.store.record(nowhere))
        await check_unknown(process.store.advance(Advance(nowhere, 1, 0)))


CHECKS: Final[tuple[StoreCheck, ...]] = (
    a_submitted_run_is_pending,
    a_submission_key_creates_one_run,
    one_run_follows_the_latest_of_a_session,
    submitted_events_are_read_back,
    a_claim_opens_an_epoch,
    a_session_has_a_history,
    a_complete_conversation_replaces_the_history,
    a_session_keeps_its_notes_until_a_new_segment,
    a_leased_run_cannot_be_claimed,
    one_of_many_claims_wins,
    an_expired_lease_can_be_claimed,
    a_claim_after_a_death_says_whether_other_runs_were_owned,
    deaths_of_another_run_alone_count_once,
    a_released_run_can_be_claimed,
    an_ended_run_cannot_be_claimed,
    a_session_runs_in_order,
    a_missing_run_is_unknown,
)
"""Every check of this part."""
