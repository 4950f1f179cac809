"""Checks for implementers of `ports.journal.Runs`."""

import asyncio
from typing import Final

from treadle.domain.ids import AgentId, SessionId
from treadle.ports.journal import Release
from treadle.testing.conformance.store import (
    StoreCheck,
    StoreHarness,
    make_step,
    open_in_one_process,
    open_in_two_processes,
)


async def a_record_matches_the_events_of_its_run(harness: StoreHarness) -> None:
    """The record summarises the events, and changes in the transaction that appends them."""
    async with open_in_two_processes(harness) as (one, two):
        origin, created = one.origin(), one.clock.now()
        await one.store.submit(origin, one.opening())
        one.clock.pass_time(5)
        claim = await one.claim(origin.run_id)
        await one.advance(claim, 2, [make_step(1)])
        record = await two.store.record(origin.run_id)
        assert (record.origin, record.created_at) == (origin, created)
        assert (record.status, record.sequence, record.waiting_for) == ("running", 3, None)
        await one.advance(claim, 3, release=Release("interrupted"))
        record = await two.store.record(origin.run_id)
        assert (record.status, record.waiting_for, record.wake_at) == ("waiting", "interrupted", None)
        await one.end(await one.claim(origin.run_id), 3)
        record = await two.store.record(origin.run_id)
        assert (record.status, record.outcome, record.sequence) == ("completed", "completed", 4)
        assert (record.waiting_for, record.wake_at) == (None, None)


async def the_newest_come_first(harness: StoreHarness) -> None:
    """`newest` returns the latest runs, ended or not, the newest first, at most `limit`."""
    async with open_in_one_process(harness) as process:
        runs = [await process.submit() for _ in range(4)]
        await process.end(await process.claim(runs[3]), 2)
        assert [record.origin.run_id for record in await process.store.find(limit=3)] == runs[:0:-1]
        assert len(await process.store.find()) == 4


async def the_unfinished_come_oldest_first(harness: StoreHarness) -> None:
    """`unfinished` returns the runs that have not ended, of one session or of all, the oldest first."""
    async with open_in_one_process(harness) as process:
        runs = [await process.submit(session) for session in ("a", "b", "a", "b")]
        await process.end(await process.claim(runs[0]), 2)
        assert [record.origin.run_id for record in await process.store.list_unfinished()] == runs[1:]
        of_b = await process.store.list_unfinished(SessionId("b"))
        assert [record.origin.run_id for record in of_b] == [runs[1], runs[3]]
        assert await process.store.list_unfinished(SessionId("ses_unknown")) == []


async def an_agent_keeps_its_id(harness: StoreHarness) -> None:
    """The id that was proposed first for a name stays, for later and for concurrent callers."""
    async with open_in_two_processes(harness) as (one, two):
        proposals = [p.store.agent("ada", AgentId(f"agt_{n}")) for n, p in enumerate((one, two, one, two))]
        first, *others = await asyncio.gather(*proposals)
        assert set(others) == {first}
        assert await two.store.agent("ada", AgentId("agt_late")) == first
        assert await one.store.agent("grace", AgentId("agt_other")) == "agt_other"


async def a_child_names_its_parent(harness: StoreHarness) -> None:
    """The parent of a run is part of its origin in records, events and claims."""
    async with open_in_one_process(harness) as process:
        parent = process.origin()
        child = type(parent)(process.origin().run_id, parent.session_id, parent.agent_id, parent.run_id)
        await process.store.submit(child, process.opening())
        assert (await process.store.record(child.run_id)).origin == child
        assert (await process.gapless(child.run_id))[0].origin == child
        assert (await process.claim(child.run_id)).origin == child


CHECKS: Final[tuple[StoreCheck, ...]] = (
    a_record_matches_the_events_of_its_run,
    the_newest_come_first,
    the_unfinished_come_oldest_first,
    an_agent_keeps_its_id,
    a_child_names_its_parent,
)
"""Every check of this port."""
