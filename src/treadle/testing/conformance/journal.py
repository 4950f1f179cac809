"""Checks for implementers of `ports.journal.Journal`."""

import asyncio
from typing import Final

import msgspec

from treadle.domain.envelope import Draft
from treadle.domain.errors import TreadleError
from treadle.domain.events import CancelRequested, RunQueued, ToolCallStart, Unknown
from treadle.domain.identity import EventId, RunId
from treadle.domain.messages import user
from treadle.ports.journal import ANY, LEASE_SECONDS, Advance, Release
from treadle.testing.conformance.store import (
    END,
    OPENING,
    StoreCheck,
    StoreHarness,
    fenced,
    not_claimable,
    one_process,
    step,
    two_processes,
    unknown,
)

# ── Submit ─────────────────────────────────────────────────────────────────────────────────────────


async def a_submitted_run_is_pending(harness: StoreHarness) -> None:
    """`submit` creates a run in status pending, owned by nobody, with its events from sequence 1 on."""
    async with one_process(harness) as process:
        origin = process.origin()
        run_id = await process.store.submit(origin, process.opening())
        assert run_id == origin.run_id
        record = await process.store.record(run_id)
        assert (record.origin, record.status, record.outcome) == (origin, "pending", None)
        assert record.sequence == 2
        assert await process.types(run_id) == OPENING


async def a_submission_key_makes_one_run(harness: StoreHarness) -> None:
    """The same key again creates nothing and returns the first run, also later, in other hands, and when two
    come at the same time."""
    async with two_processes(harness) as (one, two):
        first, *others = await asyncio.gather(*(p.submit(key="k") for p in (one, two, one, two)))
        assert set(others) == {first}
        assert await two.submit(session="another", key="k") == first
        assert await one.submit(key="other") != first
        assert await one.submit() != await one.submit()
        assert await two.types(first) == OPENING
        assert len(await one.store.newest()) == 4


async def what_was_submitted_is_read_back(harness: StoreHarness) -> None:
    """`read` gives the events as they were appended: ids, times, types and data."""
    async with one_process(harness) as process:
        drafts = process.opening()
        origin = process.origin()
        await process.store.submit(origin, drafts)
        for made, event in zip(drafts, await process.gapless(origin.run_id), strict=True):
            assert (event.event_id, event.timestamp, event.type) == (made.event_id, made.timestamp, made.type)
            assert (event.data, event.raw, event.origin) == (made.data, made.raw, origin)


# ── Claim ──────────────────────────────────────────────────────────────────────────────────────────


async def a_claim_opens_an_epoch(harness: StoreHarness) -> None:
    """`claim` hands out all events so far and a higher epoch each time; a pending run is running then."""
    async with one_process(harness) as process:
        run_id = await process.submit()
        await process.steer(run_id)
        claim = await process.claim(run_id)
        assert [event.type for event in claim.events] == [*OPENING, "message_steered"]
        assert list(claim.events) == list(await process.gapless(run_id))
        assert (claim.history, claim.recovering) == ((), False)
        assert (await process.store.record(run_id)).status == "running"
        await process.advance(claim, 3, release=Release(wake_at=process.clock.now()))
        assert (await process.claim(run_id)).epoch > claim.epoch


async def a_claim_brings_the_history_of_the_session(harness: StoreHarness) -> None:
    """`claim` hands out what earlier runs of the session said, in their order, and nothing of other sessions."""
    async with one_process(harness) as process:
        for session, said in (("s", "first"), ("other", "elsewhere"), ("s", "second")):
            await process.end(await process.claimed(session), 2, said)
        claim = await process.claimed("s")
        assert [message.text for message in claim.history] == ["first", "second"]


async def a_leased_run_cannot_be_claimed(harness: StoreHarness) -> None:
    """While a worker holds the lease nobody else gets the run, nor the same worker a second time."""
    async with two_processes(harness) as (one, two):
        claim = await one.claimed()
        one.clock.pass_time(LEASE_SECONDS - 0.1)
        await not_claimable(two, claim.origin.run_id)
        await not_claimable(one, claim.origin.run_id)
        assert (await one.advance(claim, 2, [step(1)])).accepted


