"""What the responses adapter makes of everything that is not a reply."""

import asyncio
import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, Behaviour, FakeEndpoint, Raw, Silence, refuses
from tests.models.chat import HELLO, KEY, collect
from tests.patience import HANG_SECONDS
from tests.responses_wire import (
    CREATED,
    IN_PROGRESS,
    Event,
    added,
    arguments_delta,
    broken,
    call,
    completed_event,
    done,
    endpoint,
    events_of,
    failed,
    failed_event,
    message,
    replied,
    response,
    text_delta,
    told,
    usage,
    wire,
)
from treadle.domain.providers import NO_TIMEOUTS, Timeouts
from treadle.domain.runs import Usage
from treadle.models.formats.responses import FORMAT
from treadle.models.http.client import ModelClient
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, Failed

# ── Refusals ───────────────────────────────────────────────────────────────────────────────────────


def error(
    message: str, type: str = "invalid_request_error", code: str | None = None, param: str | None = None
) -> Any:
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


HTML = b"<!DOCTYPE html><html><head><title>502 Bad\nGateway</title></head><body>cloud</body></html>"
WRONG_KEY = error(f"Incorrect API key provided: {KEY}. You can find it at https://x.", code="invalid_api_key")
QUOTA = error("You exceeded your current quota", "insufficient_quota", "insufficient_quota")
PAYING = "Add credit or raise the spending limit in your account there"


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable", "words"),
    [
        (400, error("bad tool"), "invalid_request", False, "bad tool. Check that the model `m-1`"),
        (401, WRONG_KEY, "auth", False, "provided: [hidden]. You can find it at https://x. Check the key in the"),
        (403, error("not in your country", "request_forbidden"), "auth", False, "not in your country"),
        (
            404,
            error("The model `m-1` does not exist", code="model_not_found"),
            "not_found",
            False,
            "the base_url of",
        ),
        (404, HTML, "not_found", False, "Check the model id `m-1` and the base_url of provider fake"),
        (409, error("conflict"), "server", True, "conflict"),
        (422, error("cannot"), "invalid_request", False, "cannot"),
        (429, error("slow", "requests", "rate_limit_exceeded"), "rate_limited", True, "slow"),
        (429, QUOTA, "billing", False, PAYING),
        (400, error("Billing hard limit", code="billing_hard_limit_reached"), "billing", False, PAYING),
        (500, error("had an error", "server_error"), "server", True, "fake answered 500 (http://127.0.0.1:"),
        (502, HTML, "server", True, "an HTML page titled `502 Bad Gateway`"),
        (503, error("overloaded", "service_unavailable_error"), "overloaded", True, "overloaded"),
        (504, b"", "timeout", True, "it gave no reason"),
        (307, b"", "not_found", False, "Set the base_url of provider fake to where it moved"),
    ],
)
def test_each_error_status_has_its_meaning_and_advice(
    status: int, body: Any, kind: str, retryable: bool, words: str
) -> None:
    failure = failed(refuses(status, body))
    assert (failure.kind, failure.retryable, failure.status) == (kind, retryable, status)
    assert words in failure.message
    assert failure.usage == Usage()


def test_an_exhausted_quota_is_not_retried() -> None:
    failure = failed(refuses(429, QUOTA, x_should_retry="true", retry_after="1"))
    assert (failure.kind, failure.retryable, failure.next_model) == ("billing", False, True)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Your input exceeds the context window of this model. Please adjust your input and try again."),
        (400, "This model's maximum context length is 128000 tokens. However, you requested 130000."),
    ],
)
def test_a_conversation_that_is_too_long_is_compacted(status: int, words: str) -> None:
    failure = failed(refuses(status, error(words, param="input")))
    assert (failure.compact, failure.repair, failure.retryable) == (True, False, False)


PAIRING = [
    ("No tool output found for function call call_x.", None),
    ("No tool call found for function call output with call_id call_x.", None),
    ("Item 'rs_1' of type 'reasoning' was provided without its required following item.", None),
    ("The encrypted content gAAA could not be verified.", "invalid_encrypted_content"),
]


@pytest.mark.parametrize(("words", "code"), PAIRING)
def test_an_invalid_conversation_is_repaired(words: str, code: str | None) -> None:
    failure = failed(refuses(400, error(words, code=code, param="input")))
    assert (failure.kind, failure.repair, failure.compact) == ("invalid_request", True, False)


def test_a_missing_model_is_named_with_any_status() -> None:
    body = error("The requested model 'm-1' does not exist.", param="model", code="model_not_found")
    failure = failed(refuses(400, body))
    assert (failure.retryable, failure.next_model) == (False, True)
    assert "`m-1`" in failure.message


