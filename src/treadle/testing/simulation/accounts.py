"""Checks that accounts and usage lists match the journals, whatever happened to the processes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import isclose

from treadle.domain.envelope import Event
from treadle.domain.events import (
    BudgetReserved,
    CompactionFailed,
    ContextCompacted,
    LlmError,
    LlmResponse,
    RunEnd,
)
from treadle.domain.runs import Metrics
from treadle.testing.simulation.world import Violation, World

COUNTED = (
    "model_calls",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost",
    "credits",
    "unpriced_calls",
)
"""Fields with the same name in the metrics of a run and in the usage lists."""


def check_spending(world: World, journals: Iterable[Sequence[Event]]) -> None:
    """Check that nothing is reserved after all runs have ended, and that the amounts spent match the journals."""
    runs = list(journals)
    left = world.disk.execute("SELECT count(*) FROM reservations").fetchall()
    if left != [(0,)]:
        raise Violation(f"{left[0][0]} reservations remain, and no run is in progress")
    said: defaultdict[str, float] = defaultdict(float)
    for events in runs:
        for account, cost in compute_spending(events):
            said[account] += cost
    held = {str(account): float(cost) for account, cost in world.disk.execute("SELECT account, cost FROM accounts")}
    for account in {*said, *held}:
        if not isclose(held.get(account, 0.0), said[account], rel_tol=1e-6, abs_tol=1e-12):
            raise Violation(f"{account} has spent {held.get(account)}, the journals say {said[account]}")
    check_usage(world, [_metrics(events) for events in runs])


def compute_spending(events: Sequence[Event]) -> Iterable[tuple[str, float]]:
    """Return the accounts that a run was charged for, and how much. A call without a recorded end costs everything
    that was reserved for it."""
    reserved: BudgetReserved | None = None
    for event in events:
        match event.data:
            case BudgetReserved() as following:
                if reserved is not None:
                    yield from ((account, reserved.cost) for account in reserved.accounts)
                reserved = following
            case (
                LlmResponse(cost=cost)
                | LlmError(cost=cost)
                | ContextCompacted(cost=cost)
                | CompactionFailed(cost=cost)
            ):
                if reserved is not None:
                    yield from ((account, cost or 0.0) for account in reserved.accounts)
                reserved = None
            case _:
                pass
    if reserved is not None:
        yield from ((account, reserved.cost) for account in reserved.accounts)


def check_usage(world: World, metrics: Sequence[Metrics]) -> None:
    """Check that the usage lists contain what all runs used together, each run once."""
    columns = ", ".join(f"coalesce(sum({name}), 0)" for name in ("runs", "tool_calls", *COUNTED))
    [held] = world.disk.execute(f"SELECT {columns} FROM usage").fetchall()  # noqa: S608 -- the names are constants above
    said = [len(metrics), sum(each.actions for each in metrics)]
    said += [sum(getattr(each, name) for each in metrics) for name in COUNTED]
    for name, one, other in zip(("runs", "tool_calls", *COUNTED), held, said, strict=True):
        if not isclose(one, other, rel_tol=1e-6, abs_tol=1e-12):
            raise Violation(f"usage has {one} {name}, the runs have used {other}")


def _metrics(events: Sequence[Event]) -> Metrics:
    end = events[-1].data
    assert isinstance(end, RunEnd), "the run has ended"
    return end.metrics