async def one_of_many_claims_wins(harness: StoreHarness) -> None:
    """When several claim at the same time, exactly one gets the run."""
    async with two_processes(harness) as (one, two):
        run_id = await one.submit()
        answers = await asyncio.gather(*(p.claim(run_id) for p in (one, two) * 5), return_exceptions=True)
        assert sum(not isinstance(answer, BaseException) for answer in answers) == 1, answers


async def an_expired_lease_lets_another_claim(harness: StoreHarness) -> None:
    """When the lease has run out another worker may claim the run; it is told that it recovers it."""
    async with two_processes(harness) as (one, two):
        first = await one.claimed()
        one.clock.pass_time(LEASE_SECONDS)
        second = await two.claim(first.origin.run_id)
        assert second.recovering
        assert second.epoch > first.epoch
        await not_claimable(one, first.origin.run_id)


async def a_released_run_can_be_claimed(harness: StoreHarness) -> None:
    """A run that was let go of is anyone's at once, and is not being recovered. It waits until its new owner says
    what it does next: it may be looked at only to find that it still must."""
    async with two_processes(harness) as (one, two):
        first = await one.claimed()
        await one.advance(first, 2, [step(1)], release=Release("retry", wake_at=one.clock.now() + 60))
        record = await two.store.record(first.origin.run_id)
        assert (record.status, record.waiting_for) == ("waiting", "retry")
        second = await two.claim(first.origin.run_id)
        assert not second.recovering
        record = await two.store.record(first.origin.run_id)
        assert (record.status, record.waiting_for) == ("waiting", "retry")
        await two.advance(second, 3, intents=[step(2)])
        record = await two.store.record(first.origin.run_id)
        assert (record.status, record.waiting_for) == ("running", None)


async def an_ended_run_cannot_be_claimed(harness: StoreHarness) -> None:
    """Nobody gets a run that has ended, however long ago."""
    async with one_process(harness) as process:
        claim = await process.claimed()
        await process.end(claim, 2)
        await not_claimable(process, claim.origin.run_id)
        process.clock.pass_time(10 * LEASE_SECONDS)
        await not_claimable(process, claim.origin.run_id)


async def a_session_runs_in_order(harness: StoreHarness) -> None:
    """A run cannot be claimed before every earlier run of its session has ended, whether that is pending, owned,
    orphaned or waiting. Other sessions do not matter."""
    async with two_processes(harness) as (one, two):
        first, second, third = [await one.submit("s") for _ in range(3)]
        await two.claimed("other")
        await not_claimable(two, second)
        claim = await one.claim(first)
        await not_claimable(two, second)
        one.clock.pass_time(LEASE_SECONDS)
        await not_claimable(two, second)
        await one.advance(claim, 2, release=Release("interrupted"))
        await not_claimable(two, second)
        await one.end(await one.claim(first), 2)
        await not_claimable(two, third)
        await one.end(await two.claim(second), 2)
        await two.claim(third)


async def a_run_that_is_not_there_is_unknown(harness: StoreHarness) -> None:
    """Every verb that names a run raises UnknownRun when there is none of that id."""
    async with one_process(harness) as process:
        nowhere = RunId("run_nowhere")
        await unknown(process.claim(nowhere))
        await unknown(process.steer(nowhere))
        await unknown(process.store.read(nowhere))
        await unknown(process.store.record(nowhere))
        await unknown(process.store.advance(Advance(nowhere, 1, 0)))


# ── Advance ────────────────────────────────────────────────────────────────────────────────────────


async def an_advance_appends_facts_then_intents(harness: StoreHarness) -> None:
    """With nothing delivered, facts and then intents are appended, and the last sequence is returned."""
    async with one_process(harness) as process:
        claim = await process.claimed()
        advanced = await process.advance(claim, 2, [step(1), step(2)], [CancelRequested("an intent")])
        assert (advanced.accepted, advanced.delivered, advanced.sequence) == (True, (), 5)
        assert await process.types(claim.origin.run_id) == [*OPENING, *["step_start"] * 2, "cancel_requested"]
        assert (await process.advance(claim, 5)).sequence == 5
        assert (await process.store.record(claim.origin.run_id)).sequence == 5