def test_a_refusal_says_that_no_key_was_sent() -> None:
    failure = failed(refuses(401, error("Missing bearer authentication in header")), api_key=None)
    assert failure.message.endswith("No key was sent: set the variable FAKE_API_KEY.")


def test_a_provider_message_is_truncated_to_one_line() -> None:
    failure = failed(refuses(400, error("a\nb\x1b[31m" + "x" * 450 + KEY + "y" * 50_000)))
    assert "a b [31mxxx" in failure.message
    assert KEY[:8] not in failure.message
    assert len(failure.message) < 700


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"retry_after_ms": "1500", "retry_after": "9"}, "Please try again in 7s.", 1.5),
        ({"retry_after_ms": "soon", "retry_after": "9"}, "", 9.0),
        ({"retry_after": "2.5"}, "Please try again in 7s.", 2.5),
        ({"retry_after": "-3"}, "", None),
        ({"retry_after": "nan"}, "", None),
        ({}, "Rate limit reached for m-1: Limit 3, Used 3. Please try again in 7m12s. Visit https://x.", 432.0),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, "Please try again in 1.242s.", 1.242),
        ({}, "try again later", None),
    ],
)
def test_the_wait_is_read_from_headers_and_message(
    headers: dict[str, str], message: str, seconds: float | None
) -> None:
    refused = refuses(429, error(message, "tokens", "rate_limit_exceeded"), **headers)
    assert failed(refused).retry_after == seconds


def test_a_date_in_retry_after_becomes_a_wait() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < (failed(refuses(503, b"", retry_after=date)).retry_after or 0) <= 60


@pytest.mark.parametrize(("status", "said", "retryable"), [(400, "true", True), (500, "false", False)])
def test_x_should_retry_overrides_the_status(status: int, said: str, retryable: bool) -> None:
    assert failed(refuses(status, b"", x_should_retry=said)).retryable is retryable


# ── Errors in mid-stream ───────────────────────────────────────────────────────────────────────────


def error_event(message: str, code: str | None) -> Event:
    return {"type": "error", "code": code, "message": message, "param": None}


def nested_error(message: str, code: str | None) -> Event:
    return {"type": "error", "error": {"type": code, "code": code, "message": message, "param": None}}


def bare_error(message: str, code: str | None) -> bytes:
    return b"data: " + json.dumps({"error": {"message": message, "code": code}}).encode() + b"\n\n"


@pytest.mark.parametrize("make", [error_event, nested_error, bare_error, failed_event])
@pytest.mark.parametrize(
    ("code", "words", "kind", "retryable"),
    [
        ("server_error", "The server had an error processing your request.", "server", True),
        ("rate_limit_exceeded", "Rate limit reached for m-1. Please try again in 11.5s.", "rate_limited", True),
        ("server_is_overloaded", "Our servers are currently overloaded.", "overloaded", True),
        ("insufficient_quota", "You exceeded your current quota.", "billing", False),
        ("invalid_prompt", "Invalid prompt: flagged.", "invalid_request", False),
        ("context_length_exceeded", "Your input exceeds the context window of this model.", "overflow", False),
        (None, "No tool output found for function call call_x.", "invalid_request", False),
    ],
)
def test_an_error_in_mid_stream_is_classified(
    make: Any, code: str | None, words: str, kind: str, retryable: bool
) -> None:
    failure = broken(CREATED, added(0, message()), text_delta("so far"), make(words, code), completed_event())
    assert (failure.kind, failure.retryable) == (kind, retryable)
    assert words.rstrip(".") in failure.message
    assert failure.retry_after == (11.5 if kind == "rate_limited" else None)
    assert failure.compact is (kind == "overflow")
    assert failure.repair is (code is None)
    assert failure.usage.estimated


def test_an_error_as_the_first_event_is_a_failure() -> None:
    assert broken(nested_error("busy", "server_error")).kind == "server"


def test_a_failed_reply_is_charged_for_its_reported_usage() -> None:
    assert broken(CREATED, failed_event("oops", "server_error", usage(9, 4))).usage == Usage(9, 4)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param({"type": "response.failed"}, id="failed"),
        pytest.param({"type": "response.failed", "response": response("failed")}, id="failed, no error"),
        pytest.param({"type": "response.completed", "response": response("failed")}, id="completed, in words only"),
        pytest.param({"type": "response.completed", "response": response("cancelled")}, id="cancelled"),
        pytest.param({"type": "error"}, id="an empty error"),
    ],
)
def test_a_failure_without_a_reason_is_a_server_error(end: Event) -> None:
    failure = broken(CREATED, *told(0, message("hi")), end)
    assert (failure.kind, failure.retryable) == ("server", True)
    assert "fake broke off its reply with an error" in failure.message


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_failure_that_is_not_streamed_is_a_server_error(status: str) -> None:
    said = {"code": "server_error", "message": "it broke"} if status == "failed" else None
    failure = failed(refuses(200, response(status, error=said)))
    assert (failure.kind, failure.retryable) == ("server", True)


