"""What readers are given, and when: at once, unless the process has more to do than it can."""

import asyncio
import time

import pytest

from treadle.domain.envelope import Event, Origin
from treadle.domain.events import EventData, RunEnd, StepStart, Token
from treadle.domain.identity import AgentId, RunId, SessionId
from treadle.domain.runs import Metrics
from treadle.engine.hub import Hub
from treadle.engine.subscription import LONGEST_PAUSE, MEMORY_SECONDS, Pace, Subscription
from treadle.testing.time import CountingIds, FakeClock

ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))
END = RunEnd("completed", "completed", Metrics())


def hub() -> Hub:
    return Hub(FakeClock(), CountingIds(), lambda _run, _at: None)


def event(of: Hub, sequence: int, data: EventData | None = None) -> Event:
    return of.event(ORIGIN, sequence, data or StepStart(sequence))


async def taken(reader: Subscription) -> list[int]:
    events = await reader.take()
    assert events is not None
    return [each.sequence for each in events]


def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it seem as if readers had been woken late for a while."""

    def pause(self: Pace, now: float) -> float:
        del self, now
        return LONGEST_PAUSE

    monkeypatch.setattr(Pace, "pause", pause)


def test_what_is_committed_is_shown_at_once_and_what_is_live_waits_for_more() -> None:
    async def work() -> None:
        of = hub()
        with of.subscribe(ORIGIN.run_id, patience=0.05) as reader:
            waiting = asyncio.create_task(taken(reader))
            await asyncio.sleep(0)
            reader.show(event(of, 1, Token(1, 1, 0, "a")))
            reader.offer([event(of, 2)])
            reader.offer([event(of, 3)])
            assert await asyncio.wait_for(waiting, 0.04) == [1, 2, 3]

    asyncio.run(work())


@pytest.mark.parametrize("patience", [0.0, 0.02])
def test_a_process_that_is_behind_wakes_patient_readers_less_often(
    patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(monkeypatch)

    async def work() -> None:
        of = hub()
        with of.subscribe(ORIGIN.run_id, patience=patience) as reader:
            waiting = asyncio.create_task(taken(reader))
            await asyncio.sleep(0)
            reader.offer([event(of, 1)])
            await asyncio.sleep(0.005)
            reader.offer([event(of, 2)])
            assert await waiting == ([1, 2] if patience else [1])

    asyncio.run(work())


def test_an_end_is_not_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    busy(monkeypatch)

    async def work() -> None:
        of = hub()
        with of.subscribe(ORIGIN.run_id, patience=0.02) as reader:
            waiting = asyncio.create_task(taken(reader))
            await asyncio.sleep(0)
            reader.offer([event(of, 1)])
            await asyncio.sleep(0.005)
            began = time.monotonic()
            reader.offer([event(of, 2, END)])
            assert await waiting == [1, 2]
            assert time.monotonic() - began < LONGEST_PAUSE / 2

    asyncio.run(work())


def told(pace: Pace, begin: float, times: int, late: float) -> float:
    """So many readers were woken late, one every five milliseconds; when that was over."""
    for number in range(times):
        now = begin + number * 0.005
        pace.tell(now - late, now)
    return begin + times * 0.005


def test_a_process_that_has_caught_up_shows_everything_at_once_again() -> None:
    pace = Pace()
    now = told(pace, 1.0, 400, 0.05)
    assert pace.pause(now) == LONGEST_PAUSE
    now = told(pace, now, 400, 0.0)
    assert pace.pause(now) == 0.0


def test_a_process_that_is_held_up_once_is_not_busy() -> None:
    pace = Pace()
    now = told(pace, 1.0, 200, 0.0) + 0.1
    for _ in range(50):  # so many readers have waited for it
        pace.tell(now - 0.1, now)
    assert pace.pause(now) == 0.0


def test_what_was_long_ago_keeps_nothing_back() -> None:
    pace = Pace()
    now = told(pace, 1.0, 400, 0.05)
    assert pace.pause(now + MEMORY_SECONDS / 2) == LONGEST_PAUSE
    assert pace.pause(now + MEMORY_SECONDS) == 0.0
    pace.tell(now, now + MEMORY_SECONDS)
    assert pace.pause(now + MEMORY_SECONDS) == 0.0, "and it is forgotten for good"
