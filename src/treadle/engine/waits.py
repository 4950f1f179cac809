"""Waits of a run: which ones it records, and which are the same as the one before."""

from treadle.core.state import RunState
from treadle.domain.events import EventData, RunWaiting

POLLED_WAITS = ("breaker", "quota", "budget")
"""Reasons to wait for which a worker claims the run again at intervals and checks."""


def make_wait_events(wait: RunWaiting, state: RunState) -> tuple[EventData, ...]:
    """Return the event that records a wait, or nothing if the run still waits for the same reason."""
    return () if state.waiting is not None and is_same_wait(wait, state.waiting) else (wait,)


def is_same_wait(one: RunWaiting, other: RunWaiting) -> bool:
    """Return whether a run that waits as `other` says need not record that it waits as `one` says."""
    if one.reason != other.reason or one.reason in POLLED_WAITS:
        return one.reason == other.reason
    if one.wake_at != other.wake_at:
        return False
    # The detail of the other waits comes from outside: what is missing, or why a client interrupted the run.
    return one.subjects == other.subjects if one.subjects or one.reason == "retry" else one.detail == other.detail
