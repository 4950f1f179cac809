"""The parts of a text that differ each time it is written, although nothing else has changed."""

import re
from typing import Final

_TIMES: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?)?"  # a date, or a moment
    r"|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"  # a time of day
    r"|\b\d+(?:[.,]\d+)?\s?(?:ns|us|\u00b5s|ms|secs?|seconds?|s|mins?|minutes?|m|hours?|h)\b"  # a duration
    r"|\b1\d{9}(?:\d{3})?\b"  # a Unix time
    r"|\b0x[0-9a-f]{4,16}\b"  # an address in memory
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",  # a UUID
    re.IGNORECASE,
)


def mask_times(text: str) -> str:
    """Return the text without dates, times, durations, addresses in memory and UUIDs."""
    return _TIMES.sub("", text)
