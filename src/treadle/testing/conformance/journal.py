"""Checks for implementers of `ports.journal.Journal`: appending, as the owner and as others, and reading."""

import asyncio
from typing import Final

import msgspec

from treadle.domain.envelope import Draft
from treadle.domain.errors import TreadleError
from treadle.domain.events import CancelRequested, RunQueued, ToolCallStart, UnknownEvent
from treadle.domain.ids import EventId, RunId
from treadle.domain.messages import Message, Text
from treadle.ports.journal import ANY, LEASE_SECONDS, Advance, Release
from treadle.testing.conformance.store import (
    END,
    OPENING,
    StoreCheck,
    StoreHarness,
    check_fenced,
    check_not_claimable,
    make_step,
    open_in_one_process,
    open_in_two_processes,
)

# ── Advance ────────────────────────────────────────────────────────────────────────────────────────


async def an_advance_appends_facts_then_intents(harness: StoreHarness) -> None:
    """Without deliveries, facts and then intents are appended, and the last sequence is returned."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        advanced = await process.advance(claim, 2, [make_step(1), make_step(2)], [CancelRequested("an intent")])
        assert (advanced.accepted, advanced.delivered, advanced.sequence) == (True, (), 5)
        assert await process.types(claim.origin.run_id) == [*OPENING, *["step_start"] * 2, "cancel_requested"]
        assert (await process.advance(claim, 5)).sequence == 5
        assert (await process.store.record(claim.origin.run_id)).sequence == 5


async def a_stale_epoch_is_fenced(harness: StoreHarness) -> None:
    """A worker whose run was taken over is refused with Fenced, and nothing is written: no facts, no intents, no
    release. The new owner does not notice."""
    async with open_in_two_processes(harness) as (one, two):
        old = await one.claimed()
        one.clock.pass_time(LEASE_SECONDS)
        new = await two.claim(old.origin.run_id)
        await check_fenced(one.advance(old, 2, [make_step(1)], [make_step(2)]))
        await check_fenced(one.advance(old, ANY, [make_step(1)], release=Release(wake_at=one.clock.now())))
        await check_fenced(one.end(old, 2))
        await check_fenced(one.advance(old, 2))
        assert await two.types(new.origin.run_id) == OPENING
        assert [type_ for _, type_, _ in one.told.list_published(new.origin.run_id)] == OPENING
        await check_not_claimable(one, new.origin.run_id)
        assert (await two.advance(new, 2, [make_step(3)])).sequence == 3


async def an_unknown_epoch_is_fenced(harness: StoreHarness) -> None:
    """A future epoch, or an epoch of an unclaimed run, is as invalid as a stale one."""
    async with open_in_one_process(harness) as process:
        run_id = await process.submit()
        fact = (process.draft(make_step(1)),)
        await check_fenced(process.store.advance(Advance(run_id, 1, 2, fact)))
        claim = await process.claim(run_id)
        await check_fenced(process.store.advance(Advance(run_id, claim.epoch + 1, 2, fact)))
        assert await process.types(run_id) == OPENING


async def nothing_follows_the_end(harness: StoreHarness) -> None:
    """After `run_end` an advance is refused and a delivery returns None for every caller. The record says how the
    run ended."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        assert (await process.end(claim, 2)).accepted
        await check_fenced(process.advance(claim, 3, [make_step(1)]))
        await check_fenced(process.advance(claim, ANY, release=Release(wake_at=process.clock.now())))
        assert await process.steer(run_id) is None
        assert await process.types(run_id) == [*OPENING, "run_end"]
        record = await process.store.record(run_id)
        assert (record.status, record.outcome, record.sequence) == ("completed", "completed", 3)


async def intents_wait_for_deliveries(harness: StoreHarness) -> None:
    """An advance that meets unseen deliveries records its facts after them, and not its intents. It returns the
    deliveries, complete and in order. The owner may continue after folding them."""
    async with open_in_two_processes(harness) as (one, two):
        claim = await one.claimed()
        run_id = claim.origin.run_id
        await two.steer(run_id, "one")
        await two.steer(run_id, "two")
        advanced = await one.advance(claim, 2, [make_step(1)], [ToolCallStart("c", "t", "{}", "k")])
        assert not advanced.accepted
        assert advanced.sequence == 5
        assert list(advanced.delivered) == list(await one.store.read(run_id, 2, 2))
        assert await one.types(run_id) == [*OPENING, "message_steered", "message_steered", "step_start"]
        again = await one.advance(claim, 5, (), [ToolCallStart("c", "t", "{}", "k")])
        assert (again.accepted, again.delivered, again.sequence) == (True, (), 6)


