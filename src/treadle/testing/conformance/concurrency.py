"""Checks for implementers of `ports.journal.Journal` and `Wakes`: how many runs of an agent execute at a time."""

import asyncio
from typing import Final

from treadle.domain.events import CancelRequested
from treadle.ports.journal import LEASE_SECONDS, Release
from treadle.testing.conformance.store import (
    StoreCheck,
    StoreHarness,
    check_not_claimable,
    open_in_one_process,
    open_in_two_processes,
)


async def no_more_runs_are_owned_than_allowed(harness: StoreHarness) -> None:
    """While as many runs of an agent are owned as its spec allows, no process can claim another. A released or
    ended run frees its slot; a run that continues needs one again."""
    async with open_in_two_processes(harness) as (one, two):
        first, second, third = [await one.submit(places=2) for _ in range(3)]
        claim, other = await one.claim(first), await two.claim(second)
        await check_not_claimable(one, third)
        await check_not_claimable(two, third)
        await one.advance(claim, 2, release=Release("approval"))
        last = await two.claim(third)
        await one.steer(first)
        await check_not_claimable(one, first)
        await two.end(other, 2)
        await one.end(await one.claim(first), 3)
        await two.end(last, 2)


async def the_last_slot_is_taken_once(harness: StoreHarness) -> None:
    """When several runs of an agent are claimed at the same time, no more succeed than there are slots."""
    async with open_in_two_processes(harness) as (one, two):
        for _ in range(8):
            both = (one, two) * 3
            runs = [await process.submit(places=2) for process in both]
            attempts = (process.claim(run_id) for run_id, process in zip(runs, both, strict=True))
            answers = await asyncio.gather(*attempts, return_exceptions=True)
            claims = [answer for answer in answers if not isinstance(answer, BaseException)]
            assert len(claims) == 2, answers
            for claim in claims:
                await one.end(claim, 2)


async def a_run_without_a_slot_is_not_runnable(harness: StoreHarness) -> None:
    """`runnable` names as many runs of an agent as there are slots, the oldest first, so that waiting runs do not
    hide others."""
    async with open_in_one_process(harness) as process:
        runs = [await process.submit(places=2) for _ in range(5)]
        free = [await process.submit() for _ in range(2)]
        assert list(await process.store.runnable()) == [*runs[:2], *free]
        claim = await process.claim(runs[0])
        assert list(await process.store.runnable()) == [runs[1], *free]
        await process.claim(runs[1])
        assert list(await process.store.runnable(1)) == free[:1]
        await process.end(claim, 2)
        assert list(await process.store.runnable()) == [runs[2], *free]


async def a_released_slot_wakes_the_next_run(harness: StoreHarness) -> None:
    """A run that ends or waits leaves its slot to the next run of its agent, which is woken in the same commit."""
    async with open_in_one_process(harness) as process:
        first, second, third, fourth = [await process.submit(session, places=1) for session in ("s", "t", "u", "s")]
        claim = await process.claim(first)
        process.told.wakes.clear()
        await process.advance(claim, 2, release=Release("approval"))
        assert process.told.wakes == [(second, process.clock.now())]
        await process.end(await process.claim(second), 2)
        assert process.told.wakes[1:] == [(third, process.clock.now())]
        await process.end(await process.claim(third), 2)
        await process.steer(first)
        process.told.wakes.clear()
        await process.end(await process.claim(first), 3)
        assert set(process.told.wakes) == {(fourth, process.clock.now())}, "also in its session"


async def a_run_uses_the_limits_from_when_it_was_queued(harness: StoreHarness) -> None:
    """Runs of the same agent may have been queued with other limits or none. Each counts for all."""
    async with open_in_one_process(harness) as process:
        narrow, wide, free = [await process.submit(places=places) for places in (1, 2, None)]
        first = await process.claim(free)
        await check_not_claimable(process, narrow)
        second = await process.claim(wide)
        await process.end(first, 2)
        await check_not_claimable(process, narrow)
        await process.end(second, 2)
        assert process.told.wakes[-1][0] == narrow
        await process.claim(narrow)


async def an_orphan_keeps_its_slot(harness: StoreHarness) -> None:
    """A run whose worker has died keeps its slot until it is taken over."""
    async with open_in_two_processes(harness) as (one, two):
        first, second = [await one.submit(places=1) for _ in range(2)]
        await one.claim(first)
        one.clock.pass_time(LEASE_SECONDS)
        await check_not_claimable(two, second)
        assert list(await two.store.runnable()) == [first]
        await two.end(await two.claim(first), 2)
        assert list(await one.store.runnable()) == [second]


async def a_cancelled_run_needs_no_slot(harness: StoreHarness) -> None:
    """A run that is to be cancelled can be claimed to end it, whether or not there is a slot."""
    async with open_in_one_process(harness) as process:
        first, second = [await process.submit(places=1) for _ in range(2)]
        await process.claim(first)
        await check_not_claimable(process, second)
        await process.store.deliver(second, process.draft(CancelRequested("enough")), "cancel")
        await process.end(await process.claim(second), 3)


CHECKS: Final[tuple[StoreCheck, ...]] = (
    no_more_runs_are_owned_than_allowed,
    the_last_slot_is_taken_once,
    a_run_without_a_slot_is_not_runnable,
    a_released_slot_wakes_the_next_run,
    a_run_uses_the_limits_from_when_it_was_queued,
    an_orphan_keeps_its_slot,
    a_cancelled_run_needs_no_slot,
)
"""Every check of this part."""
