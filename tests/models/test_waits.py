"""How long a provider asks to wait, in every form that providers use."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from treadle.models.http.error_facts import ErrorFacts, read_error
from treadle.models.http.retry_after import find_requested_wait, parse_duration

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": format_datetime(LATER, usegmt=True)}, 60),
        ({"retry-after": str(int(LATER.timestamp()))}, 60),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "150µs"}, 0.00015),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(LATER.timestamp()))}, 60),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(LATER.timestamp() * 1000))}, 60),
        ({"x-ratelimit-remaining-tokens-day": "0", "x-ratelimit-reset-tokens-day": "33011.38"}, 33011.38),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2026-01-01T00:00:42Z",
            },
            42,
        ),
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "6m0s"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "soon"}, None),
        ({"x-ratelimit-reset-tokens": "1s", "x-ratelimit-reset-requests": "1h"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}, 1),
        ({"retry-after": "30s"}, 30),
        ({"retry-after": '"30"'}, 30),
        ({"retry-after-ms": "1500ms"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"x-ms-retry-after-ms": "1200"}, 1.2),
        ({"X-Upstream-Retry-After": "7"}, 7),
        ({"ratelimit": '"default";r=0;t=40'}, 40),
        ({"ratelimit": '"burst";r=5;t=2, "daily";r=0;t=90'}, 90),
        ({"ratelimit": '"default";r=3;t=40'}, None),
        ({"ratelimit": "limit=100, remaining=0, reset=40"}, 40),
        ({"retry-after": "nan"}, None),
        ({"x-ratelimit-remaining-tokens": "-120", "x-ratelimit-reset-tokens": "9s"}, 9),
        ({"x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}, None),
    ],
)
def test_waits_are_read_from_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert find_requested_wait(headers, ErrorFacts(), NOW) == (
        seconds if seconds is None else pytest.approx(seconds, abs=0.01)
    )


def test_the_later_of_two_exhausted_limits_counts() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "10s",
        "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m",
        "x-ratelimit-remaining-images": "5", "x-ratelimit-reset-images": "1h",
    }  # fmt: skip
    assert find_requested_wait(headers, ErrorFacts(), NOW) == 60


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 1m2.5s.", 62.5),
        ("Please try again in 20s. Visit", 20),
        ("please try again after 3 seconds", 3),
        ("retry in 2 minutes", 120),
        ("Please retry in 34.07s.", 34.07),
        ("Try again in 24h0m0s", 86400),
        ("Please wait 20 seconds before", 20),
        ("Expected available in 12 seconds.", 12),
        ("Your limit will reset at 2026-01-01 00:30:00", 1800),
        ("You can retry after 2026-01-01T00:00:10Z", 10),
        ("请在 30 秒后重试", 30),
        ("请 5 分钟后再试", 300),
        ("try again later", None),
        ("Please wait a minute and try again", 60),
        ("wait one minute before retrying", 60),
        ("try again in an hour", 3600),
        ("Please retry in half an hour", 1800),
        ("try again in about two minutes.", 120),
        ("Retry after: 15", 15),
        ("Rate limit hit (retry_after=15)", 15),
        ("Rate limit resets in 00:05:00", 300),
        ("Please wait 01:30 and retry", 90),
        ("1分30秒後に再試行してください", 90),
        ("30초 후에 다시 시도하세요", 30),
        ("Slow down and try again: only 5 requests a minute are allowed", None),
        ("The limit is 10 requests in an hour", None),
        ("Please try again in your next billing cycle", None),
        ("limit of 3 requests per 60 seconds", None),
        ("Please retry after 60", 60),
        ("Request timed out after waiting 600 seconds", None),
        ("the request waited 120s in the queue", None),
        ("Rate limit resets every 24 hours", None),
        ("Try again later (limit: 100 requests per 1 hour, resets in 42s)", 42),
        ("Please wait: max 5 requests in 10 minutes. Try again in 30s", 30),
        ("Connection reset by peer after 15 s", None),
        ("wait 5 minutes and 30 seconds", 330),
        ("usage limit reached|1767225660", 60),
        ("limit reached for the account 1700000000", None),
    ],
)
def test_waits_are_read_from_messages(words: str, seconds: float | None) -> None:
    assert find_requested_wait({}, ErrorFacts(words), NOW) == seconds


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ('{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}', 34.5),
        ('{"error":{"message":"x","metadata":{"retry_after_seconds":12.5}}}', 12.5),
        ('{"error":{"message":"x","retry_after_ms":2500}}', 2.5),
        ('{"error":{"message":"x","retry_after":7}}', 7),
        ('{"error":{"message":"x","resets_at":1767225660}}', 60),
        (
            '{"error":{"message":"x","metadata":{"headers":{"X-RateLimit-Remaining":"0","X-RateLimit-Reset":"9"}}}}',
            9,
        ),
        ('{"error":{"message":"x"}}', None),
    ],
)
def test_waits_are_read_from_fields_of_known_errors(body: str, seconds: float | None) -> None:
    assert find_requested_wait({}, read_error(body), NOW) == seconds


def test_durations_are_read_with_units() -> None:
    assert [parse_duration(text) for text in ("6m0s", "1s", "1h2m3.5s", "120ms", "2 minutes", "1d")] == [
        360, 1, 3723.5, 0.12, 120, 86400,
    ]  # fmt: skip
    assert [parse_duration(text) for text in ("", "soon", "6", "1s later")] == [None] * 4


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"resets_in_seconds": 602}, 602),
        ({"resets_in_ms": 1500}, 1.5),
        ({"reset_after_milliseconds": 1500}, 1.5),
        ({"retry_after_minutes": 2}, 120),
        ({"seconds_until_reset": 42}, 42),
        ({"ms_until_reset": 4200}, 4.2),
        ({"quotaResetDelay": "31.5s"}, 31.5),
        ({"quotaResetTimeStamp": "2026-01-01T00:01:00Z"}, 60),
        ({"resetsAt": LATER.timestamp()}, 60),
        ({"retryDelay": {"seconds": 34, "nanos": 500_000_000}}, 34.5),
        ({"retryDelay": {"seconds": "34"}}, 34),
        ({"retryDelay": {"nanos": 0}}, None),
        ({"retryDelay": {"seconds": "soon"}}, None),
        ({"retryDelay": {}}, None),
        ({"retry": True}, None),
        ({"retries": 3}, None),
        ({"presets_in_seconds": 3}, None),
    ],
)
def test_waits_are_read_from_fields_named_after_their_unit(
    fields: dict[str, object], seconds: float | None
) -> None:
    body = json.dumps({"error": {"message": "no", "details": [fields]}})
    assert find_requested_wait({}, read_error(body), NOW) == seconds


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({"message": "Out of call volume quota. Quota will be replenished in 02:36:22."}, 9382),
        ({"message": "Out of call volume quota. Quota will be replenished in 1.02:36:22."}, 95_782),
        ({"error": "Model x is currently loading", "estimated_time": 20.5}, 20.5),
    ],
)
def test_waits_of_gateways_are_read(body: object, seconds: float) -> None:
    assert find_requested_wait({}, read_error(json.dumps(body)), NOW) == pytest.approx(seconds)