async def an_end_waits_for_deliveries(harness: StoreHarness) -> None:
    """A release, even one that ends the run, is refused together with its intents. The run stays with its owner,
    and no acknowledged delivery is left unseen after an end."""
    async with open_in_two_processes(harness) as (one, two):
        claim = await one.claimed()
        run_id = claim.origin.run_id
        await two.steer(run_id)
        assert not (await one.end(claim, 2)).accepted
        assert not (await one.advance(claim, 2, release=Release("interrupted"))).accepted
        await check_not_claimable(two, run_id)
        assert (await two.store.record(run_id)).outcome is None
        assert (await one.end(claim, 3)).accepted
        assert await one.types(run_id) == [*OPENING, "message_steered", "run_end"]


async def a_worker_that_must_stop_may_release(harness: StoreHarness) -> None:
    """With `ANY` for `seen` a release succeeds whatever was delivered."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        await process.steer(run_id)
        assert (
            await process.advance(claim, ANY, [make_step(1)], release=Release(wake_at=process.clock.now()))
        ).accepted
        assert (await process.claim(run_id)).death is None
        assert await process.types(run_id) == [*OPENING, "message_steered", "step_start"]


async def a_released_run_no_longer_belongs_to_its_worker(harness: StoreHarness) -> None:
    """A worker that has released a run is refused like any non-owner, even if the run was not claimed since: its
    append would be out of order."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        await process.advance(claim, 2, release=Release(wake_at=process.clock.now()))
        await check_fenced(process.advance(claim, 2, [make_step(1)]))
        assert await process.types(claim.origin.run_id) == OPENING


# ── Deliver ────────────────────────────────────────────────────────────────────────────────────────


async def a_delivery_is_stored_once(harness: StoreHarness) -> None:
    """The same key appends nothing the second time and returns the first sequence, also concurrently and after the
    run has ended. Keys of other runs do not matter."""
    async with open_in_two_processes(harness) as (one, two):
        claim = await one.claimed()
        run_id, other = claim.origin.run_id, await two.submit()
        answers = await asyncio.gather(*(p.steer(run_id, key="k") for p in (one, two, one, two)))
        assert answers == [3, 3, 3, 3]
        assert await two.steer(run_id, key="another") == 4
        assert await two.steer(other, key="k") == 3
        await one.end(claim, 4)
        assert await two.steer(run_id, key="k") == 3
        assert await two.steer(run_id, key="new") is None
        assert await two.types(run_id) == [*OPENING, "message_steered", "message_steered", "run_end"]


async def a_delivery_to_the_owner_counts_like_any_other(harness: StoreHarness) -> None:
    """An advance whose first fact was delivered to the owner records its key, so that others cannot deliver it
    again. If something else was delivered before, nothing of the advance is recorded."""
    async with open_in_two_processes(harness) as (one, two):
        claim = await one.claimed()
        run_id = claim.origin.run_id
        facts = [CancelRequested("first"), make_step(1)]
        advanced = await one.advance(claim, 2, facts, key="k")
        assert (advanced.accepted, advanced.delivered, advanced.sequence) == (True, (), 4)
        assert await two.steer(run_id, key="k") == 3
        assert await two.steer(run_id, key="another") == 5
        await check_fenced(one.advance(claim, 4, [CancelRequested("late"), make_step(2)], key="late"))
        assert await two.steer(run_id, key="late") == 6
        expected = [*OPENING, "cancel_requested", "step_start", "message_steered", "message_steered"]
        assert await two.types(run_id) == expected
        assert (await one.advance(claim, ANY, release=Release(wake_at=one.clock.now()))).accepted


# ── Commits ────────────────────────────────────────────────────────────────────────────────────────