async def a_stale_epoch_is_fenced(harness: StoreHarness) -> None:
    """A worker whose run was taken over is refused with Fenced and nothing of what it brings is written: no
    facts, no intents, no release. The new owner does not notice."""
    async with two_processes(harness) as (one, two):
        old = await one.claimed()
        one.clock.pass_time(LEASE_SECONDS)
        new = await two.claim(old.origin.run_id)
        await fenced(one.advance(old, 2, [step(1)], [step(2)]))
        await fenced(one.advance(old, ANY, [step(1)], release=Release(wake_at=one.clock.now())))
        await fenced(one.end(old, 2))
        await fenced(one.advance(old, 2))
        assert await two.types(new.origin.run_id) == OPENING
        assert [type_ for _, type_, _ in one.told.told_of(new.origin.run_id)] == OPENING
        await not_claimable(one, new.origin.run_id)
        assert (await two.advance(new, 2, [step(3)])).sequence == 3


async def an_epoch_that_never_was_is_fenced(harness: StoreHarness) -> None:
    """An epoch of the future, or of a run that nobody has claimed, is as wrong as a stale one."""
    async with one_process(harness) as process:
        run_id = await process.submit()
        fact = (process.draft(step(1)),)
        await fenced(process.store.advance(Advance(run_id, 1, 2, fact)))
        claim = await process.claim(run_id)
        await fenced(process.store.advance(Advance(run_id, claim.epoch + 1, 2, fact)))
        assert await process.types(run_id) == OPENING


async def nothing_follows_the_end(harness: StoreHarness) -> None:
    """After `run_end` an advance is refused and a delivery is None, whoever asks; the record says how it ended."""
    async with one_process(harness) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        assert (await process.end(claim, 2)).accepted
        await fenced(process.advance(claim, 3, [step(1)]))
        await fenced(process.advance(claim, ANY, release=Release(wake_at=process.clock.now())))
        assert await process.steer(run_id) is None
        assert await process.types(run_id) == [*OPENING, "run_end"]
        record = await process.store.record(run_id)
        assert (record.status, record.outcome, record.sequence) == ("completed", "completed", 3)


async def intents_wait_for_what_was_delivered(harness: StoreHarness) -> None:
    """An advance that meets deliveries its owner has not seen records its facts, behind them, and not its
    intents; it returns the deliveries, whole and in order. The owner, having folded them, may then go on."""
    async with two_processes(harness) as (one, two):
        claim = await one.claimed()
        run_id = claim.origin.run_id
        await two.steer(run_id, "one")
        await two.steer(run_id, "two")
        advanced = await one.advance(claim, 2, [step(1)], [ToolCallStart("c", "t", "{}", "k")])
        assert not advanced.accepted
        assert advanced.sequence == 5
        assert list(advanced.delivered) == list(await one.store.read(run_id, 2, 2))
        assert await one.types(run_id) == [*OPENING, "message_steered", "message_steered", "step_start"]
        again = await one.advance(claim, 5, (), [ToolCallStart("c", "t", "{}", "k")])
        assert (again.accepted, again.delivered, again.sequence) == (True, (), 6)


async def an_end_waits_for_what_was_delivered(harness: StoreHarness) -> None:
    """A release, also one that ends the run, is refused together with its intents: the run stays with its owner,
    and nothing that was acknowledged is left unseen behind an end."""
    async with two_processes(harness) as (one, two):
        claim = await one.claimed()
        run_id = claim.origin.run_id
        await two.steer(run_id)
        assert not (await one.end(claim, 2)).accepted
        assert not (await one.advance(claim, 2, release=Release("interrupted"))).accepted
        await not_claimable(two, run_id)
        assert (await two.store.record(run_id)).outcome is None
        assert (await one.end(claim, 3)).accepted
        assert await one.types(run_id) == [*OPENING, "message_steered", "run_end"]


