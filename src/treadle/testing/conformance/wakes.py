"""Checks for implementers of `ports.journal.Wakes`, and of the wakes that a journal sends to its publisher."""

import asyncio
from typing import Final

from treadle.ports.journal import LEASE_SECONDS, Claim, Release
from treadle.testing.conformance.store import (
    StoreCheck,
    StoreHarness,
    check_fenced,
    check_not_claimable,
    make_step,
    open_in_one_process,
    open_in_two_processes,
)


async def a_submitted_run_is_runnable_at_once(harness: StoreHarness) -> None:
    """A new run is due for every process, and its own process is woken now. Once claimed it is not due."""
    async with open_in_two_processes(harness) as (one, two):
        run_id = await one.submit()
        assert one.told.wakes == [(run_id, one.clock.now())]
        assert list(await two.store.runnable()) == [run_id]
        await one.claim(run_id)
        assert list(await two.store.runnable()) == []


async def due_runs_do_not_depend_on_the_clock(harness: StoreHarness) -> None:
    """Runs that are due now stay due when the wall clock is set back. Only timers depend on it."""
    async with open_in_one_process(harness) as process:
        submitted = await process.submit()
        claim = await process.claimed()
        await process.advance(claim, 2, release=Release("interrupted"))
        await process.steer(claim.origin.run_id)
        process.clock.jump(-7200)
        assert set(await process.store.runnable()) == {submitted, claim.origin.run_id}


async def a_timer_wakes_its_run(harness: StoreHarness) -> None:
    """A run released with `wake_at` is due then and not before. Its process learns when to look."""
    async with open_in_two_processes(harness) as (one, two):
        claim = await one.claimed()
        run_id, at = claim.origin.run_id, one.clock.now() + 60
        await one.advance(claim, 2, release=Release("retry", at))
        assert one.told.wakes[-1] == (run_id, at)
        assert (await two.store.record(run_id)).wake_at == at
        one.clock.pass_time(59)
        assert list(await two.store.runnable()) == []
        one.clock.pass_time(1)
        assert list(await two.store.runnable()) == [run_id]


async def a_run_without_a_timer_waits_for_a_delivery(harness: StoreHarness) -> None:
    """A run released without `wake_at` is due only after a delivery."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        await process.advance(claim, 2, release=Release("interrupted"))
        process.clock.pass_time(1e6)
        assert list(await process.store.runnable()) == []
        await process.steer(run_id)
        assert process.told.wakes[-1] == (run_id, process.clock.now())
        assert list(await process.store.runnable()) == [run_id]


async def a_delivery_to_an_owned_run_reaches_its_owner(harness: StoreHarness) -> None:
    """A delivery to an owned run does not make it claimable, and the publisher receives it."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        await process.steer(claim.origin.run_id)
        assert process.told.deliveries == [claim.origin.run_id]
        assert list(await process.store.runnable()) == []
        await check_not_claimable(process, claim.origin.run_id)


async def a_delivery_is_not_forgotten_when_its_owner_dies(harness: StoreHarness) -> None:
    """The next owner sees what was delivered while the run was owned."""
    async with open_in_two_processes(harness) as (one, two):
        claim = await one.claimed()
        await two.steer(claim.origin.run_id)
        one.clock.pass_time(LEASE_SECONDS)
        assert list(await two.store.runnable()) == [claim.origin.run_id]
        assert (await two.claim(claim.origin.run_id)).events[-1].type == "message_steered"


async def an_orphan_is_runnable(harness: StoreHarness) -> None:
    """A run with an expired lease is due, whatever timer it had before."""
    async with open_in_one_process(harness) as process:
        run_id = (await process.claimed()).origin.run_id
        process.clock.pass_time(LEASE_SECONDS - 0.1)
        assert list(await process.store.runnable()) == []
        process.clock.pass_time(0.1)
        assert list(await process.store.runnable()) == [run_id]


