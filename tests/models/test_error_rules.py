"""The table of errors: every rule has examples, and each example is decided by its own rule."""

import msgspec
import pytest

from treadle.models.http.error_facts import read_error
from treadle.models.http.error_rules import RULES, ErrorRule, Example, classify_error
from treadle.models.http.error_status import find_effective_status

CASES = [(rule, example) for rule in RULES for example in rule.examples]


@pytest.mark.parametrize(("rule", "example"), CASES, ids=[f"{r.kind}-{e.status}-{e.body[:40]}" for r, e in CASES])
def test_an_example_is_decided_by_its_rule(rule: ErrorRule, example: Example) -> None:
    assert classify_error(example.status, example.body).rule is rule


def test_every_rule_has_an_example() -> None:
    assert all(rule.examples for rule in RULES)


def test_every_error_matches_a_rule() -> None:
    for status in (None, *range(300, 600)):
        assert classify_error(status, "").rule in RULES
        assert classify_error(status, "something that is in no rule").rule in RULES


def test_compaction_and_repair_are_not_plain_retries() -> None:
    assert not any(rule.retry and (rule.compact or rule.repair) for rule in RULES)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, 529),
        ({"type": "api_error"}, 500),
        ({"code": "rate_limit_exceeded", "type": "tokens"}, 429),
        ({"code": 502, "message": "Bad gateway"}, 502),
        ({"code": 7}, None),
        ({"message": "who knows"}, None),
        ({"message": "Unsupported parameter: temperature"}, 400),
        ("just words", None),
        (None, None),
    ],
)
def test_an_error_in_a_stream_has_the_status_of_its_type(error: object, status: int | None) -> None:
    body = msgspec.json.encode({"error": error}).decode()
    assert find_effective_status(None, read_error(body)) == status


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Quota exhausted, retry in 20s", "rate_limited"),
        ("You exceeded your current quota. Please retry in 34.07s.", "rate_limited"),
        ("You exceeded your current quota of requests per minute", "rate_limited"),
        ("您的额度已用完 请在 30 秒后重试", "rate_limited"),
        ("You exceeded your current quota, please check your plan and billing details.", "billing"),
        ("Quota exhausted, retry in 14 days", "billing"),
        ("Insufficient balance. Please retry in 20s", "billing"),
        ("Your credit balance is too low, try again in 10 seconds", "billing"),
        ("Monthly limit reached, try again in 30s", "billing"),
    ],
)
def test_a_quota_that_returns_soon_is_a_rate_limit(message: str, kind: str) -> None:
    body = msgspec.json.encode({"error": {"message": message}}).decode()
    assert classify_error(429, body).rule.kind == kind


def test_a_short_wait_in_a_header_makes_a_quota_a_rate_limit() -> None:
    body = '{"error":"quota exhausted"}'
    assert classify_error(429, body, headers={"retry-after": "20"}).rule.kind == "rate_limited"
    assert classify_error(429, body).rule.kind == "billing"
    code = '{"error":{"message":"no","code":"insufficient_quota"}}'
    assert classify_error(429, code, headers={"retry-after": "20"}).rule.kind == "billing"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"originalStatusCode":400,"originalMessage":"Input is too long for requested model."}', "overflow"),
        ('{"originalStatusCode":429,"message":"no"}', "rate_limited"),
        ('{"originalStatusCode":503,"message":"no"}', "overloaded"),
        ('{"originalStatusCode":400,"originalMessage":"temperature: must be below 1"}', "invalid_request"),
        ('{"code":424,"message":"The model failed"}', "server"),
        ("", "server"),
    ],
)
def test_a_failure_behind_a_gateway_is_judged_by_its_body(body: str, kind: str) -> None:
    assert classify_error(424, body).rule.kind == kind
