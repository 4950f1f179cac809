"""Checks for implementers of `ports.automation`: the stores of schedules, hooks and webhooks."""

import asyncio
from typing import Final

from msgspec.structs import replace

from treadle.domain.ids import EventId, RunId, SessionId
from treadle.domain.schedules import Schedule, ScheduleId, Timing
from treadle.domain.webhooks import DeadLetter, HookId, InboundWebhook, Webhook, WebhookId
from treadle.ports.automation import TickResult
from treadle.testing.conformance.store_harness import (
    FullStoreCheck,
    FullStoreHarness,
    open_full_store,
    open_full_store_twice,
)

NOON = 1_800_000_000.123456
"""A tick with a fractional second, which must not be rounded."""
DAILY = Schedule(ScheduleId("sch_b"), "ada", "go\x00on", Timing("0 12 * * *", "Europe/Paris", 5.5), NOON)
BEAT = Schedule(
    schedule_id=ScheduleId("sch_a"),
    agent="bob",
    message="look",
    timing=Timing(600.0, "UTC", 1.0),
    next_at=None,
    session_id=SessionId("ses_1"),
    is_heartbeat=True,
    paused=True,
)
HOOK = InboundWebhook(
    hook_id=HookId("hook_b"), name="name", agent="ada", message="{{payload}}\x00", session=None, created_at=1.0
)
WEBHOOK = Webhook(
    webhook_id=WebhookId("web_b"),
    url="https://x/",
    events=("run_*", "a'b"),
    agents=None,
    created_at=1.5,
    position=7,
    most_attempts=None,
    delivered_at=None,
    attempts=0,
    retry_at=None,
    problem="",
    disabled=False,
)
LETTER = DeadLetter(
    webhook_id=WEBHOOK.webhook_id,
    event_id=EventId("evt_1"),
    run_id=RunId("run_1"),
    sequence=3,
    type="run_end",
    attempts=2,
    reason="it\x00said no",
    died_at=9.5,
    queued=False,
)


# ── Schedules ──────────────────────────────────────────────────────────────────────────────────────


async def schedules_are_stored_unchanged(harness: FullStoreHarness) -> None:
    """The oldest come first, also after a change. Progress is kept."""
    async with open_full_store(harness) as desk:
        schedules = desk.kept.schedules
        await schedules.keep(DAILY)
        await schedules.keep(BEAT)
        assert list(await schedules.list()) == [DAILY, BEAT]
        begun = await schedules.begin(DAILY, NOON, NOON + 60)
        assert begun == replace(DAILY, firing_at=NOON, next_at=NOON + 60)
        changed = replace(DAILY, message="another", agent="eve", next_at=NOON + 90, timing=BEAT.timing)
        await schedules.keep(changed)
        assert list(await schedules.list()) == [replace(changed, firing_at=NOON), BEAT]
        assert await schedules.remove(DAILY.schedule_id)
        assert not await schedules.remove(DAILY.schedule_id)
        assert list(await schedules.list()) == [BEAT]


async def a_tick_starts_and_finishes_once(harness: FullStoreHarness) -> None:
    """A schedule that was changed, paused or handled meanwhile does not start. A tick that started no run keeps
    the previous run."""
    async with open_full_store(harness) as desk:
        schedules = desk.kept.schedules
        await schedules.keep(DAILY)
        assert await schedules.begin(replace(DAILY, next_at=NOON + 1), NOON + 1, None) is None
        begun = await schedules.begin(DAILY, NOON + 60, NOON + 120)
        assert begun is not None
        assert begun == replace(DAILY, firing_at=NOON + 60, firing_since=NOON, next_at=NOON + 120)
        assert list(await schedules.list()) == [begun]
        assert await schedules.begin(DAILY, NOON + 60, NOON + 120) is None
        assert await schedules.begin(begun, NOON + 120, None) is None, "one at a time"
        await schedules.finish(DAILY.schedule_id, TickResult(NOON, RunId("run_0"), "an older tick"))
        assert list(await schedules.list()) == [begun]
        await schedules.finish(DAILY.schedule_id, TickResult(NOON + 60, RunId("run_1")))
        done = replace(DAILY, next_at=NOON + 120, fired_at=NOON + 60, run_id=RunId("run_1"))
        assert list(await schedules.list()) == [done]
        assert await schedules.begin(done, NOON + 120, None) is not None
        await schedules.finish(DAILY.schedule_id, TickResult(NOON + 120, problem="no\x00agent"))
        last = replace(done, next_at=None, fired_at=NOON + 120, problem="no\x00agent")
        assert list(await schedules.list()) == [last]
        await schedules.keep(replace(last, next_at=NOON + 180, paused=True))
        assert await schedules.begin(replace(last, next_at=NOON + 180), NOON + 180, None) is None


