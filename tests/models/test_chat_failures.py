"""What the chat_completions adapter makes of everything that is not a reply."""

import asyncio
import socket
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from tests.fake_endpoint import (
    DONE,
    PAUSE,
    Answer,
    Behaviour,
    FakeEndpoint,
    Raw,
    Silence,
    delta,
    event,
    fragment,
    refuses,
    says,
    usage,
)
from tests.models.chat import HELLO, KEY, broken, collect, endpoint, events_of, failed
from tests.patience import HANG_SECONDS
from treadle.domain.providers import NO_TIMEOUTS, Timeouts
from treadle.domain.runs import Usage
from treadle.models.formats.chat_completions import FORMAT
from treadle.models.http import failure as failures
from treadle.models.http import transport
from treadle.models.http.client import ModelClient
from treadle.models.http.transport import Connections
from treadle.ports.model import (
    Completed,
    Failed,
)


def test_a_clean_end_without_a_finish_reason_is_malformed() -> None:
    failure = broken(delta(content="half"), usage(9, 1), DONE)
    assert (failure.kind, failure.retryable, failure.usage) == ("malformed", True, Usage(9, 1))
    assert "ended without saying why" in failure.message


@pytest.mark.parametrize("framing", ["chunked", "length"])
@pytest.mark.parametrize("finish", [None, "stop"])
def test_a_cut_body_is_malformed_and_its_usage_is_estimated(framing: Any, finish: str | None) -> None:
    failure = failed(Answer([delta(content="half" * 10, finish=finish)], framing=framing, ending="cut"))
    assert (failure.kind, failure.retryable) == ("malformed", True)
    assert failure.usage.estimated
    assert failure.usage.output_tokens == 10


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"message": "The server had an error", "type": "server_error"}, "server", True),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "rate_limited", True),
        ({"message": "Upstream is overloaded", "code": 503}, "overloaded", True),
        ({"message": "pay", "code": "insufficient_quota"}, "billing", False),
        ("llama runner process has terminated", "server", True),
    ],
)
def test_an_error_in_mid_stream_is_classified(error: Any, kind: str, retryable: bool) -> None:
    failure = broken(delta(content="so far"), event({"error": error}), DONE)
    assert (failure.kind, failure.retryable) == (kind, retryable)
    assert (error if isinstance(error, str) else error["message"]) in failure.message


def test_an_error_line_of_ollama_is_a_failure() -> None:
    failure = broken(delta(content="so far"), b'{"error":"server busy, please try again."}\n')
    assert (failure.kind, failure.retryable) == ("overloaded", True)


@pytest.mark.parametrize("arguments", ['{"n": ', "[1]", '"{}"', "{} {}", "{n: 1}", '{"n": NaN}'])
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_arguments_that_are_not_an_object_are_never_a_call(arguments: str, finish: str) -> None:
    failure = broken(delta(tool_calls=[fragment(0, "c", "a", arguments)], finish=finish), DONE)
    assert (failure.kind, failure.retryable) == ("malformed", True)
    assert "call 1 of it (a) has arguments that are not a JSON object" in failure.message


def test_the_error_for_a_call_with_a_huge_name_is_short() -> None:
    failure = broken(delta(tool_calls=[fragment(0, "c", "a\n" * 10_000, "[]")], finish="tool_calls"), DONE)
    assert len(failure.message) < 800


def test_a_call_without_a_name_is_malformed() -> None:
    assert (
        "has no name" in broken(delta(tool_calls=[fragment(0, "c", None, "{}")], finish="tool_calls"), DONE).message
    )


@pytest.mark.parametrize("payload", [b"{", b"nonsense", b'{"choices":7}', b"\xff\xfe", b"[" * 100_000, b"7"])
def test_unreadable_chunks_are_malformed(payload: bytes) -> None:
    assert broken(event(payload), DONE).kind == "malformed"


def test_a_page_instead_of_a_stream_is_malformed() -> None:
    failure = failed(Answer([b"<html>welcome</html>"], headers={"Content-Type": "text/html"}))
    assert failure.kind == "malformed"
    assert "it came as text/html and not as text/event-stream: check base_url" in failure.message


