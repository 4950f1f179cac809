"""Checks for implementers of `ports.journal.Journal`: what an intent may use is reserved with it, and settled."""

import asyncio
from typing import Final

from treadle.domain.events import CompactionFailed, RunQueued, ToolCallStart, UserMessage
from treadle.domain.messages import user
from treadle.domain.runs import Usage
from treadle.ports.accounts import AccountShortage, Ceilings, Reserve
from treadle.ports.journal import ANY, LEASE_SECONDS, Release
from treadle.testing.conformance.reservations import (
    AGENT,
    FAILED,
    REQUEST,
    ask,
    claimed,
    money,
    reply,
    standing,
    wanting,
)
from treadle.testing.conformance.store import (
    StoreCheck,
    StoreHarness,
    fenced,
    one_process,
    step,
    two_processes,
)

# ── Money ──────────────────────────────────────────────────────────────────────────────────────────


async def what_fits_is_reserved(harness: StoreHarness) -> None:
    """A reservation that fits is made with the intents, and stands until a model call of the run has ended."""
    async with one_process(harness) as process:
        claim = await claimed(process)
        assert await ask(process, claim, wanting(0.75)) is None
        assert await process.types(claim.origin.run_id) == ["run_queued", "user_message", "llm_request"]
        assert await money(process) == (0, 0.75)
        await process.advance(claim, 3, [step(1)])
        assert await money(process) == (0, 0.75)


async def what_does_not_fit_is_refused_with_its_intents(harness: StoreHarness) -> None:
    """It leaves nothing behind, the facts are recorded all the same, and what stood in the way is told."""
    async with one_process(harness) as process:
        first, second = await claimed(process), await claimed(process)
        assert await ask(process, first, wanting(0.75)) is None
        advanced = await process.advance(second, 2, [step(1)], [REQUEST], reserve=wanting(0.5))
        assert (advanced.accepted, advanced.sequence, advanced.delivered) == (False, 3, ())
        assert advanced.refused == AccountShortage("tree/one", "cost", 1.0, 0.0, 0.75, 0.5)
        assert (await process.types(second.origin.run_id))[2:] == ["step_start"]
        assert await money(process) == (0, 0.75)
        assert await ask(process, second, wanting(0.25), seen=3) is None, "what is left can be had"


async def a_refused_release_keeps_the_run(harness: StoreHarness) -> None:
    """A release is refused together with the reservation."""
    async with one_process(harness) as process:
        claim = await claimed(process)
        advanced = await process.advance(claim, 2, [], [REQUEST], Release("retry"), wanting(2.0))
        assert not advanced.accepted
        assert (await process.advance(claim, 2, [step(1)])).sequence == 3


async def a_reply_settles_at_what_was_used(harness: StoreHarness) -> None:
    """Whatever was reserved, what counts is what the reply says; also where that is more."""
    async with one_process(harness) as process:
        for number, (cost, used) in enumerate(((0.1, 0.1), (0.8, 0.9)), start=1):
            claim = await claimed(process)
            assert await ask(process, claim, wanting(0.2)) is None
            await process.advance(claim, 3, [reply(10, cost)])
            assert await money(process) == (used, 0), number


async def failures_and_summaries_settle_too(harness: StoreHarness) -> None:
    """A failed attempt is charged for what it used, and so is a summary that was not to be had."""
    async with one_process(harness) as process:
        failed = CompactionFailed("compact", "threshold", "no", Usage(5, 5), cost=0.05)
        for end, used in ((FAILED, 0.1), (failed, 0.15)):
            claim = await claimed(process)
            assert await ask(process, claim, wanting(0.5)) is None
            await process.advance(claim, 3, [end])
            assert await money(process) == (used, 0)


async def what_a_fact_settles_is_free_for_the_next(harness: StoreHarness) -> None:
    """The end of a call and the intent to make another come in one advance, and count in that order."""
    async with one_process(harness) as process:
        claim = await claimed(process)
        assert await ask(process, claim, wanting(0.9)) is None
        advanced = await process.advance(claim, 3, [FAILED], [REQUEST], reserve=wanting(0.9))
        assert advanced.refused is None
        assert await money(process) == (0.1, 0.9)