async def a_worker_that_must_stop_may_let_go(harness: StoreHarness) -> None:
    """With `ANY` for `seen` a release takes place whatever was delivered."""
    async with one_process(harness) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        await process.steer(run_id)
        assert (await process.advance(claim, ANY, [step(1)], release=Release(wake_at=process.clock.now()))).accepted
        assert not (await process.claim(run_id)).recovering
        assert await process.types(run_id) == [*OPENING, "message_steered", "step_start"]


async def a_released_run_is_not_its_workers_any_more(harness: StoreHarness) -> None:
    """A worker that has let go of a run is refused like any other that does not own it, although nobody has
    claimed the run since: what it has to say comes too late to be in order."""
    async with one_process(harness) as process:
        claim = await process.claimed()
        await process.advance(claim, 2, release=Release(wake_at=process.clock.now()))
        await fenced(process.advance(claim, 2, [step(1)]))
        assert await process.types(claim.origin.run_id) == OPENING


# ── Deliver ────────────────────────────────────────────────────────────────────────────────────────


async def a_delivery_is_taken_once(harness: StoreHarness) -> None:
    """The same key appends nothing the second time and returns the first one's sequence, also when both come at
    the same time and after the run has ended. Keys of other runs do not matter."""
    async with two_processes(harness) as (one, two):
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


# ── Commits ────────────────────────────────────────────────────────────────────────────────────────