OPENAI_QUOTA = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
HTML = b"<!DOCTYPE html><html><head><title>502 Bad\nGateway</title></head><body>cloud</body></html>"


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable", "words"),
    [
        (400, {"error": {"message": "bad tool"}}, "invalid_request", False, "bad tool. Check that the model `m-1`"),
        (
            401,
            {"error": {"message": f"Wrong key {KEY}."}},
            "auth",
            False,
            "Wrong key [hidden]. Check the key in the",
        ),
        (402, {"error": "no credit"}, "billing", False, "no credit. Add credit"),
        (403, {"detail": "not yours"}, "auth", False, "not yours"),
        (404, {"error": {"message": "no model"}}, "not_found", False, "the model id `m-1` and the base_url"),
        (413, b"", "overflow", False, "it gave no reason. Send /compact"),
        (422, {"detail": [{"msg": "field required"}]}, "invalid_request", False, "field required"),
        (429, {"error": {"message": "slow"}}, "rate_limited", True, "slow"),
        (429, OPENAI_QUOTA, "billing", False, "You exceeded your quota"),
        (500, {"error": {"message": "oops"}}, "server", True, "fake answered 500 (http://127.0.0.1:"),
        (502, HTML, "server", True, "an HTML page titled `502 Bad Gateway`"),
        (503, {"error": "server busy"}, "overloaded", True, "server busy"),
        (504, b"<html></html>", "timeout", True, "an HTML page"),
        (529, b"plain text", "overloaded", True, "plain text"),
        (307, b"", "not_found", False, "and points to"),
    ],
)
def test_each_error_status_has_its_meaning_and_advice(
    status: int, body: Any, kind: str, retryable: bool, words: str
) -> None:
    failure = failed(refuses(status, body))
    assert (failure.kind, failure.retryable, failure.status) == (kind, retryable, status)
    assert words in failure.message
    assert failure.usage == Usage()


def test_a_provider_message_is_truncated_to_one_line() -> None:
    failure = failed(refuses(400, {"error": {"message": "a\nb\x1b[31m" + "x" * 450 + KEY + "y" * 50_000}}))
    assert "a b [31mxxx" in failure.message
    assert KEY[:8] not in failure.message
    assert len(failure.message) < 700


def test_a_refusal_says_that_no_key_was_sent() -> None:
    failure = failed(refuses(401, {"error": "who are you"}), api_key=None)
    assert failure.message.endswith("No key was sent: set the variable FAKE_API_KEY.")


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"retry_after_ms": "1500", "retry_after": "9"}, "", 1.5),
        ({"retry_after": "2.5"}, "", 2.5),
        ({"retry_after": "soon"}, "", None),
        ({"retry_after": "-3"}, "", None),
        ({"retry_after": "nan"}, "", None),
        ({}, "Please try again in 7m12s. Visit", 432.0),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, "please retry in 1h 2 minutes and", 3720.0),
        ({}, "try again later", None),
    ],
)
def test_the_wait_is_read_from_headers_and_message(
    headers: dict[str, str], message: str, seconds: float | None
) -> None:
    assert failed(refuses(429, {"error": {"message": message}}, **headers)).retry_after == seconds


def test_a_date_in_retry_after_becomes_a_wait() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < (failed(refuses(503, b"", retry_after=date)).retry_after or 0) <= 60


@pytest.mark.parametrize(("status", "said", "retryable"), [(400, "true", True), (500, "false", False)])
def test_x_should_retry_overrides_the_status(status: int, said: str, retryable: bool) -> None:
    assert failed(refuses(status, b"", x_should_retry=said)).retryable is retryable


# ── The network ────────────────────────────────────────────────────────────────────────────────────


async def call(url: str, **more: Any) -> Failed:
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
    failure = await call(f"http://user:hidden-word@127.0.0.1:{port}/v1", api_key=None)
    assert (failure.kind, failure.retryable, failure.status) == ("unreachable", True, None)
    assert f"fake cannot be reached at http://127.0.0.1:{port}/v1/chat/completions" in failure.message
    assert "hidden-word" not in failure.message


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    failure = await call("http://nowhere.invalid/v1")
    assert (failure.kind, failure.retryable) == ("unreachable", True)
    assert "its name cannot be resolved" in failure.message


def test_a_server_that_does_not_speak_http_is_unreachable() -> None:
    failure = failed(Raw(b"SSH-2.0-OpenSSH_9.9\r\n\r\n"))
    assert failure.kind == "unreachable"
    assert "does not speak HTTP" in failure.message


async def test_a_server_that_does_not_speak_https_is_reported() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    connections = Connections()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        events = await collect(ModelClient(FORMAT, endpoint(url), connections))
        await connections.close()
    failure = events[-1]
    assert isinstance(failure, Failed)
    assert (failure.kind, failure.retryable) == ("unreachable", True)
    assert "no secure connection could be made" in failure.message