async def runs_at_once_never_pass_a_ceiling_together(harness: StoreHarness) -> None:
    """Of many that ask at the same time, in two processes, only as many are let through as there is room for."""
    async with two_processes(harness) as processes:
        claims = [(process, await claimed(process)) for process in processes for _ in range(8)]
        asked = [ask(process, claim, wanting(0.3)) for process, claim in claims]
        refused = await asyncio.gather(*asked)
        assert sum(short is None for short in refused) == 3
        assert await money(processes[0]) == (0, 0.9)


async def every_account_has_it_or_none_is_charged(harness: StoreHarness) -> None:
    """A call that counts for two accounts reserves in both; where one is short, in neither."""
    async with one_process(harness) as process:
        rich, poor = Ceilings("agent/rich", cost=1.0), Ceilings("token/poor", cost=0.1)
        claim = await claimed(process)
        short = await ask(process, claim, Reserve((rich, poor), 1, 1, 10, 0.5))
        assert short is not None
        assert short.account == "token/poor"
        assert await money(process, "agent/rich") == (0, 0)
        assert await ask(process, claim, Reserve((rich, poor), 1, 1, 10, 0.05)) is None
        await process.advance(claim, 3, [reply(10, 0.04)])
        assert [await money(process, name) for name in ("agent/rich", "token/poor")] == [(0.04, 0)] * 2


async def what_nobody_can_settle_is_told_first(harness: StoreHarness) -> None:
    """Of several accounts that are short, one is named that waiting for others will not help."""
    async with one_process(harness) as process:
        assert await ask(process, await claimed(process), wanting(0.9, account="agent/busy")) is None
        accounts = (Ceilings("agent/busy", cost=1.0), Ceilings("token/poor", cost=0.1))
        short = await ask(process, await claimed(process), Reserve(accounts, 1, 1, 10, 0.5))
        assert short is not None
        assert short.account == "token/poor"


async def credits_are_counted_apart(harness: StoreHarness) -> None:
    """A reply is charged in credits at the rate that its run was asked for with."""
    async with one_process(harness) as process:
        opening = (process.draft(RunQueued(AGENT, credits_per_dollar=10.0)), process.draft(UserMessage(user("hi"))))
        claim = await process.claim(await process.store.submit(process.origin(), opening))
        bound = Ceilings("agent/bound", credits=5.0)
        assert await ask(process, claim, Reserve((bound,), 1, 1, 10, 0.25, 2.5)) is None
        assert (await standing(process, bound)).reserved == 2.5
        await process.advance(claim, 3, [reply(10, 0.125)])
        short = await standing(process, bound)
        assert (short.kind, short.used, short.reserved) == ("credits", 1.25, 0)


# ── Whose hands it is in ───────────────────────────────────────────────────────────────────────────


async def what_was_lost_is_settled_in_full(harness: StoreHarness) -> None:
    """Whoever takes a run over settles what was reserved for it, at all of it, and once."""
    async with two_processes(harness) as (one, two):
        old = await claimed(one)
        bound = (Ceilings("tree/one", cost=1.0), Ceilings("agent/bound", tokens=1000))
        assert await ask(one, old, Reserve(bound, 1, 1, 300, 0.3)) is None
        one.clock.pass_time(LEASE_SECONDS)
        new = await two.claim(old.origin.run_id)
        assert await money(two) == (0.3, 0)
        assert (await standing(two, bound[1])).used == 300
        await fenced(one.advance(old, 3, [reply(10, 0.1)]))
        assert await ask(two, new, Reserve(bound, 1, 2, 100, 0.1), seen=3) is None
        await two.advance(new, 4, [reply(50, 0.05)])
        assert await money(two) == (0.35, 0)


async def what_is_given_back_is_settled_by_whoever_comes_next(harness: StoreHarness) -> None:
    """A run that was let go of in the middle of a call has lost its reply as well."""
    async with one_process(harness) as process:
        claim = await claimed(process)
        assert await ask(process, claim, wanting(0.3)) is None
        await process.advance(claim, ANY, release=Release(wake_at=process.clock.now()))
        assert await money(process) == (0, 0.3)
        await process.claim(claim.origin.run_id)
        assert await money(process) == (0.3, 0)


