"""Details of providers that decide whether a call is retried, and what a person reads."""

from typing import Any, get_args

import msgspec
import pytest

from tests import anthropic_wire, responses_wire
from tests.fake_endpoint import DONE, Answer, delta, event, fragment, refuses
from tests.models import chat
from treadle.domain.messages import Text
from treadle.domain.models import Effort
from treadle.domain.providers import ProviderConfig
from treadle.models.catalog import Catalog
from treadle.models.http.error_facts import read_error
from treadle.models.http.error_rules import classify_error
from treadle.models.http.retry_after import find_requested_wait
from treadle.ports.model import Completed, Failed


def failed(status: int, body: Any) -> Failed:
    [*_, end] = chat.events_of(refuses(status, body))
    assert isinstance(end, Failed)
    return end


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ('{"error": {"message": "tools.0: name is missing", "code": 400}}', "Acme: tools.0: name is missing"),
        ("upstream says no", "Acme: upstream says no"),
        ({"message": "as an object"}, "Acme: as an object"),
        ("", "Provider returned error"),
        (None, "Provider returned error"),
    ],
)
def test_the_message_behind_a_gateway_is_shown(raw: Any, said: str) -> None:
    metadata = {"raw": raw, "provider_name": "Acme"}
    body = {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}
    assert f": {said}." in failed(400, body).message


@pytest.mark.parametrize(
    ("status", "body", "retries"),
    [
        (501, "Not Implemented", False),
        (500, "", True),
        (429, '{"error":{"message":"Rate limit reached on requests per day (RPD): Limit 9, Used 9."}}', False),
        (429, '{"error":{"message":"Daily limit reached, please retry in 20s"}}', False),
        (429, '{"error":{"details":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}}', False),
        (429, '{"error":{"message":"tokens per day (TPD) are used up. Please try again in 7m12s."}}', True),
        (429, '{"error":{"message":"Rate limit reached on requests per minute"}}', True),
        (400, '{"error":"The model has crashed without additional information. (Exit code: null)"}', True),
        (400, '{"error":"Model unloaded."}', True),
        (404, '{"error":{"message":"Model is unloaded"}}', True),
        (400, '{"error":{"message":"The program in your example has crashed; say what it is for"}}', False),
        (404, '{"error":"model x not found"}', False),
    ],
)
def test_only_what_may_pass_within_the_minute_is_retried(status: int, body: str, retries: bool) -> None:
    assert classify_error(status, body).rule.retry is retries


@pytest.mark.parametrize(
    "body",
    [
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, got 70",
        '{"error":{"message":"Function name is too long: String too long"}}',
        "tools.0.custom.name: String should have at most 128 characters",
    ],
)
def test_a_long_name_of_a_tool_is_not_overflow(body: str) -> None:
    decision = classify_error(400, body)
    assert (decision.rule.compact, decision.is_unclear) == (False, False)


def test_dates_refer_to_the_clock_of_the_provider() -> None:
    headers = {"Date": "Wed, 01 Jan 2020 00:00:00 GMT", "Retry-After": "Wed, 01 Jan 2020 00:00:30 GMT"}
    lowered = {name.lower(): value for name, value in headers.items()}
    assert find_requested_wait(lowered, read_error("")) == 30.0
    assert find_requested_wait({**lowered, "date": "soon"}, read_error("")) == 0.0


def test_a_usage_that_is_not_a_number_does_not_discard_a_reply() -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":NaN,"completion_tokens":Infinity}}'
    answer = Answer([delta(content="All is well."), delta(finish="stop"), event(usage), DONE])
    [*_, end] = chat.events_of(answer)
    assert isinstance(end, Completed)
    assert (end.parts, end.usage.estimated) == ((Text("All is well."),), True)
    stream = [
        piece.replace(b'"output_tokens": 5', b'"output_tokens": NaN')
        for piece in anthropic_wire.stream(anthropic_wire.text(0, "All is well."))
    ]
    [*_, end] = anthropic_wire.events_of(Answer(stream))
    assert isinstance(end, Completed)
    assert end.parts == (Text("All is well."),)


# ── Arguments that come twice ──────────────────────────────────────────────────────────────────────