def test_an_untrusted_certificate_is_not_retried() -> None:
    where = ConnectionKey("host", 443, True, True, None, None, None)
    error = aiohttp.ClientConnectorCertificateError(where, ssl.SSLCertVerificationError("self-signed certificate"))
    failure = failures.from_error(endpoint("https://host/v1"), error)
    assert (failure.kind, failure.retryable, failure.next_model) == ("unreachable", False, True)
    assert "its certificate is not trusted" in failure.message


async def test_an_invalid_address_is_not_retried() -> None:
    failure = await call("http://user:hidden-word@127.0.0.1:9/v1")
    assert (failure.kind, failure.retryable) == ("unreachable", False)
    assert "no request can be made" in failure.message
    assert "hidden-word" not in failure.message


@pytest.mark.parametrize(
    ("header", "pieces"),
    [
        (("Content-Encoding", "gzip"), [b"not gzip"]),
        (("Content-Encoding", "gzip"), [b"\x1f\x8b\x08\x00"]),
    ],
)
def test_a_body_that_contradicts_its_headers_fails(header: tuple[str, str], pieces: list[bytes]) -> None:
    failure = failed(Answer(pieces, headers=dict([header]), framing="close"))
    assert (failure.kind, failure.retryable) == ("malformed", True)


async def test_a_body_whose_framing_breaks_is_noticed_without_any_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_CHECK_INTERVAL_SECONDS", 0.02)
    first = delta(content="x")
    pieces = [b"%x\r\n%b\r\n" % (len(first), first), PAUSE, b"no length\r\n"]

    connections = Connections()
    answer = Answer(pieces, headers={"Transfer-Encoding": "chunked"}, framing="close")
    async with FakeEndpoint(answer) as server, asyncio.timeout(HANG_SECONDS):
        model = ModelClient(FORMAT, endpoint(server.url, NO_TIMEOUTS), connections)
        end = await model.reply(HELLO, lambda _: server.go_on.set())
        assert isinstance(end, Failed)
        assert end.kind == "malformed"
        await connections.close()


def test_a_connection_dropped_before_the_answer_is_unreachable() -> None:
    assert failed(Raw()).kind == "unreachable"


@pytest.mark.parametrize(
    ("behaviour", "timeouts", "words"),
    [
        (Silence(), Timeouts(first_byte=0.5), "sent no byte of a reply within 0.5 s"),
        (Answer(ending="hang"), Timeouts(first_byte=0.5), "sent no byte of a reply within 0.5 s"),
        (Answer([delta(content="x")], ending="hang"), Timeouts(between_bytes=0.05), "fell silent for 0.05 s"),
        (Answer([b": ping\n\n"], ending="hang"), Timeouts(whole_call=0.5), "not finished its reply after 0.5 s"),
        (Silence(), Timeouts(whole_call=0.5), "not finished its reply after 0.5 s"),
    ],
)
def test_each_timeout_is_a_retryable_failure(behaviour: Behaviour, timeouts: Timeouts, words: str) -> None:
    """The limits leave a busy machine the time to connect: the endpoint must have been asked."""
    failure = failed(behaviour, timeouts=timeouts)
    assert (failure.kind, failure.retryable) == ("timeout", True)
    assert words in failure.message


def test_timeouts_can_be_disabled() -> None:
    assert isinstance(events_of(says("hi"), timeouts=NO_TIMEOUTS)[-1], Completed)


async def test_cancelling_in_the_middle_aborts_the_call() -> None:
    connections, heard = Connections(), asyncio.Event()
    async with FakeEndpoint(Answer([delta(content="x")], ending="hang")) as server:
        model = ModelClient(FORMAT, endpoint(server.url), connections)
        task = asyncio.create_task(model.reply(HELLO, lambda _: heard.set()))
        async with asyncio.timeout(HANG_SECONDS):
            await heard.wait()
            assert not server.left.is_set()
            task.cancel()
            await server.left.wait()
        assert task.cancelled()
        await connections.close()


async def test_cancelling_the_task_aborts_the_call() -> None:
    connections = Connections()
    async with FakeEndpoint(Silence()) as server:
        task = asyncio.create_task(collect(ModelClient(FORMAT, endpoint(server.url), connections)))
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(HANG_SECONDS):
            await server.left.wait()
        await connections.close()


def test_the_key_is_not_in_the_representation() -> None:
    assert KEY not in repr(endpoint("http://u:p@host/v1?key=1", headers={"api-key": KEY}))