async def whoever_has_not_seen_a_delivery_reserves_nothing(harness: StoreHarness) -> None:
    """The intents are refused, and what they wanted with them."""
    async with one_process(harness) as process:
        claim = await claimed(process)
        await process.steer(claim.origin.run_id)
        advanced = await process.advance(claim, 2, [], [REQUEST], reserve=wanting(0.5))
        assert (advanced.accepted, advanced.refused, len(advanced.delivered)) == (False, None, 1)
        assert await money(process) == (0, 0)


async def whoever_is_fenced_reserves_nothing(harness: StoreHarness) -> None:
    """Nothing of a worker whose run was taken over counts."""
    async with two_processes(harness) as (one, two):
        old = await claimed(one)
        one.clock.pass_time(LEASE_SECONDS)
        await two.claim(old.origin.run_id)
        await fenced(one.advance(old, 2, [], [REQUEST], reserve=wanting(0.5)))
        assert await money(two) == (0, 0)


# ── Windows ────────────────────────────────────────────────────────────────────────────────────────


async def tokens_count_for_an_hour(harness: StoreHarness) -> None:
    """What was used within the last hour and what is reserved count; what is older does not, a minute later at the
    latest. A refusal tells when there is room."""
    async with one_process(harness) as process:
        bound = Ceilings("agent/bound", tokens=1000)
        claim = await claimed(process)
        assert await ask(process, claim, Reserve((bound,), 1, 1, 600)) is None
        short = await ask(process, await claimed(process), Reserve((bound,), 1, 1, 600))
        assert short is not None
        assert (short.kind, short.used, short.reserved, short.wanted) == ("tokens", 0, 600, 600)
        used_at = process.clock.now()
        await process.advance(claim, 3, [reply(700, 0.0)])
        process.clock.pass_time(3599)
        short = await ask(process, await claimed(process), Reserve((bound,), 1, 1, 600))
        assert short is not None
        assert (short.used, short.reserved) == (700, 0)
        assert short.resets_at is not None
        assert used_at + 3600 <= short.resets_at <= used_at + 3660
        process.clock.pass_time(short.resets_at - process.clock.now())
        assert await ask(process, await claimed(process), Reserve((bound,), 1, 1, 600)) is None


async def more_than_a_window_holds_never_has_room(harness: StoreHarness) -> None:
    """Then there is no time to name."""
    async with one_process(harness) as process:
        short = await ask(process, await claimed(process), Reserve((Ceilings("agent/bound", tokens=10),), 1, 1, 11))
        assert short is not None
        assert short.resets_at is None


async def calls_of_tools_count_for_a_minute(harness: StoreHarness) -> None:
    """They are used at once, nothing settles them, and they are free again when a minute has passed."""
    async with one_process(harness) as process:
        start = ToolCallStart("c", "look", "{}", "key")
        bound = Ceilings("agent/bound", calls=5)
        claim, seen = await claimed(process), 2
        for calls, left in ((3, 2), (2, 0)):
            advanced = await process.advance(claim, seen, [], [start], reserve=Reserve((bound,), calls=calls))
            assert advanced.accepted, left
            seen = advanced.sequence
            process.clock.pass_time(10)
        advanced = await process.advance(claim, seen, [], [start], reserve=Reserve((bound,), calls=1))
        short = advanced.refused
        assert short is not None
        assert (short.kind, short.used, short.wanted) == ("calls", 5, 1)
        assert short.resets_at is not None
        assert 40 <= short.resets_at - process.clock.now() <= 41
        process.clock.pass_time(short.resets_at - process.clock.now())
        for calls, fits in ((4, False), (3, True)):
            advanced = await process.advance(claim, seen, [], [start], reserve=Reserve((bound,), calls=calls))
            assert advanced.accepted is fits


