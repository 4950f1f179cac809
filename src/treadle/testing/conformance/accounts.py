"""Checks for implementers of `ports.journal.Journal`: what an intent may use is reserved with it, and settled."""

import asyncio
from typing import Final

from treadle.domain.events import CompactionFailed, RunQueued, ToolCallStart, UserMessage
from treadle.domain.messages import user
from treadle.domain.quotas import Shortage
from treadle.domain.runs import Usage
from treadle.ports.accounts import Ceilings, Reserve
from treadle.ports.journal import ANY, LEASE_SECONDS, Release
from treadle.testing.conformance.reservations import (
    AGENT,
    FAILED,
    REQUEST,
    claim_new_run,
    make_reply,
    make_reservation,
    read_money,
    read_standing,
    try_to_reserve,
)
from treadle.testing.conformance.store import (
    StoreCheck,
    StoreHarness,
    check_fenced,
    make_step,
    open_in_one_process,
    open_in_two_processes,
)

# ── Money ──────────────────────────────────────────────────────────────────────────────────────────


async def a_reservation_that_fits_is_made(harness: StoreHarness) -> None:
    """A reservation that fits is made with the intents, and lasts until a model call of the run has ended."""
    async with open_in_one_process(harness) as process:
        claim = await claim_new_run(process)
        assert await try_to_reserve(process, claim, make_reservation(0.75)) is None
        assert await process.types(claim.origin.run_id) == ["run_queued", "user_message", "llm_request"]
        assert await read_money(process) == (0, 0.75)
        await process.advance(claim, 3, [make_step(1)])
        assert await read_money(process) == (0, 0.75)


async def a_reservation_that_does_not_fit_is_refused_with_its_intents(harness: StoreHarness) -> None:
    """It leaves nothing behind, the facts are still recorded, and the shortage is reported."""
    async with open_in_one_process(harness) as process:
        first, second = await claim_new_run(process), await claim_new_run(process)
        assert await try_to_reserve(process, first, make_reservation(0.75)) is None
        advanced = await process.advance(second, 2, [make_step(1)], [REQUEST], reserve=make_reservation(0.5))
        assert (advanced.accepted, advanced.sequence, advanced.delivered) == (False, 3, ())
        assert advanced.refused == Shortage(
            account="tree/one", kind="cost", ceiling=1.0, used=0.0, reserved=0.75, wanted=0.5
        )
        assert (await process.types(second.origin.run_id))[2:] == ["step_start"]
        assert await read_money(process) == (0, 0.75)
        assert await try_to_reserve(process, second, make_reservation(0.25), seen=3) is None, (
            "what is left can be had"
        )


async def a_refused_release_keeps_the_run(harness: StoreHarness) -> None:
    """A release is refused together with the reservation."""
    async with open_in_one_process(harness) as process:
        claim = await claim_new_run(process)
        advanced = await process.advance(claim, 2, [], [REQUEST], Release("retry"), make_reservation(2.0))
        assert not advanced.accepted
        assert (await process.advance(claim, 2, [make_step(1)])).sequence == 3


async def a_reply_settles_at_the_actual_usage(harness: StoreHarness) -> None:
    """Whatever was reserved, the usage in the reply counts, even if it is more."""
    async with open_in_one_process(harness) as process:
        for number, (cost, used) in enumerate(((0.1, 0.1), (0.8, 0.9)), start=1):
            claim = await claim_new_run(process)
            assert await try_to_reserve(process, claim, make_reservation(0.2)) is None
            await process.advance(claim, 3, [make_reply(10, cost)])
            assert await read_money(process) == (used, 0), number


async def failures_and_summaries_settle_too(harness: StoreHarness) -> None:
    """A failed attempt is charged for what it used, and so is a failed summary."""
    async with open_in_one_process(harness) as process:
        failed = CompactionFailed("compact", "threshold", "no", Usage(5, 5), cost=0.05)
        for end, used in ((FAILED, 0.1), (failed, 0.15)):
            claim = await claim_new_run(process)
            assert await try_to_reserve(process, claim, make_reservation(0.5)) is None
            await process.advance(claim, 3, [end])
            assert await read_money(process) == (used, 0)


