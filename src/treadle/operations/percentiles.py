"""Percentiles of durations."""

from collections.abc import Sequence

from msgspec import Struct


class Percentiles(Struct, frozen=True):
    """How long something took, in milliseconds."""

    p50: int
    p95: int


def find_percentiles(values: Sequence[int]) -> Percentiles | None:
    """Return percentiles of a sample; None if it is empty."""
    if not values:
        return None
    ordered = sorted(values)
    return Percentiles(ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)])
