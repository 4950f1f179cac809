"""Ticks of schedules: each starts one run, is skipped, or replaces missed ones. No crash makes a tick fire
twice."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.automation.clockwork import DEATHS, HERO, Clockwork, Died
from treadle.domain.errors import UnknownSchedule, UsageError
from treadle.domain.events import HeartbeatFired, RunQueued, UserMessage
from treadle.domain.ids import SessionId
from treadle.domain.schedules import ScheduleId
from treadle.operations.automation import NewSchedule
from treadle.ports.deletion import Tombstone
from treadle.stores.sqlite.deletion import SqliteDeletions

EVERY = 600.0


def every_ten_minutes(**more: Any) -> NewSchedule:
    return NewSchedule("hero", "look around", EVERY, **more)


async def test_a_tick_starts_one_run_whose_first_event_is_the_tick() -> None:
    works = Clockwork()
    began = works.clock.now()
    view = await works.book.add(every_ten_minutes())
    await works.scheduler.fire_due()
    assert await works.fired() == [], "it is not time yet"
    works.clock.pass_time(EVERY)
    wait = await works.scheduler.fire_due()
    await works.scheduler.fire_due()
    assert await works.fired() == [began + EVERY]
    assert 0 < wait <= 5
    [kept] = await works.book.list()
    assert kept.schedule_id == view.schedule_id
    assert kept.next_at is not None
    assert kept.next_at.timestamp() == began + 2 * EVERY
    assert kept.run_id is not None
    events = await works.journal.read(kept.run_id)
    assert [type(event.data) for event in events] == [RunQueued, HeartbeatFired, UserMessage]
    assert isinstance(events[0].data, RunQueued)
    assert events[0].data.asker is None, "no person can answer questions"


async def test_its_runs_have_the_tags_of_the_agent() -> None:
    works = Clockwork(agents=lambda: {"hero": msgspec.structs.replace(HERO, tags=("nightly",))})
    await works.book.add(every_ten_minutes())
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    [event] = await works.events(RunQueued)
    assert isinstance(event.data, RunQueued)
    assert event.data.tags == ("nightly",)


async def test_missed_ticks_become_one_run_for_the_last_of_them() -> None:
    works = Clockwork()
    began = works.clock.now()
    await works.book.add(every_ten_minutes())
    works.clock.pass_time(7.5 * EVERY)
    await works.restarted().fire_due()
    [event] = await works.events(HeartbeatFired)
    assert isinstance(event.data, HeartbeatFired)
    assert event.data.due_at == began + 7 * EVERY
    assert event.data.missed_since == began + EVERY


async def test_a_tick_during_the_previous_run_is_skipped_and_recorded() -> None:
    works = Clockwork()
    began = works.clock.now()
    await works.book.add(every_ten_minutes())
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    await works.scheduler.fire_due()
    assert await works.fired() == [began + EVERY]
    assert await works.skipped() == [began + 2 * EVERY]
    [kept] = await works.book.list()
    assert "skipped" in kept.problem
    await works.end_all()
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    assert await works.fired() == [began + EVERY, began + 3 * EVERY]
    [kept] = await works.book.list()
    assert kept.problem == ""


async def test_a_clock_that_is_set_back_fires_nothing_twice() -> None:
    works = Clockwork()
    began = works.clock.now()
    await works.book.add(every_ten_minutes())
    works.clock.pass_time(2 * EVERY)
    await works.scheduler.fire_due()
    await works.end_all()
    works.clock.jump(-1.5 * EVERY)
    for _ in range(3):
        await works.scheduler.fire_due()
        works.clock.pass_time(0.4 * EVERY)
    assert await works.fired() == [began + 2 * EVERY]
    [schedule] = await works.book.list()
    await works.book.pause(schedule.schedule_id)
    works.clock.jump(-1.0 * EVERY)
    resumed = await works.book.resume(schedule.schedule_id)
    assert resumed.next_at is not None
    works.clock.jump(resumed.next_at.timestamp() - works.clock.now())
    await works.scheduler.fire_due()
    works.clock.jump(EVERY)
    await works.scheduler.fire_due()
    assert sorted(await works.fired()) == sorted(set(await works.fired()))


async def test_a_clock_that_was_wrong_by_years_does_not_stop_a_schedule() -> None:
    works = Clockwork()
    began = works.clock.now()
    await works.book.add(every_ten_minutes())
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    await works.end_all()
    works.clock.jump(10 * 365 * 86_400)
    await works.scheduler.fire_due()
    await works.end_all()
    works.clock.jump(-10 * 365 * 86_400 - EVERY / 2)
    for _ in range(4):
        await works.scheduler.fire_due()
        await works.end_all()
        works.clock.pass_time(EVERY / 2)
    near = sorted(tick for tick in await works.fired() if tick < began + 86_400)
    assert near == [began + EVERY, began + 2 * EVERY], "what has fired does not fire again"
    assert len(await works.fired()) == 3


async def test_a_clock_that_jumps_ahead_fires_once() -> None:
    works = Clockwork()
    await works.book.add(every_ten_minutes())
    works.clock.jump(86_400 * 365)
    await works.scheduler.fire_due()
    await works.end_all()
    await works.scheduler.fire_due()
    assert len(await works.fired()) == 1


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("down", [0.0, EVERY * 2.5])
@pytest.mark.parametrize("busy", [False, True])
async def test_a_tick_is_handled_once_if_the_process_dies_at_any_point(death: str, down: float, busy: bool) -> None:
    works = Clockwork()
    began = works.clock.now()
    await works.book.add(every_ten_minutes())
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    if not busy:
        await works.end_all()
    works.clock.pass_time(EVERY)
    works.schedules.dies_at = death
    with pytest.raises(Died):
        await works.scheduler.fire_due()
    if death != "before begin":
        await works.end_all()  # what was decided then stays so, whatever has come meanwhile
    works.clock.pass_time(down)
    for _ in range(3):
        await works.restarted().fire_due()
        await works.end_all()
    seen = await works.fired() + await works.skipped()
    assert len(seen) == len(set(seen))
    if death != "before begin":
        assert began + 2 * EVERY in seen
    if down:
        assert began + 4 * EVERY in seen


async def test_a_schedule_is_paused_resumed_and_removed() -> None:
    works = Clockwork()
    view = await works.book.add(every_ten_minutes())
    paused = await works.book.pause(view.schedule_id)
    assert paused.paused
    assert paused.next_at is None
    works.clock.pass_time(5 * EVERY)
    await works.scheduler.fire_due()
    assert await works.fired() == []
    resumed = await works.book.resume(view.schedule_id)
    await works.scheduler.fire_due()
    assert await works.fired() == [], "what passed meanwhile is not made up for"
    assert resumed.next_at is not None
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    assert await works.fired() == [resumed.next_at.timestamp()]
    await works.book.remove(view.schedule_id)
    assert await works.book.list() == []
    for change in (works.book.remove, works.book.pause, works.book.resume):
        with pytest.raises(UnknownSchedule, match="treadle schedules list"):
            await change(ScheduleId("sch_none"))


async def test_a_run_that_cannot_start_is_reported_and_the_next_tick_fires() -> None:
    agents: dict[str, Any] = {}
    works = Clockwork(agents=lambda: agents)
    await works.book.add(every_ten_minutes())
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    [kept] = await works.book.list()
    assert "No agent is called `hero`" in kept.problem
    agents["hero"] = Clockwork().agents()["hero"]
    await works.service.set_agent_state("hero", "paused")
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    [kept] = await works.book.list()
    assert "paused" in kept.problem
    await works.service.set_agent_state("hero", "running")
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    [kept] = await works.book.list()
    assert kept.problem == ""
    assert len(await works.fired()) == 1


async def test_a_message_that_looks_like_a_command_is_a_message() -> None:
    works = Clockwork()
    await works.book.add(NewSchedule("hero", "/reset now", EVERY, session_id="mine"))
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    [said] = await works.events(UserMessage)
    assert isinstance(said.data, UserMessage)
    assert said.data.message.text == "/reset now"
    assert said.session_id == "mine"


async def test_a_deleted_session_is_reported() -> None:
    works = Clockwork()
    await works.book.add(every_ten_minutes(session_id="mine"))
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    await works.end_all()
    buried = await SqliteDeletions(works.writer, ":memory:", works.clock).delete(SessionId("mine"), "me")
    assert [type(each) for each in buried] == [Tombstone]
    works.clock.pass_time(EVERY)
    await works.scheduler.fire_due()
    [kept] = await works.book.list()
    assert "deleted" in kept.problem
    assert await works.fired() == []


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (NewSchedule("hero", "look", "@daily"), "accepted: a time such as 15m"),
        (NewSchedule("hero", "look", "0 9 * * *", "Mars/Olympus"), "not a time zone"),
        (NewSchedule("hero", "  ", 60), "The message is empty"),
    ],
)
async def test_a_schedule_that_would_never_fire_is_refused(wanted: NewSchedule, told: str) -> None:
    works = Clockwork()
    with pytest.raises(UsageError, match=told):
        await works.book.add(wanted)
    assert await works.book.list() == []


down_times = st.lists(st.tuples(st.floats(0, 5000), st.booleans(), st.sampled_from((None, *DEATHS))), max_size=8)


@settings(max_examples=60, deadline=None)
@given(down_times, st.sampled_from([EVERY, "*/10 * * * *", 37.0]))
async def test_no_tick_fires_twice_and_the_last_missed_one_fires_after_any_downtime(
    times: list[tuple[float, bool, str | None]], every: float | str
) -> None:
    works = Clockwork()
    await works.book.add(NewSchedule("hero", "look", every))
    [schedule] = await works.schedules.list()
    for seconds, ends, death in times:
        works.clock.pass_time(seconds)
        if ends:
            await works.end_all()
        works.schedules.dies_at = death
        try:
            await works.restarted().fire_due()
        except Died:
            await works.restarted().fire_due()
        works.schedules.dies_at = None
        seen = await works.fired() + await works.skipped()
        assert len(seen) == len(set(seen))
        now = works.clock.now()
        assert schedule.next_at is not None
        if schedule.next_at <= now:
            assert schedule.timing.latest(schedule.next_at, now) in seen
