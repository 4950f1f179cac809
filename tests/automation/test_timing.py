"""When schedules fire: intervals, cron expressions in a time zone, and nights on which the clock changes."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.domain.schedules import Heartbeat, Timing

BERLIN = ZoneInfo("Europe/Berlin")
CRONS = ("* * * * *", "*/15 * * * *", "0 * * * *", "30 2 * * *", "0 9 * * 1-5", "0 */6 * * *", "15 1,2,3 * * *")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
YEAR = (1_767_225_600.0, 1_798_761_600.0)
"""2026."""


def parse_time(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def ticks(timing: Timing, after: float, count: int) -> list[float]:
    found: list[float] = []
    for _ in range(count):
        tick = timing.after(found[-1] if found else after)
        assert tick is not None
        found.append(tick)
    return found


def test_an_interval_is_counted_from_its_beginning() -> None:
    timing = Timing("15m", anchor=1000.0)
    assert ticks(timing, 1000.0, 3) == [1900.0, 2800.0, 3700.0]
    assert timing.latest(1900.0, 3699.0) == 2800.0
    assert timing.latest(1900.0, 3700.0) == 3700.0
    assert Timing(900, anchor=1000.0).after(1000.0) == 1900.0


def test_a_cron_expression_is_evaluated_in_its_time_zone() -> None:
    timing = Timing("0 9 * * 1-5", "Europe/Berlin")
    friday = parse_time("2026-03-06T08:00:00")
    assert ticks(timing, friday, 2) == [parse_time("2026-03-06T09:00:00"), parse_time("2026-03-09T09:00:00")]
    assert datetime.fromtimestamp(ticks(timing, friday, 1)[0], UTC).hour == 8


def test_an_hour_skipped_in_spring_still_has_its_tick() -> None:
    timing = Timing("30 2 * * *", "Europe/Berlin")
    [first, second] = ticks(timing, parse_time("2026-03-28T12:00:00"), 2)
    assert first == parse_time("2026-03-29T03:00:00"), "there is no half past two on that day"
    assert second == parse_time("2026-03-30T02:30:00")


def test_an_hour_repeated_in_autumn_has_one_tick() -> None:
    timing = Timing("30 2 * * *", "Europe/Berlin")
    found = ticks(timing, parse_time("2026-10-24T12:00:00"), 2)
    assert [datetime.fromtimestamp(tick, BERLIN).day for tick in found] == [25, 26]


def test_an_hourly_schedule_continues_when_the_clocks_change() -> None:
    for change in ("2026-03-29T00:00:00", "2026-10-25T00:00:00"):
        found = ticks(Timing("0 * * * *", "Europe/Berlin"), parse_time(change), 8)
        assert {later - earlier for earlier, later in pairwise(found)} == {3600.0}


@given(st.sampled_from([*CRONS, "7m", 3600.0]), st.sampled_from(ZONES), st.floats(*YEAR), st.floats(0, 30 * 86400))
def test_no_tick_lies_between_the_latest_tick_and_now(
    every: float | str, zone: str, begin: float, down: float
) -> None:
    timing = Timing(every, zone, YEAR[0])
    first = timing.after(begin)
    assert first is not None
    assert first > begin
    now = first + down
    latest = timing.latest(first, now)
    following = timing.after(latest)
    assert following is not None
    assert first <= latest <= now < following


@pytest.mark.parametrize(
    ("every", "zone", "told"),
    [
        ("@daily", "UTC", "accepted: a time such as 15m, or a cron expression"),
        ("* * * *", "UTC", "needs 5 fields"),
        ("0 0 0 1 1 *", "UTC", "needs 5 fields"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        (0.5, "UTC", "at least 1 s"),
        (float("nan"), "UTC", "at least 1 s"),
        (float("inf"), "UTC", "at least 1 s"),
        ("0 9 * * *", "Mars/Olympus", "not a time zone"),
        ("0 9 * * *", "../../etc/passwd", "not a time zone"),
    ],
)
def test_an_invalid_timing_is_refused(every: float | str, zone: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Timing(every, zone)


def test_a_heartbeat_needs_a_message_and_a_valid_interval() -> None:
    assert Heartbeat().every is None
    with pytest.raises(ValueError, match="message must say"):
        Heartbeat("15m", " ")
    with pytest.raises(ValueError, match="needs 5 fields"):
        Heartbeat("now and then", "look")