async def a_settled_reservation_is_free_for_the_next_call(harness: StoreHarness) -> None:
    """The end of a call and the intent of the next come in one advance, and count in that order."""
    async with open_in_one_process(harness) as process:
        claim = await claim_new_run(process)
        assert await try_to_reserve(process, claim, make_reservation(0.9)) is None
        advanced = await process.advance(claim, 3, [FAILED], [REQUEST], reserve=make_reservation(0.9))
        assert advanced.refused is None
        assert await read_money(process) == (0.1, 0.9)


async def concurrent_runs_never_exceed_a_ceiling(harness: StoreHarness) -> None:
    """Of many concurrent reservations in two processes, only as many succeed as there is room for."""
    async with open_in_two_processes(harness) as processes:
        claims = [(process, await claim_new_run(process)) for process in processes for _ in range(8)]
        asked = [try_to_reserve(process, claim, make_reservation(0.3)) for process, claim in claims]
        refused = await asyncio.gather(*asked)
        assert sum(short is None for short in refused) == 3
        assert await read_money(processes[0]) == (0, 0.9)


async def a_call_reserves_in_all_its_accounts_or_in_none(harness: StoreHarness) -> None:
    """A call that counts for two accounts reserves in both; if one is short, in neither."""
    async with open_in_one_process(harness) as process:
        rich, poor = Ceilings("agent/rich", cost=1.0), Ceilings("token/poor", cost=0.1)
        claim = await claim_new_run(process)
        short = await try_to_reserve(process, claim, Reserve((rich, poor), 1, 1, 10, 0.5))
        assert short is not None
        assert short.account == "token/poor"
        assert await read_money(process, "agent/rich") == (0, 0)
        assert await try_to_reserve(process, claim, Reserve((rich, poor), 1, 1, 10, 0.05)) is None
        await process.advance(claim, 3, [make_reply(10, 0.04)])
        assert [await read_money(process, name) for name in ("agent/rich", "token/poor")] == [(0.04, 0)] * 2


async def a_shortage_that_waiting_cannot_fix_is_reported_first(harness: StoreHarness) -> None:
    """Of several accounts that are short, the one is reported that waiting for other runs will not help."""
    async with open_in_one_process(harness) as process:
        assert (
            await try_to_reserve(process, await claim_new_run(process), make_reservation(0.9, account="agent/busy"))
            is None
        )
        accounts = (Ceilings("agent/busy", cost=1.0), Ceilings("token/poor", cost=0.1))
        short = await try_to_reserve(process, await claim_new_run(process), Reserve(accounts, 1, 1, 10, 0.5))
        assert short is not None
        assert short.account == "token/poor"


async def credits_are_charged_separately(harness: StoreHarness) -> None:
    """A reply is charged in credits at the rate with which its run was submitted."""
    async with open_in_one_process(harness) as process:
        opening = (process.draft(RunQueued(AGENT, credits_per_dollar=10.0)), process.draft(UserMessage(user("hi"))))
        claim = await process.claim(await process.store.submit(process.origin(), opening))
        bound = Ceilings("agent/bound", credits=5.0)
        assert (
            await try_to_reserve(
                process, claim, Reserve(accounts=(bound,), step=1, attempt=1, tokens=10, cost=0.25, credits=2.5)
            )
            is None
        )
        assert (await read_standing(process, bound)).reserved == 2.5
        await process.advance(claim, 3, [make_reply(10, 0.125)])
        short = await read_standing(process, bound)
        assert (short.kind, short.used, short.reserved) == ("credits", 1.25, 0)


# ── Ownership ──────────────────────────────────────────────────────────────────────────────────────


async def a_lost_reservation_is_settled_in_full(harness: StoreHarness) -> None:
    """The worker that takes a run over settles the whole reservation, once."""
    async with open_in_two_processes(harness) as (one, two):
        old = await claim_new_run(one)
        bound = (Ceilings("tree/one", cost=1.0), Ceilings("agent/bound", tokens=1000))
        assert await try_to_reserve(one, old, Reserve(bound, 1, 1, 300, 0.3)) is None
        one.clock.pass_time(LEASE_SECONDS)
        new = await two.claim(old.origin.run_id)
        assert await read_money(two) == (0.3, 0)
        assert (await read_standing(two, bound[1])).used == 300
        await check_fenced(one.advance(old, 3, [make_reply(10, 0.1)]))
        assert await try_to_reserve(two, new, Reserve(bound, 1, 2, 100, 0.1), seen=3) is None
        await two.advance(new, 4, [make_reply(50, 0.05)])
        assert await read_money(two) == (0.35, 0)


