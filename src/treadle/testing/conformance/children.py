"""Checks for implementers of `ports.journal.Journal`: the runs that an advance starts, and its deliveries to other
runs."""

import asyncio
from typing import Final

from treadle.domain.events import CancelRequested
from treadle.domain.ids import RunId
from treadle.ports.accounts import Ceilings, Reserve
from treadle.ports.journal import LEASE_SECONDS, Release, RunFilter
from treadle.testing.conformance.store import (
    END,
    OPENING,
    StoreCheck,
    StoreHarness,
    check_fenced,
    check_not_claimable,
    check_unknown,
    make_step,
    open_in_one_process,
    open_in_two_processes,
)

# ── Start ──────────────────────────────────────────────────────────────────────────────────────────


async def a_child_run_starts_with_the_intents(harness: StoreHarness) -> None:
    """Runs that an advance starts exist when it returns: each with its first events from sequence 1, under its
    parent, published, woken, and claimable by any worker."""
    async with open_in_two_processes(harness) as (one, two):
        claim = await one.claimed()
        first, second = one.child(claim), one.child(claim)
        advanced = await one.advance(claim, 2, [make_step(1)], [make_step(2)], begin=(first, second))
        assert (advanced.accepted, advanced.sequence) == (True, 4)
        for new in (first, second):
            run_id = new.origin.run_id
            assert await two.types(run_id) == OPENING
            assert [event.origin for event in await two.gapless(run_id)] == [new.origin] * 2
            assert [(number, type_) for number, type_, _ in one.told.list_published(run_id)] == [
                *enumerate(OPENING, 1)
            ]
            assert (run_id, one.clock.now()) in one.told.wakes
            assert run_id in await two.store.runnable()
        assert (await two.claim(first.origin.run_id)).origin == first.origin
        under = RunFilter(parent_run_id=claim.origin.run_id)
        found = [record.origin.run_id for record in await two.store.find(under)]
        assert found == [second.origin.run_id, first.origin.run_id]