async def a_refused_append_fails_alone(harness: StoreHarness) -> None:
    """Concurrent appends may share a commit. A refused one does not affect the others."""
    async with open_in_one_process(harness) as process:
        claims = [await process.claimed() for _ in range(8)]
        good = [process.advance(claim, 2, [make_step(1)]) for claim in claims]
        stale = [
            process.store.advance(Advance(claim.origin.run_id, claim.epoch + 1, 2, (process.draft(make_step(2)),)))
            for claim in claims
        ]
        nowhere = process.steer(RunId("run_nowhere"))
        answers = await asyncio.gather(*good[:4], *stale, nowhere, *good[4:], return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(errors) == len(stale) + 1, answers
        assert all(isinstance(error, TreadleError) for error in errors), errors
        for claim in claims:
            assert await process.types(claim.origin.run_id) == [*OPENING, "step_start"]


async def an_append_that_cannot_be_stored_fails_alone(harness: StoreHarness) -> None:
    """Text that the store cannot hold, such as a lone surrogate from a command line, fails only for its own
    caller. Concurrent and later appends are not affected."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        attempts = (
            process.advance(claim, 2, [make_step(1)]),
            process.submit(key="\ud800"),
            process.steer(claim.origin.run_id, key="\ud800"),
            process.steer(RunId("run_\ud800")),
            process.submit(),
        )
        async with asyncio.timeout(2):
            first, *bad, last = await asyncio.gather(*attempts, return_exceptions=True)
        assert not isinstance(first, BaseException), first
        assert not isinstance(last, BaseException), last
        assert all(isinstance(error, Exception) for error in bad), bad
        assert not process.told.errors
        assert (await process.advance(claim, 3, [make_step(2)])).accepted


async def commits_are_published_in_order(harness: StoreHarness) -> None:
    """The publisher receives every committed event of its process, in order, with its sequence, and nothing that
    was refused. It has received an event by the time the append returns."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        await asyncio.gather(*(process.steer(run_id, f"message {n}") for n in range(20)))
        await process.advance(claim, 2, [make_step(1)], [make_step(2)])
        await process.advance(claim, 23, [make_step(3)], [make_step(4)])
        await check_fenced(
            process.store.advance(Advance(run_id, claim.epoch + 1, 25, (process.draft(make_step(5)),)))
        )
        await process.steer(run_id, "message 7")
        expected = [(event.sequence, event.type, event.raw) for event in await process.gapless(run_id)]
        assert len(expected) == 25
        assert process.told.list_published(run_id) == expected
        assert process.told.deliveries == [run_id] * 20


async def published_events_are_durable(harness: StoreHarness) -> None:
    """Persist, then publish: any process can read a published event at that moment."""
    async with open_in_two_processes(harness) as (one, two):
        claim = await one.claimed()
        run_id = claim.origin.run_id
        for number in range(5):
            await one.advance(claim, 2 + number, [make_step(number)])
            last = one.told.list_published(run_id)[-1][0]
            assert (await two.gapless(run_id))[-1].sequence == last


async def many_runs_advance_concurrently(harness: StoreHarness) -> None:
    """A hundred runs, submitted, claimed, advanced, delivered to and ended concurrently, are all complete."""
    async with open_in_two_processes(harness) as (one, two):

        async def live(number: int) -> RunId:
            process, other = (one, two) if number % 2 else (two, one)
            claim = await process.claimed()
            run_id, seen = claim.origin.run_id, 2
            for turn in range(3):
                advanced, _ = await asyncio.gather(
                    process.advance(claim, seen, [make_step(turn)], [make_step(turn + 10)]),
                    other.steer(run_id, str(turn)),
                )
                seen = advanced.sequence
            while not (ended := await process.end(claim, seen)).accepted:
                seen = ended.sequence
            return run_id

        for run_id in await asyncio.gather(*(live(number) for number in range(100))):
            types = await one.types(run_id)
            assert types.count("message_steered") == 3
            assert types[-1] == "run_end"
        assert await one.store.list_unfinished() == []


# ── Read ───────────────────────────────────────────────────────────────────────────────────────────


async def reading_continues_where_it_stopped(harness: StoreHarness) -> None:
    """`read` returns events after `after`, at most `limit`, in order, and nothing if there are no more."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        await process.advance(claim, 2, [make_step(number) for number in range(8)])
        assert [event.sequence for event in await process.store.read(run_id, 3, 4)] == [4, 5, 6, 7]
        assert [event.sequence for event in await process.store.read(run_id, 9)] == [10]
        assert list(await process.store.read(run_id, 10)) == []
        assert list(await process.store.read(run_id, 99)) == []


async def a_delivery_that_knows_too_little_is_refused(harness: StoreHarness) -> None:
    """A deliverer may require that nothing has happened since it last read the run. What it has delivered before is
    found in any case."""
    async with open_in_one_process(harness) as process:
        claim = await process.claimed()
        run_id, draft = claim.origin.run_id, process.draft(CancelRequested("enough"))
        seen = claim.events[-1].sequence
        assert (await process.advance(claim, seen, [make_step(1)])).accepted
        await check_fenced(process.store.deliver(run_id, draft, "k", seen))
        assert await process.store.deliver(run_id, draft, "k", seen + 1) == seen + 2
        assert await process.store.deliver(run_id, draft, "k", seen) == seen + 2
        assert [event.type for event in await process.store.read(run_id, seen)] == [
            "step_start",
            "cancel_requested",
        ]


async def unknown_types_and_fields_are_preserved(harness: StoreHarness) -> None:
    """Types and fields of a later version are returned byte for byte by `read` and `claim`."""
    async with open_in_one_process(harness) as process:
        strange = b'{"colour":  "blue", "\\u0061":[1.50,1e3], "nested":{"b":1,"a":2}}'
        queued = msgspec.json.encode(process.opening()[0].data)
        newer = queued[:-1] + b',"mood":{"z":1, "a":null}}'
        unknown_type = Draft(EventId("evt_x"), process.clock.now(), "from_the_future", UnknownEvent(), strange)
        unknown_field = Draft(EventId("evt_y"), process.clock.now(), "run_queued", process.opening()[0].data, newer)
        run_id = await process.store.submit(process.origin(), (unknown_field, unknown_type))
        await process.store.deliver(run_id, unknown_type, "k")
        for events in (await process.gapless(run_id), (await process.claim(run_id)).events):
            assert [(event.type, event.raw) for event in events] == [
                ("run_queued", newer),
                ("from_the_future", strange),
                ("from_the_future", strange),
            ]
            assert isinstance(events[0].data, RunQueued)
            assert events[1].data == UnknownEvent()


async def all_of_unicode_is_preserved(harness: StoreHarness) -> None:
    """Text is returned unchanged: NUL, astral characters, half a megabyte."""
    async with open_in_one_process(harness) as process:
        text = "a\x00b\U0001f600\u2028" + "\u00e9" * 250_000
        claim = await process.claimed("s")
        await process.steer(claim.origin.run_id, text, key="k\x00k")
        said = (Message("user", (Text(text),)),)
        await process.advance(claim, 3, intents=[END], release=Release(said=said))
        delivered = (await process.gapless(claim.origin.run_id))[2]
        assert text in msgspec.json.decode(delivered.raw)["message"]["parts"][0]["text"]
        later = await process.claimed("s")
        assert tuple(await process.store.history(later.origin.run_id)) == said


CHECKS: Final[tuple[StoreCheck, ...]] = (
    an_advance_appends_facts_then_intents,
    a_stale_epoch_is_fenced,
    an_unknown_epoch_is_fenced,
    nothing_follows_the_end,
    intents_wait_for_deliveries,
    an_end_waits_for_deliveries,
    a_worker_that_must_stop_may_release,
    a_released_run_no_longer_belongs_to_its_worker,
    a_delivery_is_stored_once,
    a_delivery_to_the_owner_counts_like_any_other,
    a_refused_append_fails_alone,
    an_append_that_cannot_be_stored_fails_alone,
    commits_are_published_in_order,
    published_events_are_durable,
    many_runs_advance_concurrently,
    reading_continues_where_it_stopped,
    a_delivery_that_knows_too_little_is_refused,
    unknown_types_and_fields_are_preserved,
    all_of_unicode_is_preserved,
)
"""Every check of this part."""