def test_an_error_line_in_mid_stream_is_a_failure() -> None:
    failure = broken(CREATED, text_delta("so far"), b'{"error":"server busy, please try again."}\n')
    assert (failure.kind, failure.retryable) == ("overloaded", True)


# ── Replies that are not whole ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([CREATED, added(0, message()), text_delta("half")], id="in the middle"),
        pytest.param([CREATED, *told(0, message("half"))], id="after an item"),
        pytest.param([CREATED, *told(0, call("c", "add", '{"a":1}'))], id="after a call"),
        pytest.param([CREATED, *told(0, message("half")), DONE], id="with [DONE]"),
        pytest.param([CREATED, IN_PROGRESS], id="at once"),
        pytest.param([], id="with nothing"),
    ],
)
def test_a_clean_end_without_the_last_event_is_malformed(events: list[Any]) -> None:
    failure = broken(*events)
    assert (failure.kind, failure.retryable) == ("malformed", True)
    assert "it ended without its last event" in failure.message
    assert failure.usage.estimated


def test_a_reply_that_is_still_in_progress_is_malformed() -> None:
    failure = failed(refuses(200, response("in_progress", [message("half")])))
    assert "it ended without its last event" in failure.message


@pytest.mark.parametrize("framing", ["chunked", "length"])
@pytest.mark.parametrize("last", [[], [done(0, message("half" * 10))]])
def test_a_cut_body_is_malformed_and_its_usage_is_estimated(framing: Any, last: list[Event]) -> None:
    pieces = wire(CREATED, added(0, message()), text_delta("half" * 10), *last)
    failure = failed(Answer(pieces, framing=framing, ending="cut"))
    assert (failure.kind, failure.retryable) == ("malformed", True)
    assert (failure.usage.estimated, failure.usage.output_tokens) == (True, 10)


@pytest.mark.parametrize("arguments", ['{"n": ', "[1]", '"{}"', "{} {}", "{n: 1}", '{"n": NaN}'])
def test_arguments_that_are_not_an_object_are_never_a_call(arguments: str) -> None:
    failure = broken(*replied(call("c", "add", arguments), cuts=(2,)))
    assert (failure.kind, failure.retryable) == ("malformed", True)
    assert "call 1 of it (add) has arguments that are not a JSON object" in failure.message


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([done(0, call("c", "add", '{"n": '))], id="the item is as it came"),
        pytest.param([done(0, call("c", "add", "{}"))], id="the item is said to be empty"),
        pytest.param([done(0, call("c", "add", '{"other": 1}'))], id="the item is another"),
        pytest.param([], id="no item"),
    ],
)
def test_arguments_that_are_cut_and_ended_properly_are_never_a_call(events: list[Event]) -> None:
    item = call("c", "add", '{"n": 1}')
    for output in ((), (call("c", "add", "{}"),)):
        failure = broken(
            CREATED, added(0, item), arguments_delta('{"n": '), *events, completed_event(*output), DONE
        )
        assert failure.kind == "malformed"
        assert "(add) has arguments that are not a JSON object" in failure.message


def test_a_call_that_has_begun_and_never_ends_is_never_a_call() -> None:
    failure = broken(CREATED, added(0, call("c", "add")), completed_event())
    assert "call 1 of it (add) has arguments that are not a JSON object" in failure.message


def test_a_call_without_a_name_is_malformed() -> None:
    nameless = call("c", "", "{}")
    assert "call 1 of it (unnamed) has no name" in broken(*replied(nameless)).message
    assert "has no name" in broken(CREATED, arguments_delta("{}"), completed_event()).message


def test_the_error_for_a_call_with_a_huge_name_is_short() -> None:
    assert len(broken(*replied(call("c", "a\n" * 10_000, "[]"))).message) < 800


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"nonsense",
        b"7",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"type":"response.output_text.delta","delta":7}',
        b'{"type":"response.output_text.delta","delta":"x","output_index":"first"}',
        b'{"type":"response.completed","response":"yes"}',
        b'{"type":"response.completed","response":{"output":{}}}',
        b'{"type":"response.completed","response":{"output":[{"type":"message","content":7}]}}',
        b'{"type":"response.output_item.done","item":{"type":"function_call","name":7}}',
        b'{"object":"response","output":7}',
    ],
)
def test_unreadable_events_are_malformed(payload: bytes) -> None:
    failure = broken(CREATED, b"data: " + payload + b"\n\n", completed_event())
    assert (failure.kind, failure.retryable) == ("malformed", True)


