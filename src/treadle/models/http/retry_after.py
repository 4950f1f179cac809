"""Finds how long a provider asks the client to wait: in headers, in fields of the error, or in its message."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from treadle.models.http.error_facts import ErrorFacts

_EPOCH_SECONDS, _EPOCH_MILLISECONDS = 1e9, 1e12
"""A plain number from here on is a timestamp and not a number of seconds."""
_MAX_WAIT_SECONDS = 366 * 86_400.0
"""A longer wait is a mistake."""

_UNIT = (
    r"(?:microseconds?|[uµμ]s|milliseconds?|millis|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|"
    r"毫秒|秒|分钟|分鐘|分|小时|小時|時間|天|초|분|시간|일)"
)
_AMOUNT = rf"(?<!\d)\d{{1,12}}(?:\.\d{{1,12}})?\s{{0,4}}{_UNIT}(?![a-z])"
_SPAN = re.compile(rf"(?<!\d)(\d{{1,12}}(?:\.\d{{1,12}})?)\s{{0,4}}({_UNIT})(?![a-z])", re.IGNORECASE)
_ASKS = (
    r"(?:try|trying|retry\w{0,12}|again|wait(?!ing|ed)\w{0,12}|resets?(?! by)|replenish\w{0,3}|available"
    r"|back|resume\w{0,12}"
    r"|重试|再试|重試|再試|等待|重置|恢复|재시도|다시)"
)
_SPANS = rf"((?:{_AMOUNT}[\s,]{{0,4}}(?:and\s{{1,4}})?){{1,6}})"
_IN = r"[\s_-]{1,4}(?:in|after|for)(?:\s{0,4}[:=]\s{0,4}|\s{1,4})(?:about\s{1,4}|at least\s{1,4}|~\s{0,4})?"
_PLAIN = re.compile(
    rf"\b(?:again|retry|retrying|wait|resets?|replenished|available){_IN}(?:{_SPANS}|(\d{{1,6}})(?![\w.:-]))", re.I
)
"""A request to wait in its usual form. It takes precedence over any other time in a message."""
_AFTER = re.compile(
    rf"{_ASKS}\b(?:(?!\b(?:per|every|max|limit|peer)\b)[^.\n]){{0,40}}?"
    rf"(?:\b(?:in|after|for|within|at least|about)\b|:|)\s{{0,4}}~?\s{{0,4}}{_SPANS}",
    re.I,
)
_BEFORE = re.compile(
    rf"((?:{_AMOUNT}\s{{0,4}}){{1,6}})(?:后|之后|以后|内|後|후)?[^.\n]{{0,8}}?"
    r"(?:重试|再试|重試|再試|再度|お試し|重置|恢复|다시|재시도)",
    re.I,
)
_COUNTS: Mapping[str, str] = {
    "half an": "0.5", "a": "1", "an": "1", "one": "1", "another": "1", "two": "2", "three": "3", "four": "4",
    "five": "5", "ten": "10", "fifteen": "15", "thirty": "30", "sixty": "60",
}  # fmt: skip
_COUNT_WORD = re.compile(
    r"\b(in|after|for|wait|least|about)\s{1,4}(half an|"
    + "|".join(_COUNTS)
    + r")\s{1,4}(?=(?:second|minute|hour|day)s?\b)",
    re.I,
)
"""A count in words: `in an hour`, `wait one minute`."""
_CLOCK = re.compile(r"\b(in|after|for|wait)\s{1,4}(?:(\d{1,3})\.)?(?:(\d{1,3}):)?(\d{1,2}):(\d\d)(?![\d:])", re.I)
"""A duration in the form of a clock: `in 00:05:00`, or `in 1.02:36:22` with days."""
MAX_SEARCHED_CHARACTERS = 8_000
"""How much of a message is searched for a wait."""
_DATE = r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\s?UTC|[+-]\d\d:?\d\d)?)"
_MOMENT = re.compile(rf"{_ASKS}[^.\n]{{0,40}}?{_DATE}", re.I)
_EPOCH = re.compile(rf"(?:{_ASKS}|limit|until)[^.\n]{{0,40}}?(?<!\d)(1\d{{9}}(?:\d{{3}})?)(?!\d)", re.I)
"""A moment as a number: `usage limit reached|1767225660`."""
_SECONDS: Mapping[str, float] = {
    "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "ms": 0.001, "毫": 0.001,
    "s": 1.0, "秒": 1.0, "m": 60.0, "分": 60.0, "h": 3600.0, "小": 3600.0,
    "d": 86_400.0, "天": 86_400.0, "時": 3600.0, "초": 1.0, "분": 60.0, "시": 3600.0, "일": 86_400.0,
}  # fmt: skip


def find_requested_wait(headers: Mapping[str, str], facts: ErrorFacts, now: datetime | None = None) -> float | None:
    """Return the seconds that a provider asks the client to wait, or None if it does not say.

    Dedicated headers and fields come first, then the text of the message, then the reset of the exhausted
    limit."""
    now = now or _read_date(headers) or datetime.now(UTC)
    if (wait := _read_wait_from_headers(headers, now)) is not None:
        return wait
    for name, value in facts.waits:
        if (wait := _read_wait_from_field(name, value, now)) is not None:
            return wait
    if (wait := _find_wait_in_text(facts.text, now)) is not None:
        return wait
    own = {name.lower(): value for name, value in headers.items()}
    return _compute_wait_for_resets({**dict(facts.headers), **own}, now)


def _read_date(headers: Mapping[str, str]) -> datetime | None:
    """Return the time by the provider's clock, which its dates refer to."""
    try:
        date = parsedate_to_datetime(headers.get("Date") or headers.get("date") or "")
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _read_wait_from_headers(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait in the dedicated headers. 0 means retry at once."""
    in_milliseconds, stated = _find_header(headers, "retry-after-ms"), _find_header(headers, "retry-after")
    if (number := _parse_nonnegative(in_milliseconds)) is not None:
        return number / 1000
    if in_milliseconds is not None and (spelled_out := parse_duration(in_milliseconds)) is not None:
        return spelled_out
    if stated is None:
        return None
    number = _parse_nonnegative(stated)
    if number is None and (spelled_out := parse_duration(stated)) is not None:
        return spelled_out
    seconds = _seconds_until(stated, now) if number is None else _to_wait_seconds(number, now)
    return None if seconds is None else max(0.0, seconds)


def _find_header(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header, or one whose name ends with it, such as `x-ms-retry-after-ms`."""
    exact = headers.get(name)
    others = (value for found, value in headers.items() if found.lower().endswith(f"-{name}"))
    found = exact if exact is not None else next(others, None)
    return None if found is None else found.strip("\"' ")


def _read_wait_from_field(name: str, value: str, now: datetime) -> float | None:
    """Return the wait in a field of an error: `retryDelay: "34s"`, `retry_after_seconds: 12`, `reset_at: ...`."""
    if (number := _parse_nonnegative(value)) is None:
        return _drop_implausible(
            parse_duration(value) if parse_duration(value) is not None else _seconds_until(value, now)
        )
    if re.search(r"(?:ms|millis|milliseconds)$|^(?:ms|milli)", name):
        return _drop_implausible(number / 1000)
    if re.search(r"(?:mins?|minutes)$|^minutes", name):
        return _drop_implausible(number * 60)
    return _drop_implausible(_to_wait_seconds(number, now))


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as `6m0s`, `1.57s`, `120ms` or `2 minutes`, or None."""
    if _SPAN.sub("", text).strip(" ,") or not text.strip():
        return None
    return sum(_to_seconds(number, unit) for number, unit in _SPAN.findall(text))


def _to_seconds(number: str, unit: str) -> float:
    unit = unit.lower()
    unit = unit.replace("micro", "u")
    key = "ms" if unit.startswith("m") and "s" in unit and not unit.startswith("min") else unit[0]
    return float(number) * _SECONDS[key]


def _find_wait_in_text(text: str, now: datetime) -> float | None:
    text = _CLOCK.sub(_write_clock, _COUNT_WORD.sub(_write_count, text[:MAX_SEARCHED_CHARACTERS]))
    if (plain := _PLAIN.search(text)) is not None:
        spans = _SPAN.findall(plain[1] or f"{plain[2]}s")
        if (wait := _drop_implausible(sum(_to_seconds(number, unit) for number, unit in spans))) is not None:
            return wait
    found = [match for pattern in (_AFTER, _BEFORE) for match in [pattern.search(text)] if match is not None]
    for match in found:
        seconds = sum(_to_seconds(number, unit) for number, unit in _SPAN.findall(match[1]))
        if (wait := _drop_implausible(seconds)) is not None:
            return wait
    if (moment := _MOMENT.search(text)) is not None:
        return _drop_implausible(_seconds_until(moment[1], now))
    number = _EPOCH.search(text)
    return None if number is None else _drop_implausible(_to_wait_seconds(float(number[1]), now))


def _write_clock(found: re.Match[str]) -> str:
    return f"{found[1]} {found[2] or 0}d {found[3] or 0}h {found[4]}m {found[5]}s"


def _write_count(found: re.Match[str]) -> str:
    return f"{found[1]} {_COUNTS[' '.join(found[2].lower().split())]} "


# ── Limits that reset ──────────────────────────────────────────────────────────────────────────────


def _compute_wait_for_resets(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds until all exhausted limits reset. Limits with something left are ignored."""
    resets, remaining, rejected = dict[str, str](), dict[str, str](), set[str]()
    for name, value in headers.items():
        words = name.lower().replace("rate-limit", "ratelimit").split("-")
        if "ratelimit" not in words:
            continue
        dimension = "-".join(
            word for word in words if word not in ("x", "ratelimit", "reset", "remaining", "after")
        )
        if "reset" in words:
            resets[dimension] = value
        elif "remaining" in words:
            remaining[dimension] = value
        elif words[-1] == "status" and value.strip().lower() == "rejected":
            rejected.add(dimension.removesuffix("-status"))
    waits = _read_structured_limits(headers.get("ratelimit", ""))
    for dimension, value in resets.items():
        if not _is_exhausted(dimension, remaining, rejected, len(resets)):
            continue
        number = _parse_nonnegative(value)
        seconds = parse_duration(value) if number is None else _to_wait_seconds(number, now)
        wait = _drop_implausible(_seconds_until(value, now) if seconds is None else seconds)
        if wait is not None:
            waits.append(wait)
    return max(waits, default=None)


def _read_structured_limits(header: str) -> list[float]:
    """Return the waits for the exhausted limits of a `RateLimit` header: `"default";r=0;t=40`, or
    `limit=100, remaining=0, reset=40`."""
    items = [header] if "reset=" in header else header.split(",")
    waits: list[float] = []
    for item in items:
        left, wait = re.search(r"\b(?:r|remaining)=(\d{1,9})", item), re.search(r"\b(?:t|reset)=(\d{1,9})", item)
        if wait is not None and (left is None or int(left[1]) == 0) and int(wait[1]) > 0:
            waits.append(float(wait[1]))
    return waits


def _is_exhausted(dimension: str, remaining: Mapping[str, str], rejected: set[str], limits: int) -> bool:
    left = _parse_float(remaining.get(dimension))
    if left is not None:
        return left <= 0
    return dimension in rejected or (not rejected and limits == 1 and dimension not in remaining)


# ── Numbers and moments ────────────────────────────────────────────────────────────────────────────


def _to_wait_seconds(number: float, now: datetime) -> float:
    if number >= _EPOCH_MILLISECONDS:
        return number / 1000 - now.timestamp()
    return number - now.timestamp() if number >= _EPOCH_SECONDS else number


def _drop_implausible(seconds: float | None) -> float | None:
    """Return the wait if it is plausible: above 0, and at most a year."""
    if seconds is None or not math.isfinite(seconds) or not 0 < seconds <= _MAX_WAIT_SECONDS:
        return None
    return seconds


def _parse_nonnegative(text: str | None) -> float | None:
    value = _parse_float(text)
    return value if value is not None and value >= 0 else None


def _parse_float(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _seconds_until(text: str, now: datetime) -> float | None:
    """Return the seconds until a time in HTTP or ISO 8601 format. UTC is the default."""
    moment = _parse_http_date(text) or _parse_iso_date(text)
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - now).total_seconds()


def _parse_http_date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None


def _parse_iso_date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(re.sub(r"\s?UTC$", "+00:00", text.strip().replace("Z", "+00:00")))
    except ValueError:
        return None