async def a_child_run_waits_for_its_session(harness: StoreHarness) -> None:
    """This also holds for two runs of one session in one advance: the first comes first."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        both = process.child(claim, "shared"), process.child(claim, "shared")
        await process.advance(claim, 2, [], [make_step(1)], begin=both)
        first, second = (new.origin.run_id for new in both)
        await check_not_claimable(process, second)
        await process.end(await process.claim(first), 2)
        assert (await process.claim(second)).origin.run_id == second


async def a_refused_advance_starts_nothing(harness: StoreHarness) -> None:
    """If the intents are refused, because of an unseen delivery or a short account, the facts are recorded,
    nothing starts and nothing is delivered."""
    async with open_in_one_process(harness) as process:
        claim, other = await process.claimed(), await process.submit()
        child, told = process.child(claim), process.tell(other, "stop")
        full = Reserve((Ceilings("tree/one", runs=0),), runs=1)
        short = await process.advance(claim, 2, [make_step(1)], [make_step(2)], None, full, (child,), (told,))
        assert short.refused is not None
        assert (short.refused.kind, short.refused.wanted) == ("runs", 1)
        await process.steer(claim.origin.run_id)
        unseen = await process.advance(claim, 3, [make_step(3)], [make_step(4)], begin=(child,), tell=(told,))
        assert (unseen.accepted, unseen.refused, unseen.sequence) == (False, None, 5)
        await check_unknown(process.store.read(child.origin.run_id))
        assert process.told.list_published(child.origin.run_id) == []
        assert await process.types(other) == OPENING
        again = await process.advance(claim, 5, [], [make_step(5)], begin=(child,), tell=(told,))
        assert again.accepted
        assert await process.types(child.origin.run_id) == OPENING


async def a_fenced_worker_starts_and_delivers_nothing(harness: StoreHarness) -> None:
    """Nothing from a worker whose run was taken over happens."""
    async with open_in_two_processes(harness) as (one, two):
        old, other = await one.claimed(), await one.submit()
        child = one.child(old)
        one.clock.pass_time(LEASE_SECONDS)
        await two.claim(old.origin.run_id)
        await check_fenced(one.advance(old, 2, [], [make_step(1)], begin=(child,), tell=(one.tell(other, "stop"),)))
        await check_unknown(two.store.read(child.origin.run_id))
        assert await two.types(other) == OPENING


async def a_release_can_start_runs_and_deliver(harness: StoreHarness) -> None:
    """A release can start runs and deliver to others, even if it ends the run."""
    async with open_in_one_process(harness) as process:
        claim, other = await process.claimed(), await process.submit()
        child = process.child(claim)
        told = process.tell(other, "stop")
        await process.advance(claim, 2, [], [make_step(1)], Release("child"), begin=(child,), tell=(told,))
        assert await process.types(other) == [*OPENING, "cancel_requested"]
        mine = await process.claim(child.origin.run_id)
        up = process.tell(claim.origin.run_id, "it has ended")
        await process.advance(mine, 2, [], [END], Release(said=()), tell=(up,))
        assert (await process.store.record(child.origin.run_id)).outcome == "completed"
        assert await process.types(claim.origin.run_id) == [*OPENING, "step_start", "cancel_requested"]
        assert claim.origin.run_id in await process.store.runnable()


# ── Deliver to other runs ──────────────────────────────────────────────────────────────────────────


async def a_delivery_to_another_run_happens_once_per_key(harness: StoreHarness) -> None:
    """A delivery is stored, published and wakes the run. The same key again has no effect, whatever its source.
    Keys of other runs do not matter."""
    async with open_in_two_processes(harness) as (one, two):
        mine, yours = await one.claimed(), await two.claimed()
        target, other = await one.submit(), await one.submit()
        first = await one.advance(mine, 2, [], [make_step(1)], tell=(one.tell(target, "stop", "k"),))
        assert first.accepted
        assert one.told.deliveries == [target]
        assert (target, one.clock.now()) in one.told.wakes
        assert [type_ for _, type_, _ in one.told.list_published(target)] == [*OPENING, "cancel_requested"]
        again = await two.advance(yours, 2, [], [make_step(1)], tell=(two.tell(target, "again", "k"),))
        assert again.accepted, "a repeated delivery does not stop its sender"
        assert two.told.deliveries == []
        assert await two.steer(target, key="k") == 3
        await one.advance(mine, 3, [], [make_step(2)], tell=(one.tell(other, "stop", "k"),))
        assert await one.types(target) == await one.types(other) == [*OPENING, "cancel_requested"]


async def an_ended_or_missing_run_receives_nothing(harness: StoreHarness) -> None:
    """The sender continues all the same."""
    async with open_in_one_process(harness) as process:
        claim, ended, last = await process.claimed(), await process.claimed(), await process.submit()
        await process.end(ended, 2)
        targets = (ended.origin.run_id, RunId("run_nowhere"), last)
        told = [process.tell(run_id, "stop") for run_id in targets]
        assert (await process.advance(claim, 2, [], [make_step(1)], tell=told)).accepted
        assert await process.types(ended.origin.run_id) == [*OPENING, "run_end"]
        assert await process.types(last) == [*OPENING, "cancel_requested"]
        assert process.told.deliveries == [last]


async def a_run_receives_deliveries_whoever_owns_it(harness: StoreHarness) -> None:
    """Its owner, in this or another process, sees it like any delivery, and stays the owner."""
    async with open_in_two_processes(harness) as (one, two):
        teller, near, far = await one.claimed(), await one.claimed(), await two.claimed()
        told = [one.tell(claim.origin.run_id, "stop") for claim in (near, far)]
        assert (await one.advance(teller, 2, [], [make_step(1)], tell=told)).accepted
        for process, claim in ((one, near), (two, far)):
            await check_not_claimable(one, claim.origin.run_id)
            met = await process.advance(claim, 2, [make_step(1)], [make_step(2)])
            assert (met.accepted, met.sequence) == (False, 4)
            assert [event.data for event in met.delivered] == [CancelRequested("stop")]
            assert (await process.end(claim, 4)).accepted


async def concurrent_deliveries_to_one_run_all_arrive(harness: StoreHarness) -> None:
    """Many runs end at the same time and deliver to the same run: it receives each once, without gaps."""
    async with open_in_two_processes(harness) as both:
        target = await both[0].claimed()
        claims = [await both[number % 2].claimed() for number in range(20)]
        await asyncio.gather(
            *(
                both[number % 2].advance(
                    claim,
                    2,
                    [],
                    [make_step(1)],
                    tell=(both[number % 2].tell(target.origin.run_id, f"from {number}"),),
                )
                for number, claim in enumerate(claims)
            )
        )
        heard = [event.data for event in (await both[1].gapless(target.origin.run_id))[2:]]
        assert sorted(str(data) for data in heard) == sorted(str(CancelRequested(f"from {n}")) for n in range(20))


CHECKS: Final[tuple[StoreCheck, ...]] = (
    a_child_run_starts_with_the_intents,
    a_child_run_waits_for_its_session,
    a_refused_advance_starts_nothing,
    a_fenced_worker_starts_and_delivers_nothing,
    a_release_can_start_runs_and_deliver,
    a_delivery_to_another_run_happens_once_per_key,
    an_ended_or_missing_run_receives_nothing,
    a_run_receives_deliveries_whoever_owns_it,
    concurrent_deliveries_to_one_run_all_arrive,
)
"""Every check of this part."""