def responses_end(streamed: str, final: str, last: str | None = None) -> Completed | Failed:
    item = responses_wire.call("c1", "add", streamed)
    whole = item | {"arguments": final}
    listed = [item | {"arguments": final if last is None else last}]
    added = responses_wire.added(0, item | {"arguments": ""})
    pieces = [
        responses_wire.CREATED,
        added,
        responses_wire.arguments_delta(streamed),
        responses_wire.done(0, whole),
    ]
    [*_, end] = responses_wire.events_of(
        Answer(responses_wire.wire(*pieces, responses_wire.completed_event(*listed)))
    )
    assert isinstance(end, Completed | Failed)
    return end


def chat_end(streamed: str, final: str) -> Completed | Failed:
    use = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": final}}
    message = {"choices": [{"index": 0, "message": {"tool_calls": [use]}, "finish_reason": "tool_calls"}]}
    [*_, end] = chat.events_of(
        Answer([delta(tool_calls=[fragment(0, "c1", "add", streamed)]), event(message), DONE])
    )
    assert isinstance(end, Completed | Failed)
    return end


def anthropic_end(streamed: str, final: str) -> Completed | Failed:
    """The whole input comes with the block, and again in pieces."""
    whole = msgspec.json.decode(final or "{}")
    pieces = [
        anthropic_wire.opens(0, "tool_use", id="c1", name="add", input=whole),
        anthropic_wire.more(0, "input_json_delta", partial_json=streamed),
        anthropic_wire.closes(0),
    ]
    [*_, end] = anthropic_wire.events_of(Answer(anthropic_wire.stream(pieces, stop="tool_use")))
    assert isinstance(end, Completed | Failed)
    return end


@pytest.mark.parametrize(
    ("streamed", "final", "runs"),
    [
        ('{"a": 1}', '{"a": 2}', False),
        ('{"path": "a"}', '{"path": "/"}', False),
        ('{"a": 1}', '{"a": 1, "force": true}', False),
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ('{"a": 1}', "{}", True),
        ('{"a": 1}', "", True),
    ],
)
def test_a_call_with_two_different_arguments_is_not_run(streamed: str, final: str, runs: bool) -> None:
    for end in (
        anthropic_end(streamed, final),
        chat_end(streamed, final),
        responses_end(streamed, final),
        responses_end(streamed, streamed, final),
    ):
        assert isinstance(end, Completed) is runs, end
        if isinstance(end, Failed):
            assert (end.kind, end.retryable) == ("malformed", True)
            assert "two different arguments" in end.message


@pytest.mark.parametrize(
    ("model", "efforts"),
    [
        ("gpt-5", ("minimal", "low", "medium", "high", "high")),
        ("openai/gpt-5-mini", ("minimal", "low", "medium", "high", "high")),
        ("gpt-5.1-codex-max", ("low", "low", "medium", "high", "xhigh")),
        ("gpt-5.2", ("low", "low", "medium", "high", "xhigh")),
        ("gpt-5.1", ("low", "low", "medium", "high", "high")),
        ("gpt-5-codex", ("low", "low", "medium", "high", "high")),
        ("gpt-5.2-chat-latest", ("low", "low", "medium", "high", "high")),
        ("gpt-5.3-codex", ("low", "low", "medium", "high", "xhigh")),
        ("gpt-6-sol", ("low", "low", "medium", "high", "xhigh")),
        ("gemini-3.5-flash", ("minimal", "low", "medium", "high", "high")),
        ("gemini-3.1-pro-preview", ("low", "low", "medium", "high", "high")),
        ("claude-opus-4-20250514", ("low", "low", "medium", "high", "high")),
        ("claude-opus-4-6", ("low", "low", "medium", "high", "high")),
        ("us.anthropic.claude-opus-4-7-v1:0", ("low", "low", "medium", "high", "xhigh")),
        ("anthropic/claude-opus-5.5", ("low", "low", "medium", "high", "xhigh")),
        ("claude-sonnet-5", ("low", "low", "medium", "high", "xhigh")),
        ("claude-sonnet-4-6", ("low", "low", "medium", "high", "high")),
        ("o3", ("low", "low", "medium", "high", "high")),
        ("claude-opus-4-7", ("low", "low", "medium", "high", "xhigh")),
        ("deepseek-chat", ("low", "low", "medium", "high", "high")),
    ],
)
def test_efforts_reach_the_models_that_have_them(model: str, efforts: tuple[str, ...]) -> None:
    config = ProviderConfig("https://api.example/v1", "chat_completions")
    profile = Catalog().profile("example", model, config)
    assert tuple(profile.fit_effort(effort) for effort in get_args(Effort)) == efforts
    assert profile.fit_effort(None) is None