async def only_one_of_concurrent_callers_gets_a_tick(harness: FullStoreHarness) -> None:
    """In whichever process."""
    async with open_full_store_twice(harness) as (one, two):
        for number in range(5):
            schedule = replace(DAILY, schedule_id=ScheduleId(f"sch_{number}"))
            await one.kept.schedules.keep(schedule)
            begun = await asyncio.gather(
                *(desk.kept.schedules.begin(schedule, NOON, None) for _ in range(3) for desk in (one, two))
            )
            assert sum(given is not None for given in begun) == 1


# ── Hooks and webhooks ─────────────────────────────────────────────────────────────────────────────


async def hooks_are_stored_unchanged(harness: FullStoreHarness) -> None:
    """The oldest come first."""
    async with open_full_store(harness) as desk:
        hooks, other = (
            desk.kept.hooks,
            InboundWebhook(
                hook_id=HookId("hook_a"),
                name="n",
                agent="bob",
                message="m",
                session="{{payload.x}}",
                created_at=1.0,
            ),
        )
        await hooks.add(HOOK)
        await hooks.add(other)
        assert list(await hooks.list()) == [HOOK, other]
        assert await hooks.find(other.hook_id) == other
        assert await hooks.find(HookId("hook_c")) is None
        assert await hooks.remove(HOOK.hook_id)
        assert not await hooks.remove(HOOK.hook_id)
        assert list(await hooks.list()) == [other]


async def a_webhook_advances_with_its_dead_letters(harness: FullStoreHarness) -> None:
    """Its dead letters are removed with it. A webhook that was removed meanwhile stores none."""
    async with open_full_store(harness) as desk:
        webhooks = desk.kept.webhooks
        other = replace(WEBHOOK, webhook_id=WebhookId("web_a"), agents=("ada",), most_attempts=4)
        await webhooks.add(WEBHOOK)
        await webhooks.add(other)
        assert list(await webhooks.list()) == [WEBHOOK, other]
        moved = replace(
            WEBHOOK, position=2**40, attempts=3, first_failed_at=2.5, retry_at=3.5, delivered_at=1.5,
            problem="n\x00", disabled=True,
        )  # fmt: skip
        await webhooks.move(moved)
        assert list(await webhooks.list()) == [moved, other]
        await webhooks.move(WEBHOOK, LETTER)
        await webhooks.move(WEBHOOK, LETTER)
        assert list(await webhooks.list()) == [WEBHOOK, other]
        assert list(await webhooks.list_letters(WEBHOOK.webhook_id)) == [LETTER]
        assert list(await webhooks.list_letters(other.webhook_id)) == []
        assert await webhooks.remove(WEBHOOK.webhook_id)
        assert not await webhooks.remove(WEBHOOK.webhook_id)
        await webhooks.move(WEBHOOK, LETTER)
        assert list(await webhooks.list_letters(WEBHOOK.webhook_id)) == []


async def dead_letters_are_retried_on_request(harness: FullStoreHarness) -> None:
    """One or all of them, which enables the webhook. The oldest come first."""
    async with open_full_store(harness) as desk:
        webhooks, own = desk.kept.webhooks, WEBHOOK.webhook_id
        await webhooks.add(WEBHOOK)
        older = replace(LETTER, event_id=EventId("evt_2"), died_at=8.5)
        for letter in (LETTER, older):
            await webhooks.move(replace(WEBHOOK, disabled=True, retry_at=5.0), letter)
        assert list(await webhooks.list_letters(own)) == [older, LETTER]
        assert await webhooks.count_letters() == {own: 2}
        assert await webhooks.queue(own, EventId("evt_9")) == 0
        assert await webhooks.queue(own, LETTER.event_id) == 1
        assert list(await webhooks.list()) == [WEBHOOK]
        assert [letter.queued for letter in await webhooks.list_letters(own)] == [False, True]
        await webhooks.settle(replace(LETTER, queued=True), "no again")
        assert list(await webhooks.list_letters(own)) == [older, replace(LETTER, attempts=3, reason="no again")]
        assert await webhooks.queue(own, None) == 2
        await webhooks.settle(older, None)
        assert [letter.event_id for letter in await webhooks.list_letters(own)] == ["evt_1"]


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    schedules_are_stored_unchanged,
    a_tick_starts_and_finishes_once,
    only_one_of_concurrent_callers_gets_a_tick,
    hooks_are_stored_unchanged,
    a_webhook_advances_with_its_dead_letters,
    dead_letters_are_retried_on_request,
)
