"""The windows that what was used counts in: tokens for an hour, calls of tools for a minute."""

from collections.abc import Sequence

from treadle.domain.ids import Instant
from treadle.domain.quotas import QuotaKind
from treadle.ports.accounts import HOUR, MINUTE

TOKEN_BUCKET_SECONDS, CALL_BUCKET_SECONDS = 60.0, 1.0
"""Seconds: what was used is remembered by the minute, and by the second."""


def find_oldest_bucket(now: Instant, bucket: float, length: float) -> int:
    """The first bucket of which some part is within the window that ends now."""
    return int((now - length) // bucket)


def find_reset_time(kind: QuotaKind, used: Sequence[tuple[int, int]], excess: float) -> Instant | None:
    """When so much of what was used has left the window; None: that much was not used."""
    bucket, length = (TOKEN_BUCKET_SECONDS, HOUR) if kind == "tokens" else (CALL_BUCKET_SECONDS, MINUTE)
    for at, amount in used:
        excess -= amount
        if excess <= 0:
            return (at + 1) * bucket + length
    return None
