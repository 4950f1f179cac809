"""Formatting of times."""

from datetime import UTC, datetime

from treadle.domain.ids import Instant


def format_day(at: Instant) -> str:
    """Return for example 2026-03-01."""
    try:
        return datetime.fromtimestamp(at, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):  # beyond the range of the calendar
        return "undated"


def format_minute(at: Instant) -> str:
    """Return for example Sunday, 2026-03-01 12:00 UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%A, %Y-%m-%d %H:%M} UTC"


def format_second(at: Instant) -> str:
    """Return for example 2026-03-01 12:00:05 UTC."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # beyond the range of the calendar
        return "an unknown time"
