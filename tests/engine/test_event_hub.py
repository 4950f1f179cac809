"""When the event hub delivers events to readers: at once, unless the process is overloaded."""

import asyncio
import time

import pytest

from tests.engine.running import virtually
from tests.patience import HANG_SECONDS
from treadle.domain.envelope import Event, Origin
from treadle.domain.events import EventData, RunEnd, StepStart, Token
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.runs import Metrics
from treadle.engine.event_hub import EventHub
from treadle.engine.subscription import LOAD_SAMPLE_SECONDS, MAX_PAUSE_SECONDS, WINDOW_SECONDS, Pace, Subscription
from treadle.testing.time import CountingIds, FakeClock

ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))
END = RunEnd("completed", "completed", Metrics())


def hub() -> EventHub:
    return EventHub(FakeClock(), CountingIds(), lambda _run, _at: None)


def event(of: EventHub, sequence: int, data: EventData | None = None) -> Event:
    return of.make_event(ORIGIN, sequence, data or StepStart(sequence))


async def take_sequences(reader: Subscription) -> list[int]:
    events = await reader.take()
    assert events is not None
    return [each.sequence for each in events]


def make_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it seem as if readers had been woken late for a while."""

    def pause(self: Pace, now: float) -> float:
        del self, now
        return MAX_PAUSE_SECONDS

    monkeypatch.setattr(Pace, "pause", pause)


async def test_durable_events_are_shown_at_once_and_live_events_are_gathered() -> None:
    of = hub()
    with of.subscribe(ORIGIN.run_id, gather_seconds=10 * HANG_SECONDS) as reader:
        waiting = asyncio.create_task(take_sequences(reader))
        await asyncio.sleep(0)
        reader.show(event(of, 1, Token(1, 1, 0, "a")))
        reader.offer([event(of, 2)])
        reader.offer([event(of, 3)])
        assert await asyncio.wait_for(waiting, HANG_SECONDS) == [1, 2, 3]


@pytest.mark.parametrize("gather_seconds", [0.0, 0.02])
def test_an_overloaded_process_wakes_patient_readers_less_often(
    gather_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_busy(monkeypatch)

    async def work() -> None:
        of = hub()
        with of.subscribe(ORIGIN.run_id, gather_seconds=gather_seconds) as reader:
            waiting = asyncio.create_task(take_sequences(reader))
            await asyncio.sleep(0.005)
            reader.offer([event(of, 1)])
            await asyncio.sleep(0.005)
            reader.offer([event(of, 2)])
            assert await waiting == ([1, 2] if gather_seconds else [1])

    virtually(work())


def test_the_end_of_a_run_is_delivered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    make_busy(monkeypatch)

    async def work() -> None:
        of = hub()
        with of.subscribe(ORIGIN.run_id, gather_seconds=0.02) as reader:
            waiting = asyncio.create_task(take_sequences(reader))
            await asyncio.sleep(0.005)
            reader.offer([event(of, 1)])
            await asyncio.sleep(0.005)
            began = asyncio.get_running_loop().time()
            reader.offer([event(of, 2, END)])
            assert await waiting == [1, 2]
            assert asyncio.get_running_loop().time() == began

    virtually(work())


class Loop:
    """A loop that works for some share of its time, and wakes readers late."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.worked = 0.0
        self.pace = Pace(lambda: self.worked)

    def goes_on(self, seconds: float, late: float, share: float) -> float:
        """A reader is woken every five milliseconds; the pause in the end."""
        pause = 0.0
        for _ in range(round(seconds / 0.005)):
            self.now, self.worked = self.now + 0.005, self.worked + 0.005 * share
            self.pace.record_delay(self.now - late, self.now)
            pause = self.pace.pause(self.now)
        return pause


def test_a_process_that_has_caught_up_shows_everything_at_once_again() -> None:
    loop = Loop()
    assert loop.goes_on(2, 0.05, 0.9) == MAX_PAUSE_SECONDS
    assert loop.goes_on(2, 0.0, 0.7) == 0.0


@pytest.mark.parametrize("seconds", [0.1, 0.45, 2.0])
def test_a_single_stall_does_not_count_as_busy(seconds: float) -> None:
    loop = Loop()
    loop.goes_on(1, 0.0, 0.7)
    loop.now, loop.worked = loop.now + seconds, loop.worked + seconds
    for number in range(50):  # so many readers have waited for it
        now = loop.now + number * 0.0001
        loop.pace.record_delay(now - seconds, now)
        assert loop.pace.pause(now) == 0.0


@pytest.mark.parametrize(("readers", "every"), [(50, 0.1), (400, 0.1), (1000, 0.3)])
def test_many_readers_woken_together_do_not_make_a_process_busy(readers: int, every: float) -> None:
    loop, pauses = Loop(), 0
    begin = loop.now
    for burst in range(100):
        for number in range(readers):
            loop.worked += 0.00003
            now = begin + burst * every + number * 0.00003
            loop.pace.record_delay(begin + burst * every, now)
            pauses += loop.pace.pause(now) > 0.0
    assert pauses < readers, "at most once, before it was looked at"


def test_old_stalls_are_forgotten() -> None:
    loop = Loop()
    loop.goes_on(2, 0.05, 1.0)
    loop.worked += WINDOW_SECONDS
    assert loop.pace.pause(loop.now + WINDOW_SECONDS / 2) == MAX_PAUSE_SECONDS
    assert loop.pace.pause(loop.now + WINDOW_SECONDS) == 0.0
    loop.pace.record_delay(loop.now, loop.now + WINDOW_SECONDS)
    assert loop.pace.pause(loop.now + WINDOW_SECONDS) == 0.0, "and it is forgotten for good"


def test_only_the_cpu_time_of_the_loop_counts_as_work() -> None:
    """The CPU time of this thread is real. The time of day passes as it would on a machine without other work."""
    begin, worked = time.monotonic(), time.thread_time()
    pace, now = Pace(), begin
    while now - begin < WINDOW_SECONDS:
        sum(range(1000))
        now = begin + time.thread_time() - worked
        pace.record_delay(now - 0.05, now)
    assert pace.pause(now) > 0.0
    for _ in range(8):
        now += LOAD_SAMPLE_SECONDS / 4
        pace.record_delay(now - 0.05, now)
        pace.pause(now)
    assert pace.pause(now) == 0.0
