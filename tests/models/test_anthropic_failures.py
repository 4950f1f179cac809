"""What the anthropic_messages adapter makes of everything that is not a reply."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.anthropic_wire import (
    PING,
    STOP,
    asks,
    begins,
    broken,
    closes,
    endpoint,
    ends,
    error,
    event,
    events_of,
    failed,
    more,
    opens,
    stream,
    text,
    thinking,
)
from tests.fake_endpoint import PAUSE, Answer, Behaviour, FakeEndpoint, Raw, Silence, refuses
from tests.models.chat import HELLO, KEY, collect
from tests.patience import HANG_SECONDS
from treadle.domain.providers import Timeouts
from treadle.domain.runs import Usage
from treadle.models.formats.anthropic_messages import FORMAT
from treadle.models.http.client import ModelClient
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import KeyRing, ProviderKey
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, Failed, TextDelta

# ── Statuses ───────────────────────────────────────────────────────────────────────────────────────

PASSES = "This usually passes."
PAY = "Add credit or raise the spending limit"
STATUSES = [
    (
        400,
        "invalid_request_error",
        "bad",
        "invalid_request",
        False,
        "bad. Check that the model `m-1` takes what was",
    ),
    (
        401,
        "authentication_error",
        "invalid x-api-key",
        "auth",
        False,
        "Check the key in the variable FAKE_API_KEY.",
    ),
    (402, "billing_error", "pay", "billing", False, PAY),
    (403, "permission_error", "not yours", "auth", False, "not yours. Check the key in the variable FAKE_API_KEY."),
    (
        404,
        "not_found_error",
        "model: m-1",
        "not_found",
        False,
        "Check the model id `m-1` and the base_url of provider",
    ),
    (413, "request_too_large", "too large", "overflow", False, "Send /compact"),
    (429, "rate_limit_error", "slow down", "rate_limited", True, "Fewer runs at a time"),
    (500, "api_error", "oops", "server", True, PASSES),
    (504, "timeout_error", "late", "timeout", True, PASSES),
    (529, "overloaded_error", "Overloaded", "overloaded", True, PASSES),
]
"""Status and type of an error, its words; what it means, whether it is tried again, what people are told."""


@pytest.mark.parametrize(("status", "kind", "said", "meaning", "retryable", "advice"), STATUSES)
def test_each_error_status_has_its_meaning_and_advice(
    status: int, kind: str, said: str, meaning: str, retryable: bool, advice: str
) -> None:
    failure = failed(refuses(status, error(kind, said)))
    assert (failure.kind, failure.retryable, failure.status) == (meaning, retryable, status)
    assert failure.message.startswith(f"fake answered {status} (http://127.0.0.1:")
    assert f"/v1/messages): {said}. " in failure.message
    assert advice in failure.message
    assert failure.usage == Usage()


@pytest.mark.parametrize(("status", "kind", "said", "meaning", "retryable", "advice"), STATUSES)
def test_an_error_in_mid_stream_means_the_same_as_its_status(
    status: int, kind: str, said: str, meaning: str, retryable: bool, advice: str
) -> None:
    failure = broken(begins(9), *text(0, "x" * 40), event(**error_event(kind, said)), ends(), STOP)
    assert (failure.kind, failure.retryable, failure.status) == (meaning, retryable, status)
    assert (
        f"fake broke off its reply with an error (http://127.0.0.1:{port(failure)}/v1/messages)" in failure.message
    )
    assert said in failure.message
    assert advice in failure.message
    assert failure.usage == Usage(9, 10, estimated=True)  # it was charged until then


def error_event(kind: str, said: str) -> dict[str, Any]:
    body = error(kind, said)
    return {"kind": body.pop("type"), **body}


def port(failure: Failed) -> str:
    return failure.message.partition("127.0.0.1:")[2].partition("/")[0]


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        ({"error": {"type": "weird_error", "message": "never seen"}}, "server", "never seen"),
        ({"error": "just words"}, "server", "just words"),
        ({"message": "Overloaded"}, "overloaded", "Overloaded"),
        ({"error": None}, "server", "it did not say which"),
        ({"error": {}}, "server", "it did not say which"),
        ({"error": {"type": "overloaded_error"}}, "overloaded", "overloaded_error"),
    ],
)
def test_unusual_errors_in_mid_stream_are_classified(payload: Any, kind: str, words: str) -> None:
    failure = broken(begins(), event("error", **payload))
    assert (failure.kind, failure.retryable) == (kind, True)
    assert words in failure.message


def test_an_error_body_with_status_200_is_a_failure() -> None:
    failure = failed(refuses(200, error("overloaded_error", "Overloaded")))
    assert (failure.kind, failure.retryable, failure.status) == ("overloaded", True, 529)
    failure = failed(refuses(200, {"error": {"message": "Overloaded", "code": 503}}))
    assert (failure.kind, failure.status) == ("overloaded", 503)


SPEND_CAP = error("rate_limit_error", "Monthly limit", details={"error_code": "enforced_spend_limit_reached"})


@pytest.mark.parametrize(
    "headers", [{}, {"x_should_retry": "true"}, {"x_should_retry": "true", "retry_after": "1"}]
)
def test_a_spend_cap_is_not_retried(headers: dict[str, str]) -> None:
    failure = failed(refuses(429, SPEND_CAP, **headers))
    assert (failure.kind, failure.retryable, failure.next_key) == ("billing", False, False)
    assert "Monthly limit. Add credit" in failure.message


def test_a_spend_cap_in_mid_stream_is_not_retried() -> None:
    body = {name: value for name, value in SPEND_CAP.items() if name != "type"}
    failure = broken(begins(), event("error", **body))
    assert (failure.kind, failure.retryable) == ("billing", False)


@pytest.mark.parametrize("status", [429, 402, 401])
async def test_another_key_is_tried_at_once(status: int) -> None:
    """The one that was refused rests."""

    connections = Connections()
    async with FakeEndpoint(refuses(status, error("x", "no")), Answer(stream(text(0, "yes")))) as server:
        keys = KeyRing([ProviderKey("key-number-one", "FIRST"), ProviderKey("key-number-two", "SECOND")])
        address = Endpoint(provider="fake", url=f"{server.url}/messages", keys=keys)
        model = ModelClient(FORMAT, address, connections)
        replies: list[Any] = [(await collect(model))[-1] for _ in range(2)]
        await connections.close()
        (first, second), used = replies, [request.headers["x-api-key"] for request in server.requests]
    assert (first.next_key, first.retryable, first.retry_after) == (True, True, 0.0)
    assert ("FIRST" in first.message) is (status == 401)  # where the key itself is at fault
    assert isinstance(second, Completed)
    assert used == ["key-number-one", "key-number-two"]


# ── What decides the next action ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "said",
    [
        "messages.5: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
        "messages.5: `tool_use` ids must be unique",
        "messages.6: each tool_use must have a single result. Found multiple `tool_result` blocks with id: toolu_1",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.3.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
        "modified. These blocks must remain as they were in the original response.",
        "messages: text content blocks must be non-empty",
        "messages.2: all messages must have non-empty content except for the optional final assistant message",
        "The request body is not valid JSON: no low surrogate in string: line 1 column 100 (char 99)",
    ],
)
def test_a_complaint_about_the_conversation_requests_a_repair(said: str) -> None:
    failure = failed(refuses(400, error("invalid_request_error", said)))
    assert (failure.kind, failure.repair, failure.compact) == ("invalid_request", True, False)
    assert "Send /reset to start an empty conversation if it persists." in failure.message


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (400, "invalid_request_error", "prompt is too long: 205351 tokens > 200000 maximum"),
        (413, "request_too_large", "Request exceeds the maximum size"),
    ],
)
def test_a_prompt_that_is_too_long_requests_compaction(status: int, kind: str, said: str) -> None:
    failure = failed(refuses(status, error(kind, said)))
    assert (failure.kind, failure.compact, failure.repair, failure.retryable) == ("overflow", True, False, False)
    assert "Send /compact" in failure.message


# ── How long to wait ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after_ms": "soon", "retry_after": "9"}, 9.0),
        ({"retry_after": "2.5"}, 2.5),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after": "-3"}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_the_wait_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    failure = failed(refuses(529, error("overloaded_error", "Overloaded"), **headers))
    assert (failure.retry_after, failure.retryable) == (seconds, True)


def test_a_date_in_retry_after_becomes_a_wait() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < (failed(refuses(429, error("rate_limit_error", ""), retry_after=date)).retry_after or 0) <= 60
    assert (
        failed(refuses(429, error("rate_limit_error", ""), retry_after_ms="20", retry_after=date)).retry_after
        == 0.02
    )


@pytest.mark.parametrize(("status", "said", "retryable"), [(400, "true", True), (529, "false", False)])
def test_x_should_retry_overrides_the_status(status: int, said: str, retryable: bool) -> None:
    failure = failed(refuses(status, error("x", "y"), x_should_retry=said, retry_after="3"))
    assert (failure.retryable, failure.retry_after) == (retryable, 3.0)


# ── Replies that are not whole ─────────────────────────────────────────────────────────────────────

WHOLE = stream(thinking(0, "hm"), text(1, "half " * 8), asks(2, "c", "add", '{"n"', ": 1}"), stop="tool_use")


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_a_clean_end_before_the_last_event_is_malformed(length: int) -> None:
    """Wherever it comes, also behind the reason why it stopped."""
    failure = broken(*WHOLE[:length])
    assert (failure.kind, failure.retryable) == ("malformed", True)
    assert "ended without its last event" in failure.message


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_cut_body_is_malformed_and_its_usage_is_kept(framing: Any) -> None:
    failure = failed(Answer(WHOLE[:-1], framing=framing, ending="cut"))
    assert (failure.kind, failure.retryable, failure.usage) == ("malformed", True, Usage(10, 5))
    failure = failed(Answer(WHOLE[:9], framing=framing, ending="cut"))
    assert failure.usage == Usage(10, 11, estimated=True)


@pytest.mark.parametrize("arguments", ['{"n": ', "[1]", '"{}"', "{} {}", "{n: 1}", '{"n": NaN}', "{", "}"])
@pytest.mark.parametrize("stop", ["tool_use", "end_turn"])
def test_arguments_that_are_not_an_object_are_never_a_call(arguments: str, stop: str | None) -> None:
    failure = broken(*stream(asks(0, "b", "now", "{}"), asks(1, "c", "add", arguments), stop=stop))
    assert (failure.kind, failure.retryable) == ("malformed", True)
    assert "call 2 of it (add) has arguments that are not a JSON object" in failure.message


@pytest.mark.parametrize("stop", ["flux_capacitor", None])
def test_calls_are_not_run_after_an_unknown_stop_reason(stop: str | None) -> None:
    failure = broken(*stream(asks(0, "b", "now", "{}"), stop=stop))
    assert (failure.kind, failure.retryable) == ("malformed", True)
    assert f"it ended with `{stop or 'null'}`" in failure.message


def test_an_unended_call_without_arguments_is_malformed() -> None:
    """It is unknown whether the call needs no arguments or they were cut off."""
    assert "call 1 of it (add)" in broken(*stream(asks(0, "c", "add")[:-1], stop="tool_use")).message


@pytest.mark.parametrize("given", [[1], "text", 7])
def test_arguments_sent_at_once_that_are_not_an_object_are_malformed(given: Any) -> None:
    call = [opens(0, "tool_use", id="c", name="add", input=given), closes(0)]
    assert broken(*stream(call, stop="tool_use")).kind == "malformed"


def test_a_call_without_a_name_is_malformed() -> None:
    assert "call 1 of it (unnamed) has no name" in broken(*stream(asks(0, "c", "", "{}"), stop="tool_use")).message


def test_the_error_for_a_call_with_a_huge_name_is_short() -> None:
    failure = broken(*stream(asks(0, "c", "a\n" * 10_000, "[]"), stop="tool_use"))
    assert len(failure.message) < 800


@pytest.mark.parametrize("index", [1, None, -1])
def test_a_delta_for_a_block_that_never_started_is_malformed(index: Any) -> None:
    failure = broken(begins(), *text(0, "x"), more(index, "text_delta", text="y"), STOP)
    assert failure.kind == "malformed"
    assert f"it continues block {index}, which it never started" in failure.message


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"nonsense",
        b"7",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"type":7}',
        b'{"type":"message_start","message":[]}',
        b'{"type":"message_delta","delta":7}',
        b'{"type":"message_delta","delta":{"stop_reason":{}}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":7}}',
        b'{"type":"content_block_start","index":0,"content_block":7}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}',
        b'{"type":"content_block_delta","index":0,"delta":{"text":7}}',
        b'{"type":"content_block_delta","index":[],"delta":{"type":"text_delta","text":"x"}}',
        b'{"type":"message","content":7}',
        b'{"type":"message","content":[{"type":"text","text":{}}]}',
    ],
)
def test_unreadable_events_are_malformed(payload: bytes) -> None:
    failure = broken(begins(), b"event: x\ndata: " + payload + b"\n\n", STOP)
    assert failure.kind == "malformed"
    assert "an event of it cannot be read" in failure.message


# ── Not the provider, or not its settings ──────────────────────────────────────────────────────────

HTML = b"<!DOCTYPE html><html><head><title>502 Bad\nGateway</title></head><body>cloud</body></html>"


def test_an_html_page_with_an_error_status_is_a_server_error() -> None:
    failure = failed(Answer([HTML], 502, {"Content-Type": "text/html"}))
    assert (failure.kind, failure.retryable, failure.status) == ("server", True, 502)
    assert "an HTML page titled `502 Bad Gateway`. This usually passes" in failure.message


def test_an_html_page_with_status_200_is_malformed() -> None:
    failure = failed(Answer([b"<html>\n<title>Welcome</title>\n</html>"], headers={"Content-Type": "text/html"}))
    assert failure.kind == "malformed"
    assert "it came as text/html and not as text/event-stream: check base_url" in failure.message


def test_a_stream_in_another_format_is_malformed() -> None:
    """The base URL of a server that speaks chat_completions: nothing in it is an end."""
    chunk = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    assert broken(chunk).kind == "malformed"


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (
            refuses(401, error("authentication_error", f"invalid x-api-key: {KEY}")),
            "invalid x-api-key: [hidden]. Check the key in the variable FAKE_API_KEY.",
        ),
        (
            refuses(404, error("not_found_error", "model: m-1")),
            "model: m-1. Check the model id `m-1` and the base_url of provider fake.",
        ),
        (refuses(404, b"404 page not found"), "404 page not found. Check the model id `m-1` and the base_url"),
        (refuses(405, b""), "it gave no reason. Check the model id `m-1` and the base_url of provider fake."),
        (
            refuses(301, b"", Location="https://elsewhere.example/v1/messages"),
            "points to https://elsewhere.example/v1/messages",
        ),
    ],
)
def test_errors_name_the_setting_to_check(behaviour: Behaviour, words: str) -> None:
    failure = failed(behaviour)
    assert not failure.retryable
    assert failure.message.startswith("fake answered ")
    assert words in failure.message


def test_a_refusal_says_that_no_key_was_sent() -> None:
    failure = failed(refuses(401, error("authentication_error", "x-api-key header is required")), api_key=None)
    assert failure.message.endswith("No key was sent: set the variable FAKE_API_KEY.")


# ── The network ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("behaviour", "timeouts", "words"),
    [
        (Silence(), Timeouts(first_byte=0.05), "sent no byte of a reply within 0.05 s"),
        (Answer(ending="hang"), Timeouts(first_byte=0.05), "sent no byte of a reply within 0.05 s"),
        (Answer(WHOLE[:4], ending="hang"), Timeouts(between_bytes=0.05), "fell silent for 0.05 s"),
        (Answer([begins(), PING], ending="hang"), Timeouts(whole_call=0.05), "not finished its reply after 0.05 s"),
    ],
)
def test_each_timeout_is_a_retryable_failure(behaviour: Behaviour, timeouts: Timeouts, words: str) -> None:
    failure = failed(behaviour, timeouts=timeouts)
    assert (failure.kind, failure.retryable) == ("timeout", True)
    assert words in failure.message


async def test_pings_do_not_keep_a_call_alive() -> None:
    """They keep coming, so that it never falls silent; only the limit of the whole call ends it."""

    connections = Connections()
    pings = [begins(), *[PING] * 100_000]  # more than can come in the time
    async with FakeEndpoint(Answer(pings, ending="hang")) as server, asyncio.timeout(HANG_SECONDS):
        model = ModelClient(FORMAT, endpoint(server.url, Timeouts(5, 0.2, 0.3)), connections)
        end = await model.reply(HELLO, lambda _: None)
        assert isinstance(end, Failed)
        assert (end.kind, end.retryable) == ("timeout", True)
        assert "not finished its reply after 0.3 s" in end.message
        await connections.close()


async def test_text_is_shown_as_it_arrives() -> None:
    connections, heard = Connections(), list[Any]()
    pieces = [begins(), *text(0, "first")[:2], PAUSE, more(0, "text_delta", text="then"), ends(), STOP]
    async with FakeEndpoint(Answer(pieces)) as server, asyncio.timeout(HANG_SECONDS):
        model = ModelClient(FORMAT, endpoint(server.url), connections)

        def show(delta: Any) -> None:
            heard.append(delta)
            server.go_on.set()

        assert isinstance(await model.reply(HELLO, show), Completed)
        assert heard == [TextDelta("first"), TextDelta("then")]
        await connections.close()


def test_a_reply_is_read_one_byte_at_a_time() -> None:
    body = b"".join(WHOLE)
    assert isinstance(events_of(Answer([bytes([byte]) for byte in body]))[-1], Completed)
    failure = broken(*[bytes([byte]) for byte in body[: body.index(b"message_delta")]])
    assert (failure.kind, failure.usage.input_tokens) == ("malformed", 10)


def test_a_connection_dropped_before_the_answer_is_unreachable() -> None:
    assert failed(Raw()).kind == "unreachable"


def test_an_endless_event_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.models.http.sse.MAX_REPLY_EVENT_BYTES", 1024 * 1024)
    failure = broken(begins(), b"event: x\ndata: ", *[b"x" * 100_000] * 12)
    assert failure.kind == "malformed"
    assert "one event is larger than 1 MB" in failure.message


async def test_cancelling_in_the_middle_aborts_the_call() -> None:
    connections, heard = Connections(), asyncio.Event()
    async with FakeEndpoint(Answer(WHOLE[:4], ending="hang")) as server:
        model = ModelClient(FORMAT, endpoint(server.url), connections)
        task = asyncio.create_task(model.reply(HELLO, lambda _: heard.set()))
        async with asyncio.timeout(HANG_SECONDS):
            await heard.wait()
            assert not server.left.is_set()
            task.cancel()
            await server.left.wait()
        assert task.cancelled()
        await connections.close()
