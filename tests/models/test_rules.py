"""The table of errors: every rule has examples, and each example is decided by its own rule."""

import msgspec
import pytest

from treadle.models.http.error_facts import read_error
from treadle.models.http.error_rules import RULES, Example, Rule, rule_for
from treadle.models.http.error_status import effective_status

CASES = [(rule, example) for rule in RULES for example in rule.examples]


@pytest.mark.parametrize(("rule", "example"), CASES, ids=[f"{r.kind}-{e.status}-{e.body[:40]}" for r, e in CASES])
def test_an_example_is_decided_by_its_rule(rule: Rule, example: Example) -> None:
    assert rule_for(example.status, example.body) is rule


def test_every_rule_has_an_example() -> None:
    assert all(rule.examples for rule in RULES)


def test_every_answer_is_decided() -> None:
    for status in (None, *range(300, 600)):
        assert rule_for(status, "") in RULES
        assert rule_for(status, "something that nobody has seen yet") in RULES


def test_what_is_compacted_or_repaired_is_not_simply_sent_again() -> None:
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
def test_the_status_that_an_error_in_a_stream_would_have_had(error: object, status: int | None) -> None:
    body = msgspec.json.encode({"error": error}).decode()
    assert effective_status(None, read_error(body)) == status