async def only_the_first_of_a_session_is_runnable(harness: StoreHarness) -> None:
    """A run behind another of its session is not due. It becomes due, with a wake, when that one ends."""
    async with open_in_one_process(harness) as process:
        first, second, third = [await process.submit("s") for _ in range(3)]
        other = await process.submit("other")
        assert set(await process.store.runnable()) == {first, other}
        await process.steer(second)
        assert set(await process.store.runnable()) == {first, other}
        await process.end(await process.claim(first), 2)
        assert process.told.wakes[-1] == (second, process.clock.now())
        assert set(await process.store.runnable()) == {second, other}
        await process.end(await process.claim(second), 3)
        assert process.told.wakes[-1][0] == third
        assert set(await process.store.runnable()) == {third, other}


async def an_ended_run_is_never_runnable(harness: StoreHarness) -> None:
    """Nothing makes an ended run due."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        await process.end(claim, 2)
        await process.steer(claim.origin.run_id)
        process.clock.pass_time(1e6)
        assert list(await process.store.runnable()) == []


async def runnable_is_limited(harness: StoreHarness) -> None:
    """`runnable` returns at most `limit` runs, the oldest first, so that none waits forever."""
    async with open_in_one_process(harness) as process:
        runs = [await process.submit() for _ in range(5)]
        assert list(await process.store.runnable(3)) == runs[:3]
        await process.claim(runs[0])
        assert list(await process.store.runnable(3)) == runs[1:4]


async def renewing_extends_only_own_leases(harness: StoreHarness) -> None:
    """`renew` extends the leases of this worker's runs only, and returns them."""
    async with open_in_two_processes(harness) as (one, two):
        ours = {(await one.claimed()).origin.run_id for _ in range(3)}
        theirs = (await two.claimed()).origin.run_id
        one.clock.pass_time(LEASE_SECONDS - 1)
        assert set(await one.store.renew("worker-1")) == ours
        one.clock.pass_time(2)
        assert list(await one.store.runnable()) == [theirs]
        for run_id in ours:
            await check_not_claimable(two, run_id)
        assert list(await one.store.renew("worker-3")) == []


async def renew_does_not_name_lost_runs(harness: StoreHarness) -> None:
    """`renew` does not return a run that was taken over, released or ended."""
    async with open_in_two_processes(harness) as (one, two):
        lost, released, ended, kept = [await one.claimed() for _ in range(4)]
        await one.advance(released, 2, release=Release("interrupted"))
        await one.end(ended, 2)
        assert set(await one.store.renew("worker-1")) == {lost.origin.run_id, kept.origin.run_id}
        one.clock.pass_time(LEASE_SECONDS)
        await two.claim(lost.origin.run_id)
        assert list(await one.store.renew("worker-1")) == [kept.origin.run_id]
        await check_fenced(one.advance(lost, 2, [make_step(1)]))
        assert (await one.advance(kept, 2, [make_step(1)])).accepted


async def a_run_is_renewed_or_taken_over(harness: StoreHarness) -> None:
    """When an expired lease is renewed and claimed at the same time, one of them gets the run: `renew` returns it,
    or the claim succeeds, and not both."""
    async with open_in_one_process(harness) as process:
        run_id = (await process.claimed()).origin.run_id
        process.clock.pass_time(LEASE_SECONDS)
        named, claim = await asyncio.gather(
            process.store.renew("worker-1"), process.store.claim(run_id, "worker-2"), return_exceptions=True
        )
        taken_over = isinstance(claim, Claim)
        assert named == ([] if taken_over else [run_id]), f"named by renew: {named}; taken over: {taken_over}"


CHECKS: Final[tuple[StoreCheck, ...]] = (
    a_submitted_run_is_runnable_at_once,
    due_runs_do_not_depend_on_the_clock,
    a_timer_wakes_its_run,
    a_run_without_a_timer_waits_for_a_delivery,
    a_delivery_to_an_owned_run_reaches_its_owner,
    a_delivery_is_not_forgotten_when_its_owner_dies,
    an_orphan_is_runnable,
    only_the_first_of_a_session_is_runnable,
    an_ended_run_is_never_runnable,
    runnable_is_limited,
    renewing_extends_only_own_leases,
    renew_does_not_name_lost_runs,
    a_run_is_renewed_or_taken_over,
)
"""Every check of this port."""