async def a_released_reservation_is_settled_by_the_next_owner(harness: StoreHarness) -> None:
    """A run that was released in the middle of a call has lost its reply as well."""
    async with open_in_one_process(harness) as process:
        claim = await claim_new_run(process)
        assert await try_to_reserve(process, claim, make_reservation(0.3)) is None
        await process.advance(claim, ANY, release=Release(wake_at=process.clock.now()))
        assert await read_money(process) == (0, 0.3)
        await process.claim(claim.origin.run_id)
        assert await read_money(process) == (0.3, 0)


async def an_owner_with_unseen_deliveries_reserves_nothing(harness: StoreHarness) -> None:
    """The intents are refused together with their reservations."""
    async with open_in_one_process(harness) as process:
        claim = await claim_new_run(process)
        await process.steer(claim.origin.run_id)
        advanced = await process.advance(claim, 2, [], [REQUEST], reserve=make_reservation(0.5))
        assert (advanced.accepted, advanced.refused, len(advanced.delivered)) == (False, None, 1)
        assert await read_money(process) == (0, 0)


async def a_fenced_worker_reserves_nothing(harness: StoreHarness) -> None:
    """Nothing from a worker whose run was taken over counts."""
    async with open_in_two_processes(harness) as (one, two):
        old = await claim_new_run(one)
        one.clock.pass_time(LEASE_SECONDS)
        await two.claim(old.origin.run_id)
        await check_fenced(one.advance(old, 2, [], [REQUEST], reserve=make_reservation(0.5)))
        assert await read_money(two) == (0, 0)


# ── Windows ────────────────────────────────────────────────────────────────────────────────────────


async def tokens_count_for_an_hour(harness: StoreHarness) -> None:
    """The usage of the last hour and the reservations count. Older usage stops counting at most a minute later. A
    refusal says when there is room."""
    async with open_in_one_process(harness) as process:
        bound = Ceilings("agent/bound", tokens=1000)
        claim = await claim_new_run(process)
        assert await try_to_reserve(process, claim, Reserve((bound,), 1, 1, 600)) is None
        short = await try_to_reserve(process, await claim_new_run(process), Reserve((bound,), 1, 1, 600))
        assert short is not None
        assert (short.kind, short.used, short.reserved, short.wanted) == ("tokens", 0, 600, 600)
        used_at = process.clock.now()
        await process.advance(claim, 3, [make_reply(700, 0.0)])
        process.clock.pass_time(3599)
        short = await try_to_reserve(process, await claim_new_run(process), Reserve((bound,), 1, 1, 600))
        assert short is not None
        assert (short.used, short.reserved) == (700, 0)
        assert short.resets_at is not None
        assert used_at + 3600 <= short.resets_at <= used_at + 3660
        process.clock.pass_time(short.resets_at - process.clock.now())
        assert await try_to_reserve(process, await claim_new_run(process), Reserve((bound,), 1, 1, 600)) is None


async def a_reservation_above_the_window_never_fits(harness: StoreHarness) -> None:
    """Then no time is named."""
    async with open_in_one_process(harness) as process:
        short = await try_to_reserve(
            process, await claim_new_run(process), Reserve((Ceilings("agent/bound", tokens=10),), 1, 1, 11)
        )
        assert short is not None
        assert short.resets_at is None


async def tool_calls_count_for_a_minute(harness: StoreHarness) -> None:
    """They count at once, nothing settles them, and they are free again after a minute."""
    async with open_in_one_process(harness) as process:
        start = ToolCallStart("c", "look", "{}", "key")
        bound = Ceilings("agent/bound", calls=5)
        claim, seen = await claim_new_run(process), 2
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


