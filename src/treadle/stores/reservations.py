"""Usage windows: tokens count for an hour, tool calls for a minute."""

from collections.abc import Sequence

from treadle.domain.ids import Instant
from treadle.domain.quotas import QuotaKind
from treadle.ports.accounts import HOUR_SECONDS, MINUTE_SECONDS

TOKEN_BUCKET_SECONDS, CALL_BUCKET_SECONDS = 60.0, 1.0


def find_oldest_bucket(now: Instant, bucket: float, length: float) -> int:
    """Return the first bucket that overlaps the window ending now."""
    return int((now - length) // bucket)


def find_reset_time(kind: QuotaKind, used: Sequence[tuple[int, int]], excess: float) -> Instant | None:
    """Return when `excess` of the used amount has left the window, or None if less than that was used."""
    bucket, length = (
        (TOKEN_BUCKET_SECONDS, HOUR_SECONDS) if kind == "tokens" else (CALL_BUCKET_SECONDS, MINUTE_SECONDS)
    )
    for at, amount in used:
        excess -= amount
        if excess <= 0:
            return (at + 1) * bucket + length
    return None
