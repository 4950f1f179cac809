"""Durations as people write them."""

import re
from functools import lru_cache

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@lru_cache  # settings are read at every step
def parse_duration(duration: float | str) -> float:
    """Return a duration in seconds, from a number or from text such as `90s`, `10m` or `7d`."""
    if isinstance(duration, str):
        match = _DURATION.fullmatch(duration.strip())
        if match is None:
            raise ValueError(f"`{duration}` is not a duration; write a number with a unit, such as 90s, 10m or 7d")
        return float(match[1]) * _SECONDS[match[2]]
    return float(duration)


def format_duration(span: float) -> str:
    """Return a duration as people write it, for example `45 s`, `12 min` or `2 h 5 min`."""
    if span < 60:
        return f"{span:.3g} s"
    minutes = round(span / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, left = divmod(minutes, 60)
    if hours >= 48:
        return f"{round(hours / 24)} days"
    return f"{hours} h {left} min" if left else f"{hours} h"