def test_a_page_instead_of_a_stream_is_malformed() -> None:
    failure = failed(Answer([b"<html>welcome</html>"], headers={"Content-Type": "text/html"}))
    assert failure.kind == "malformed"
    assert "it came as text/html and not as text/event-stream: check base_url" in failure.message


async def test_an_endless_event_is_malformed() -> None:
    async def run() -> Failed:
        connections = Connections()
        endless = Answer([b"data: " + b"x" * 1_000_000] + [b"x" * 1_000_000] * 70, ending="hang")
        async with FakeEndpoint(endless) as server:
            end = (await collect(ModelClient(FORMAT, endpoint(server.url), connections)))[-1]
            await connections.close()
        assert isinstance(end, Failed)
        return end

    assert "one event is larger than 16 MB" in (await run()).message


# ── The network ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("behaviour", "timeouts", "words"),
    [
        pytest.param(
            Silence(), Timeouts(first_byte=0.05), "sent no byte of a reply within 0.05 s", id="no answer at all"
        ),
        pytest.param(
            Answer(ending="hang"), Timeouts(first_byte=0.05), "sent no byte of a reply within 0.05 s", id="headers"
        ),
        pytest.param(
            Answer(wire(CREATED, text_delta("x")), ending="hang"),
            Timeouts(between_bytes=0.05),
            "fell silent for 0.05 s in the middle of its reply",
            id="silence in the middle",
        ),
    ],
)
def test_each_timeout_is_a_retryable_failure(behaviour: Behaviour, timeouts: Timeouts, words: str) -> None:
    failure = failed(behaviour, timeouts=timeouts)
    assert (failure.kind, failure.retryable) == ("timeout", True)
    assert words in failure.message


class Pings(list[bytes]):
    """Pings without end; a client that is tired of them has left before the last."""

    def __init__(self) -> None:
        super().__init__([b": ping\n\n"] * 1_000_000)


def test_pings_do_not_keep_a_call_alive() -> None:
    failure = failed(Answer(Pings()), timeouts=Timeouts(between_bytes=5, whole_call=0.1))
    assert (failure.kind, failure.retryable) == ("timeout", True)
    assert "had not finished its reply after 0.1 s" in failure.message


def test_timeouts_can_be_disabled() -> None:
    assert isinstance(events_of(Answer(wire(*replied(message("hi")))), timeouts=NO_TIMEOUTS)[-1], Completed)


def test_a_slow_reply_does_not_time_out() -> None:
    """Each byte is a sign of life, however long all of them take."""
    body = b"".join(wire(CREATED, done(0, message("hi")), completed_event()))
    pieces = [body[at : at + 1] for at in range(len(body))]
    events = events_of(Answer(pieces), timeouts=Timeouts(between_bytes=0.5))
    assert isinstance(events[-1], Completed)


async def call_at(url: str, **more: Any) -> Failed:
    async def run() -> Any:
        connections = Connections()
        try:
            return (await collect(ModelClient(FORMAT, endpoint(url, **more), connections)))[-1]
        finally:
            await connections.close()

    last = await run()
    assert isinstance(last, Failed)
    return last


async def test_a_refused_connection_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    failure = await call_at(f"http://user:hidden-word@127.0.0.1:{port}/v1", api_key=None)
    assert (failure.kind, failure.retryable, failure.status) == ("unreachable", True, None)
    assert f"fake cannot be reached at http://127.0.0.1:{port}/v1/responses" in failure.message
    assert "base_url" in failure.message
    assert "hidden-word" not in failure.message


@pytest.mark.parametrize("raw", [b"SSH-2.0-OpenSSH_9.9\r\n\r\n", b""])
def test_a_server_that_does_not_speak_http_is_unreachable(raw: bytes) -> None:
    assert failed(Raw(raw)).kind == "unreachable"


async def test_cancelling_a_reply_releases_the_connection() -> None:
    connections, heard = Connections(), asyncio.Event()
    async with FakeEndpoint(Answer([*wire(CREATED, text_delta("x")), PAUSE])) as server:
        model = ModelClient(FORMAT, endpoint(server.url), connections)
        task = asyncio.create_task(model.reply(HELLO, lambda _: heard.set()))
        async with asyncio.timeout(HANG_SECONDS):
            await heard.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            server.go_on.set()
            await server.left.wait()
        await connections.close()
