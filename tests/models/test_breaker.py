"""The circuit breaker: it opens on a failure rate, lets one probe through, and is shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.models.breaker import (
    MAX_OPEN_SECONDS,
    MIN_CALLS,
    OPEN_SECONDS,
    PROBE_WAIT_SECONDS,
    WINDOW_SECONDS,
    Breakers,
    CircuitBreaker,
)


def opened(at: float = 0.0) -> CircuitBreaker:
    breaker = CircuitBreaker()
    changes = [breaker.record(failed=True, now=at) for _ in range(MIN_CALLS)]
    assert changes == [None] * (MIN_CALLS - 1) + ["opened"]
    return breaker


def test_a_few_failures_do_not_open_the_breaker() -> None:
    breaker = CircuitBreaker()
    for _ in range(MIN_CALLS - 1):
        assert breaker.record(failed=True, now=0.0) is None
    assert breaker.wait(0.0) is None
    assert breaker.phase == "closed"


def test_the_breaker_opens_at_half_failures() -> None:
    breaker = CircuitBreaker()
    for _ in range(6):
        assert breaker.record(failed=False, now=0.0) is None
    for _ in range(5):
        assert breaker.record(failed=True, now=0.0) is None
    assert breaker.record(failed=True, now=0.0) == "opened"


def test_old_failures_are_forgotten() -> None:
    breaker = CircuitBreaker()
    for _ in range(MIN_CALLS - 1):
        breaker.record(failed=True, now=0.0)
    assert breaker.record(failed=True, now=WINDOW_SECONDS + 1) is None
    assert (breaker.calls, breaker.failures) == (1, 1)


def test_an_open_breaker_returns_the_wait() -> None:
    breaker = opened(at=100.0)
    assert breaker.wait(100.0) == OPEN_SECONDS
    assert breaker.wait(110.0) == OPEN_SECONDS - 10
    assert breaker.is_open(110.0)


def test_a_successful_probe_closes_the_breaker() -> None:
    breaker = opened()
    assert breaker.wait(OPEN_SECONDS) is None
    assert breaker.phase == "half_open"
    assert breaker.wait(OPEN_SECONDS, "another") == PROBE_WAIT_SECONDS, "one at a time"
    assert breaker.record(failed=False, now=OPEN_SECONDS, who="another") is None, "not the probe"
    breaker.abandon("another")
    assert breaker.wait(OPEN_SECONDS, "a third") == PROBE_WAIT_SECONDS
    assert breaker.record(failed=False, now=OPEN_SECONDS + 1) == "closed"
    assert breaker.wait(OPEN_SECONDS + 1) is None
    assert breaker.record(failed=True, now=OPEN_SECONDS + 2) is None, "it counts from the start"


def test_a_failed_probe_doubles_the_open_time_up_to_a_limit() -> None:
    breaker, now, rests = opened(), 0.0, list[float]()
    for _ in range(6):
        rest = breaker.wait(now)
        assert rest is not None
        rests.append(rest)
        now += rest
        assert breaker.wait(now) is None
        assert breaker.record(failed=True, now=now) is None
    assert rests == [30, 60, 120, 240, MAX_OPEN_SECONDS, MAX_OPEN_SECONDS]


def test_an_abandoned_probe_allows_another() -> None:
    breaker = opened()
    assert breaker.wait(OPEN_SECONDS) is None
    breaker.abandon()
    assert breaker.wait(OPEN_SECONDS) is None


def test_a_call_sent_before_the_breaker_opened_has_no_effect() -> None:
    breaker = opened()
    assert breaker.record(failed=False, now=1.0) is None
    assert breaker.wait(1.0) == OPEN_SECONDS - 1


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=200))
def test_calls_outside_the_window_are_not_counted(calls: list[tuple[float, bool]]) -> None:
    breaker, now, seen = CircuitBreaker(), 0.0, list[tuple[float, bool]]()
    for later, failed in calls:
        now += later
        if breaker.wait(now) is None:
            if breaker.record(failed, now) == "closed":
                seen.clear()
            else:
                seen.append((now, failed))
            recent = [failed for at, failed in seen if at >= now - WINDOW_SECONDS]
            assert (breaker.calls, breaker.failures) == (len(recent), sum(recent))


def test_callers_of_the_same_model_share_a_breaker() -> None:
    breakers = Breakers()
    first = breakers.get("mine", "https://host/v1", "m")
    assert breakers.get("mine", "https://host/v1", "m") is first
    assert breakers.get("mine", "https://other/v1", "m") is not first
    assert breakers.get("mine", "https://host/v1", "n") is not first
    for _ in range(MIN_CALLS):
        first.record(failed=True, now=0.0)
    [state, *_] = breakers.states()
    assert (state.provider, state.model, state.phase) == ("mine", "m", "open")
    assert (state.failures, state.opened) == (MIN_CALLS, 1)


@pytest.mark.parametrize("failures", [0, 1, 4])
def test_is_open_changes_nothing(failures: int) -> None:
    breaker = CircuitBreaker()
    for _ in range(failures):
        breaker.record(failed=True, now=0.0)
    assert not breaker.is_open(0.0)
    late = opened()
    assert not late.is_open(OPEN_SECONDS)
    assert late.phase == "open", "asking is not probing"