async def steps_and_runs_count_for_ever(harness: StoreHarness) -> None:
    """They are used at once, each apart, and nothing gives them back: not a reply, not an end, not time. What does
    not fit is refused whole, with nothing left behind."""
    async with one_process(harness) as process:
        for kind in ("steps", "runs"):
            bound = Ceilings(f"tree/{kind}", **{kind: 3})
            claim = await claimed(process)
            for wanted, used in ((2, 0), (2, None), (1, 2)):
                advanced = await process.advance(
                    claim, ANY, [], [step(1)], reserve=Reserve((bound,), **{kind: wanted})
                )
                assert advanced.accepted is (used is not None), (kind, wanted)
            await process.advance(claim, ANY, [reply(1, 0.0)])
            await process.end(claim, ANY)
            process.clock.pass_time(1e6)
            short = await ask(process, await claimed(process), Reserve((bound,), 1, 1, **{kind: 1}))
            assert short == AccountShortage(bound.account, kind, 3, 3, 0, 1)
            unbound = Ceilings(bound.account, cost=1.0)
            assert await ask(process, await claimed(process), Reserve((unbound,), 1, 1, **{kind: 9})) is None


async def a_step_that_money_refuses_is_not_used(harness: StoreHarness) -> None:
    """A reservation is made in all of its accounts, and of every kind, or not at all."""
    async with one_process(harness) as process:
        steps, poor = Ceilings("tree/one", steps=1, runs=1), Ceilings("tree/two", cost=0.1)
        wanted = Reserve((steps, poor), 1, 1, 10, 0.5, steps=1, runs=1)
        short = await ask(process, await claimed(process), wanted)
        assert short is not None
        assert short.account == "tree/two"
        assert await ask(process, await claimed(process), Reserve((steps,), 1, 1, steps=1, runs=1)) is None


async def runs_at_once_never_take_the_same_place(harness: StoreHarness) -> None:
    """Of many that want one of the last places at the same time, as many get one as there are."""
    async with two_processes(harness) as both:
        bound = Reserve((Ceilings("tree/one", runs=4, steps=100),), 1, 1, steps=1, runs=1)
        claims = [await claimed(both[number % 2]) for number in range(12)]
        found = await asyncio.gather(*(ask(both[number % 2], claim, bound) for number, claim in enumerate(claims)))
        assert found.count(None) == 4
        assert all(short is None or (short.kind, short.used) == ("runs", 4) for short in found)


async def who_comes_near_an_end_is_told_once(harness: StoreHarness) -> None:
    """The first reservation after four fifths were used tells so: once in a window, and again for another
    ceiling."""
    async with one_process(harness) as process:
        bound = Ceilings("agent/bound", tokens=1000)

        async def near(ceilings: Ceilings, used: int) -> list[str]:
            claim = await claimed(process)
            advanced = await process.advance(claim, 2, [], [REQUEST], reserve=Reserve((ceilings,), 1, 1, 10))
            await process.advance(claim, 3, [reply(used, 0.0)])
            return [f"{short.kind} {short.used:.0f}/{short.ceiling:.0f}" for short in advanced.near]

        assert [await near(bound, used) for used in (799, 1, 10, 10)] == [[], [], ["tokens 800/1000"], []]
        assert await near(Ceilings("agent/bound", tokens=1010), 0) == ["tokens 820/1010"]
        process.clock.pass_time(3700)
        assert [await near(bound, used) for used in (900, 0)] == [[], ["tokens 900/1000"]]


CHECKS: Final[tuple[StoreCheck, ...]] = (
    what_fits_is_reserved,
    what_does_not_fit_is_refused_with_its_intents,
    a_refused_release_keeps_the_run,
    a_reply_settles_at_what_was_used,
    failures_and_summaries_settle_too,
    what_a_fact_settles_is_free_for_the_next,
    runs_at_once_never_pass_a_ceiling_together,
    every_account_has_it_or_none_is_charged,
    what_nobody_can_settle_is_told_first,
    credits_are_counted_apart,
    what_was_lost_is_settled_in_full,
    what_is_given_back_is_settled_by_whoever_comes_next,
    whoever_has_not_seen_a_delivery_reserves_nothing,
    whoever_is_fenced_reserves_nothing,
    tokens_count_for_an_hour,
    more_than_a_window_holds_never_has_room,
    calls_of_tools_count_for_a_minute,
    steps_and_runs_count_for_ever,
    a_step_that_money_refuses_is_not_used,
    runs_at_once_never_take_the_same_place,
    who_comes_near_an_end_is_told_once,
)