async def a_refused_append_fails_alone(harness: StoreHarness) -> None:
    """Appends that are made at the same time may share a commit; one that is refused takes no other with it."""
    async with one_process(harness) as process:
        claims = [await process.claimed() for _ in range(8)]
        good = [process.advance(claim, 2, [step(1)]) for claim in claims]
        stale = [
            process.store.advance(Advance(claim.origin.run_id, claim.epoch + 1, 2, (process.draft(step(2)),)))
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
    """Text that the store cannot hold, such as a lone surrogate from a command line, is the problem of whoever
    brought it: others that are appended at the same time, or later, do not notice."""
    async with one_process(harness) as process:
        claim = await process.claimed()
        attempts = (
            process.advance(claim, 2, [step(1)]),
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
        assert (await process.advance(claim, 3, [step(2)])).accepted


async def commits_are_told_in_order(harness: StoreHarness) -> None:
    """The publisher is told of every committed event of its process, in order, with the sequence that a reader
    finds it under, and of nothing that was refused; by the time an append returns, it has been told."""
    async with one_process(harness) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        await asyncio.gather(*(process.steer(run_id, f"message {n}") for n in range(20)))
        await process.advance(claim, 2, [step(1)], [step(2)])
        await process.advance(claim, 23, [step(3)], [step(4)])
        await fenced(process.store.advance(Advance(run_id, claim.epoch + 1, 25, (process.draft(step(5)),))))
        await process.steer(run_id, "message 7")
        expected = [(event.sequence, event.type, event.raw) for event in await process.gapless(run_id)]
        assert len(expected) == 25
        assert process.told.told_of(run_id) == expected
        assert process.told.deliveries == [run_id] * 20


async def what_was_told_is_durable(harness: StoreHarness) -> None:
    """Persist, then publish: what the publisher is told can be read, by any process, at that moment."""
    async with two_processes(harness) as (one, two):
        claim = await one.claimed()
        run_id = claim.origin.run_id
        for number in range(5):
            await one.advance(claim, 2 + number, [step(number)])
            last = one.told.told_of(run_id)[-1][0]
            assert (await two.gapless(run_id))[-1].sequence == last


async def many_runs_advance_side_by_side(harness: StoreHarness) -> None:
    """A hundred runs, submitted, claimed, advanced, delivered to and ended side by side, each come out whole."""
    async with two_processes(harness) as (one, two):

        async def live(number: int) -> RunId:
            process, other = (one, two) if number % 2 else (two, one)
            claim = await process.claimed()
            run_id, seen = claim.origin.run_id, 2
            for turn in range(3):
                advanced, _ = await asyncio.gather(
                    process.advance(claim, seen, [step(turn)], [step(turn + 10)]), other.steer(run_id, str(turn))
                )
                seen = advanced.sequence
            while not (ended := await process.end(claim, seen)).accepted:
                seen = ended.sequence
            return run_id

        for run_id in await asyncio.gather(*(live(number) for number in range(100))):
            types = await one.types(run_id)
            assert types.count("message_steered") == 3
            assert types[-1] == "run_end"
        assert await one.store.unfinished() == []


# ── Read ───────────────────────────────────────────────────────────────────────────────────────────


async def reading_goes_on_where_it_stopped(harness: StoreHarness) -> None:
    """`read` gives what is above `after`, at most `limit`, in order; nothing when there is no more."""
    async with one_process(harness) as process:
        claim = await process.claimed()
        run_id = claim.origin.run_id
        await process.advance(claim, 2, [step(number) for number in range(8)])
        assert [event.sequence for event in await process.store.read(run_id, 3, 4)] == [4, 5, 6, 7]
        assert [event.sequence for event in await process.store.read(run_id, 9)] == [10]
        assert list(await process.store.read(run_id, 10)) == []
        assert list(await process.store.read(run_id, 99)) == []


async def what_is_not_understood_is_kept(harness: StoreHarness) -> None:
    """Types and fields that only a later version knows come back byte for byte, by `read` and by `claim`."""
    async with one_process(harness) as process:
        strange = b'{"colour":  "blue", "\\u0061":[1.50,1e3], "nested":{"b":1,"a":2}}'
        queued = msgspec.json.encode(process.opening()[0].data)
        newer = queued[:-1] + b',"mood":{"z":1, "a":null}}'
        unknown_type = Draft(EventId("evt_x"), process.clock.now(), "from_the_future", Unknown(), strange)
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
            assert events[1].data == Unknown()


async def all_of_unicode_is_kept(harness: StoreHarness) -> None:
    """What is said comes back as it was: NUL, astral characters, half a megabyte."""
    async with one_process(harness) as process:
        text = "a\x00b\U0001f600\u2028" + "\u00e9" * 250_000
        claim = await process.claimed("s")
        await process.steer(claim.origin.run_id, text, key="k\x00k")
        await process.advance(claim, 3, intents=[END], release=Release(said=(user(text),)))
        delivered = (await process.gapless(claim.origin.run_id))[2]
        assert text in msgspec.json.decode(delivered.raw)["message"]["parts"][0]["text"]
        assert (await process.claimed("s")).history == (user(text),)


CHECKS: Final[tuple[StoreCheck, ...]] = (
    a_submitted_run_is_pending,
    a_submission_key_makes_one_run,
    what_was_submitted_is_read_back,
    a_claim_opens_an_epoch,
    a_claim_brings_the_history_of_the_session,
    a_leased_run_cannot_be_claimed,
    one_of_many_claims_wins,
    an_expired_lease_lets_another_claim,
    a_released_run_can_be_claimed,
    an_ended_run_cannot_be_claimed,
    a_session_runs_in_order,
    a_run_that_is_not_there_is_unknown,
    an_advance_appends_facts_then_intents,
    a_stale_epoch_is_fenced,
    an_epoch_that_never_was_is_fenced,
    nothing_follows_the_end,
    intents_wait_for_what_was_delivered,
    an_end_waits_for_what_was_delivered,
    a_worker_that_must_stop_may_let_go,
    a_released_run_is_not_its_workers_any_more,
    a_delivery_is_taken_once,
    a_refused_append_fails_alone,
    an_append_that_cannot_be_stored_fails_alone,
    commits_are_told_in_order,
    what_was_told_is_durable,
    many_runs_advance_side_by_side,
    reading_goes_on_where_it_stopped,
    what_is_not_understood_is_kept,
    all_of_unicode_is_kept,
)
"""Every check of this port."""
