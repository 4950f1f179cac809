"""Checks for implementers of `ports.journal.Journal` and `Wakes`: how many runs of an agent go at a time."""

import asyncio
from typing import Final

from treadle.domain.events import CancelRequested
from treadle.ports.journal import LEASE_SECONDS, Release
from treadle.testing.conformance.store import (
    StoreCheck,
    StoreHarness,
    not_claimable,
    one_process,
    two_processes,
)


async def no_more_runs_than_there_are_places_are_owned(harness: StoreHarness) -> None:
    """While as many runs of an agent are owned as its spec allows, no other is claimed, by any process. A run that
    is let go of, or has ended, has no place; one that goes on needs one again."""
    async with two_processes(harness) as (one, two):
        first, second, third = [await one.submit(places=2) for _ in range(3)]
        claim, other = await one.claim(first), await two.claim(second)
        await not_claimable(one, third)
        await not_claimable(two, third)
        await one.advance(claim, 2, release=Release("approval"))
        last = await two.claim(third)
        await one.steer(first)
        await not_claimable(one, first)
        await two.end(other, 2)
        await one.end(await one.claim(first), 3)
        await two.end(last, 2)


async def the_last_place_is_taken_once(harness: StoreHarness) -> None:
    """When several runs of an agent are claimed at the same time, no more of them than there are places for."""
    async with two_processes(harness) as (one, two):
        for _ in range(8):
            both = (one, two) * 3
            runs = [await process.submit(places=2) for process in both]
            attempts = (process.claim(run_id) for run_id, process in zip(runs, both, strict=True))
            answers = await asyncio.gather(*attempts, return_exceptions=True)
            claims = [answer for answer in answers if not isinstance(answer, BaseException)]
            assert len(claims) == 2, answers
            for claim in claims:
                await one.end(claim, 2)


async def what_has_no_place_is_not_runnable(harness: StoreHarness) -> None:
    """`runnable` names as many runs of an agent as there are places for, the oldest first, so that those that must
    wait keep nobody else from being named."""
    async with one_process(harness) as process:
        runs = [await process.submit(places=2) for _ in range(5)]
        free = [await process.submit() for _ in range(2)]
        assert list(await process.store.runnable()) == [*runs[:2], *free]
        claim = await process.claim(runs[0])
        assert list(await process.store.runnable()) == [runs[1], *free]
        await process.claim(runs[1])
        assert list(await process.store.runnable(1)) == free[:1]
        await process.end(claim, 2)
        assert list(await process.store.runnable()) == [runs[2], *free]


async def who_lets_go_wakes_the_next(harness: StoreHarness) -> None:
    """A run that ends, or waits, leaves its place to the next of its agent, which is woken in the same commit."""
    async with one_process(harness) as process:
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


async def a_run_goes_by_what_its_agent_said_when_it_was_queued(harness: StoreHarness) -> None:
    """Runs of the same agent may have been queued with other limits, or none; each counts for all."""
    async with one_process(harness) as process:
        narrow, wide, free = [await process.submit(places=places) for places in (1, 2, None)]
        first = await process.claim(free)
        await not_claimable(process, narrow)
        second = await process.claim(wide)
        await process.end(first, 2)
        await not_claimable(process, narrow)
        await process.end(second, 2)
        assert process.told.wakes[-1][0] == narrow
        await process.claim(narrow)


async def an_orphan_keeps_its_place(harness: StoreHarness) -> None:
    """A run whose worker has died has its place until it is taken over, which it can be."""
    async with two_processes(harness) as (one, two):
        first, second = [await one.submit(places=1) for _ in range(2)]
        await one.claim(first)
        one.clock.pass_time(LEASE_SECONDS)
        await not_claimable(two, second)
        assert list(await two.store.runnable()) == [first]
        await two.end(await two.claim(first), 2)
        assert list(await one.store.runnable()) == [second]


async def what_was_cancelled_needs_no_place(harness: StoreHarness) -> None:
    """A run that is to be cancelled is claimed to be ended, whether there is a place for it or not."""
    async with one_process(harness) as process:
        first, second = [await process.submit(places=1) for _ in range(2)]
        await process.claim(first)
        await not_claimable(process, second)
        await process.store.deliver(second, process.draft(CancelRequested("enough")), "cancel")
        await process.end(await process.claim(second), 3)


CHECKS: Final[tuple[StoreCheck, ...]] = (
    no_more_runs_than_there_are_places_are_owned,
    the_last_place_is_taken_once,
    what_has_no_place_is_not_runnable,
    who_lets_go_wakes_the_next,
    a_run_goes_by_what_its_agent_said_when_it_was_queued,
    an_orphan_keeps_its_place,
    what_was_cancelled_needs_no_place,
)
"""Every check of this part."""