async def steps_and_runs_count_forever(harness: StoreHarness) -> None:
    """They count at once and separately, and nothing restores them: no reply, no end, no time. A reservation that
    does not fit is refused completely, with nothing left behind."""
    async with open_in_one_process(harness) as process:
        for kind in ("steps", "runs"):
            bound = Ceilings(f"tree/{kind}", **{kind: 3})
            claim = await claim_new_run(process)
            for wanted, used in ((2, 0), (2, None), (1, 2)):
                advanced = await process.advance(
                    claim, ANY, [], [make_step(1)], reserve=Reserve((bound,), **{kind: wanted})
                )
                assert advanced.accepted is (used is not None), (kind, wanted)
            await process.advance(claim, ANY, [make_reply(1, 0.0)])
            await process.end(claim, ANY)
            process.clock.pass_time(1e6)
            short = await try_to_reserve(
                process, await claim_new_run(process), Reserve((bound,), 1, 1, **{kind: 1})
            )
            assert short == Shortage(account=bound.account, kind=kind, ceiling=3, used=3, reserved=0, wanted=1)
            unbound = Ceilings(bound.account, cost=1.0)
            assert (
                await try_to_reserve(process, await claim_new_run(process), Reserve((unbound,), 1, 1, **{kind: 9}))
                is None
            )


async def a_step_refused_for_money_is_not_counted(harness: StoreHarness) -> None:
    """A reservation is made in all of its accounts and kinds, or not at all."""
    async with open_in_one_process(harness) as process:
        steps, poor = Ceilings("tree/one", steps=1, runs=1), Ceilings("tree/two", cost=0.1)
        wanted = Reserve((steps, poor), 1, 1, 10, 0.5, steps=1, runs=1)
        short = await try_to_reserve(process, await claim_new_run(process), wanted)
        assert short is not None
        assert short.account == "tree/two"
        assert (
            await try_to_reserve(process, await claim_new_run(process), Reserve((steps,), 1, 1, steps=1, runs=1))
            is None
        )


async def concurrent_runs_never_share_a_slot(harness: StoreHarness) -> None:
    """Of many runs that request one of the last slots concurrently, as many get one as there are."""
    async with open_in_two_processes(harness) as both:
        bound = Reserve((Ceilings("tree/one", runs=4, steps=100),), 1, 1, steps=1, runs=1)
        claims = [await claim_new_run(both[number % 2]) for number in range(12)]
        found = await asyncio.gather(
            *(try_to_reserve(both[number % 2], claim, bound) for number, claim in enumerate(claims))
        )
        assert found.count(None) == 4
        assert all(short is None or (short.kind, short.used) == ("runs", 4) for short in found)


async def a_run_near_its_limit_is_warned_once(harness: StoreHarness) -> None:
    """The first reservation after four fifths were used reports it: once per window, and again for another
    ceiling."""
    async with open_in_one_process(harness) as process:
        bound = Ceilings("agent/bound", tokens=1000)

        async def near(ceilings: Ceilings, used: int) -> list[str]:
            claim = await claim_new_run(process)
            advanced = await process.advance(claim, 2, [], [REQUEST], reserve=Reserve((ceilings,), 1, 1, 10))
            await process.advance(claim, 3, [make_reply(used, 0.0)])
            return [f"{short.kind} {short.used:.0f}/{short.ceiling:.0f}" for short in advanced.near]

        assert [await near(bound, used) for used in (799, 1, 10, 10)] == [[], [], ["tokens 800/1000"], []]
        assert await near(Ceilings("agent/bound", tokens=1010), 0) == ["tokens 820/1010"]
        process.clock.pass_time(3700)
        assert [await near(bound, used) for used in (900, 0)] == [[], ["tokens 900/1000"]]


CHECKS: Final[tuple[StoreCheck, ...]] = (
    a_reservation_that_fits_is_made,
    a_reservation_that_does_not_fit_is_refused_with_its_intents,
    a_refused_release_keeps_the_run,
    a_reply_settles_at_the_actual_usage,
    failures_and_summaries_settle_too,
    a_settled_reservation_is_free_for_the_next_call,
    concurrent_runs_never_exceed_a_ceiling,
    a_call_reserves_in_all_its_accounts_or_in_none,
    a_shortage_that_waiting_cannot_fix_is_reported_first,
    credits_are_charged_separately,
    a_lost_reservation_is_settled_in_full,
    a_released_reservation_is_settled_by_the_next_owner,
    an_owner_with_unseen_deliveries_reserves_nothing,
    a_fenced_worker_reserves_nothing,
    tokens_count_for_an_hour,
    a_reservation_above_the_window_never_fits,
    tool_calls_count_for_a_minute,
    steps_and_runs_count_forever,
    a_step_refused_for_money_is_not_counted,
    concurrent_runs_never_share_a_slot,
    a_run_near_its_limit_is_warned_once,
)
