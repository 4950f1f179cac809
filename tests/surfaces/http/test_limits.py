"""Limits on what an unauthenticated client can make the server wait for or store, and their errors."""

import asyncio
import json
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from tests.fake_endpoint import DONE, PAUSE, Answer, delta
from tests.patience import HANG_SECONDS, until
from tests.surfaces.http.served_home import ServedHome, serve_home, wants_a_file
from treadle.surfaces.http import server as serving
from treadle.surfaces.http.auth import OwnerAuthentication
from treadle.surfaces.http.body_limit import MAX_BODY_BYTES
from treadle.surfaces.http.open_streams import OpenStreams

Bytes = bytes
Quick = Callable[[str, float], None]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Quick:
    """So that a test need not wait as long as a stranger may."""

    def set_to(name: str, seconds: float) -> None:
        monkeypatch.setattr(serving, name, seconds)

    return set_to


async def exchange(server: ServedHome, *pieces: Bytes, pause: float = 0.0, bytes: int | None = None) -> Bytes:
    """Send bytes, and return the whole answer or its first bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    answering = asyncio.ensure_future(reader.read() if bytes is None else reader.readexactly(bytes))
    for piece in pieces:
        with suppress(ConnectionError):
            writer.write(piece)
            await writer.drain()
        await asyncio.sleep(pause)
        if answering.done():
            break
    try:
        return await answering
    finally:
        writer.close()


def head(server: ServedHome, line: str = "GET /v1/agents", *headers: str) -> bytes:
    lines = [f"{line} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {server.token}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def problem(answer: bytes) -> str:
    """Return the problem type of a raw answer."""
    top, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in top.lower(), answer[:300]
    return json.loads(body)["type"].removeprefix("urn:treadle:problem:")


async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        said = b'{"message": "' + b"x" * MAX_BODY_BYTES + b'"}'
        for headers in ({}, {"Idempotency_Key": "k"}):
            reply = await server.ask("POST", "/v1/agents/one/runs", said, **headers)
            assert reply.status == 413
            assert reply.problem == "SizeLimitExceeded"
        as_json = ("POST /v1/agents/one/runs", "Content-Type: application/json")
        told = head(server, *as_json, "Content-Length: 1000000000")
        assert (await exchange(server, told, bytes=12)) == b"HTTP/1.1 413"
        for line in ("POST /v1/runs/run_1/resume", "DELETE /v1/schedules/sch_1", "POST /mcp", "GET /v1/runs"):
            told = head(server, line, "Content-Type: application/json", "Content-Length: 1000000000")
            assert b"urn:treadle:problem:SizeLimitExceeded" in await exchange(server, told, bytes=250), line
        # one that does not say how large it is, and goes on for ever
        told = head(server, *as_json, "Transfer-Encoding: chunked")
        chunk = b"%x\r\n%b\r\n" % (2**20, b" " * 2**20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert await exchange(server, told, *([chunk] * 200), bytes=12) == b"HTTP/1.1 413"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000


async def test_a_text_that_is_too_long_is_refused_alike_on_every_route(tmp_path: Path) -> None:
    long, schedule = "x" * 128_001, {"agent": "one", "every": "1h"}

    async with serve_home(tmp_path) as server:
        run_id = await server.begin()
        await server.until(run_id, "completed")
        for path, body in (
            ("/v1/agents/one/runs", {"message": long}),
            ("/v1/agents/one/runs", {"message": "a", "attachments": [{"name": "a.txt", "text": long}]}),
            (f"/v1/runs/{run_id}/messages", {"message": long}),
            (f"/v1/runs/{run_id}/fork", {"message": long}),
            (f"/v1/runs/{run_id}/answers/call_1", {"text": long}),
            ("/v1/schedules", {**schedule, "message": long}),
            ("/v1/memory", {"agent": "one", "text": long}),
            (f"/v1/runs/{run_id}/cancel", {"reason": long}),
            ("/v1/vault/A", {"value": long}),
        ):
            reply = await server.ask("PUT" if path == "/v1/vault/A" else "POST", path, body)
            assert (reply.status, reply.problem) == (413, "SizeLimitExceeded"), (path, reply)
        openai = await server.ask(
            "POST", "/v1/chat/completions", {"model": "one", "messages": [{"role": "user", "content": long}]}
        )
        assert (openai.status, openai.json["error"]["code"]) == (413, "size_limit_exceeded")


async def test_the_state_of_an_agent_is_checked_before_the_length_of_a_message(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        await server.ask("POST", "/v1/agents/one/state", {"state": "paused"})
        for message in ("x", "x" * 128_001):
            reply = await server.ask("POST", "/v1/agents/one/runs", {"message": message})
            assert (reply.status, reply.problem) == (409, "InvalidState")
        description = (await server.ask("GET", "/v1/openapi.json")).json
        message = description["components"]["schemas"]["NewRun"]["properties"]["message"]
        assert message["maxLength"] == 128_000


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"message": "x", "overrides": {"output": {"a":'])
async def test_a_deeply_nested_body_is_refused(tmp_path: Path, opening: bytes) -> None:
    async with serve_home(tmp_path) as server:
        for path in ("/v1/agents/one/runs", "/v1/agents", "/v1/tokens", "/v1/submissions"):
            reply = await server.ask("POST", path, opening * 200_000)
            assert reply.status == 400, (path, reply)
            assert reply.problem
        assert (await server.ask("GET", "/healthz")).status == 200


async def test_a_head_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for long in (b"X-Long: ", b""):
            said = head(server)[:-2] + long + (b"y" * 1000 + (b"" if long else b": z\r\n")) * 100
            answer = await exchange(server, said)
            assert answer.startswith(b"HTTP/1.1 431 "), answer[:100]
            assert problem(answer) == "HeadTooLong"


async def test_a_slow_head_closes_the_connection(tmp_path: Path, quick: Quick) -> None:
    quick("HEAD_TIMEOUT_SECONDS", 0.3)
    async with serve_home(tmp_path) as server:
        assert problem(await exchange(server, b"GET /v1/agents HT")) == "TooSlow"
        assert await exchange(server, b"") == b""
        # a second request on the same connection is bounded too
        answer = await exchange(server, head(server), b"GET / HTTP/1.1\r\nX-Slow: ", pause=0.1)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in answer
        # byte after byte does not help
        assert b" 408 " in await exchange(server, *[Bytes([each]) for each in head(server)], pause=0.02)


async def test_a_slow_body_returns_408(tmp_path: Path, quick: Quick) -> None:
    quick("BODY_IDLE_SECONDS", 0.3)
    quick("BODY_TIMEOUT_SECONDS", 1.0)
    async with serve_home(tmp_path) as server:
        said = ("Content-Type: application/json", "Content-Length: 1000")
        told = head(server, "POST /v1/agents/one/runs", *said)
        keyed = head(server, "POST /v1/agents/one/runs", *said, "Idempotency-Key: slow")
        for begun in (told, keyed):
            answer = await exchange(server, begun, b'{"message"')
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert problem(answer) == "TooSlow"
        assert b" 408 " in await exchange(server, told, *([b" "] * 20), pause=0.1)
        # half a body has claimed no key
        reply = await server.ask("POST", "/v1/agents/one/runs", {"message": "x"}, Idempotency_Key="slow")
        assert reply.status == 202


async def test_data_that_is_not_http_is_refused(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for said in (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"HELO there\r\n\r\n", b"GET\r\n\r\n"):
            assert problem(await exchange(server, said)) == "NoRequest"
        both = head(server, "POST /v1/agents", "Content-Length: 3", "Transfer-Encoding: chunked")
        assert b"HTTP/1.1 400 " in await exchange(server, both, b"0\r\n\r\nGET /v1/tokens HTTP/1.1\r\n\r\n")


async def test_requests_in_a_row_are_answered_in_that_order(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        last = head(server, "GET /v1/nowhere", "Connection: close")
        answer = await exchange(server, head(server, "GET /healthz") * 20 + head(server) * 20 + last)
        assert answer.count(b"HTTP/1.1 200 ") == 40
        assert answer.count(b"HTTP/1.1 404 ") == 1
        assert answer.rindex(b"HTTP/1.1 200 ") < answer.rindex(b"HTTP/1.1 404 ")
        assert answer.rindex(b'"status":"ok"') < answer.index(b'"items"')


async def test_too_many_connections_get_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_home(tmp_path) as server:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
        monkeypatch.setattr(serving.BoundedProtocol, "max_connections", 20)
        answer = await exchange(server)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: " in answer
        for _, writer in held:
            writer.close()
        while (await server.ask("GET", "/v1/agents")).status == 503:
            pass
        assert (await server.ask("GET", "/v1/agents")).status == 200


async def test_a_waiting_client_is_answered_when_the_server_stops(tmp_path: Path) -> None:
    """At once, and with the run: a client that gets an error would request it again."""

    async with serve_home(tmp_path, wants_a_file()) as server:
        posted = asyncio.ensure_future(
            server.ask("POST", "/v1/agents/asking/runs?wait=600", {"message": "Go."}),
        )
        while not (waiting := (await server.ask("GET", "/v1/runs?status=waiting")).json["items"]):
            pass
        run_id = waiting[0]["run_id"]
        asked = asyncio.ensure_future(server.ask("GET", f"/v1/runs/{run_id}?wait=600"))
        await asyncio.sleep(0.1)
        assert not posted.done()
        assert not asked.done()
        await server.streams.close()
        async with asyncio.timeout(HANG_SECONDS):
            accepted, shown = await asyncio.gather(posted, asked)
        assert (accepted.status, accepted.json["run_id"]) == (202, run_id)
        assert (shown.status, shown.json["status"]) == (200, "waiting")


@pytest.mark.parametrize(("path", "asked"), [("chat/completions", "messages"), ("responses", "input")])
async def test_a_response_that_cannot_be_repeated_is_finished(tmp_path: Path, path: str, asked: str) -> None:
    """As far as there is time: a stream that ends early would pass for an answer that is whole."""

    slow = Answer([PAUSE, delta(content="Done."), delta(finish="stop"), DONE])
    async with serve_home(tmp_path, slow) as server:
        body = {"model": "one", "stream": True, asked: [{"role": "user", "content": "Go."}]}
        answering = asyncio.ensure_future(server.ask("POST", f"/v1/{path}", body))
        while not (await server.ask("GET", "/v1/runs?status=running")).json["items"]:
            pass
        await server.streams.close()
        server.endpoint.go_on.set()
        answer = await answering
        assert answer.status == 200
        assert b"Done." in answer.body
        assert b"[DONE]" in answer.body or b"response.completed" in answer.body


@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_abandoned_at_shutdown_gets_503(quick: Quick, begun: bool) -> None:
    """Not that something failed. An answer that has begun breaks off, as when the server dies."""
    quick("GRACE_SECONDS", 0.1)
    started = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"so far", "more_body": True})
        started.set()
        await asyncio.Event().wait()

    listener = serving.bind_socket("127.0.0.1", 0)
    async with serving.serve_sockets(OwnerAuthentication(endless, OpenStreams()), [listener]):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await started.wait()
    answer = await reader.read()
    writer.close()
    if begun:
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"so far\r\n")
    else:
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: " in answer
        assert problem(answer) == "Stopping"


async def test_a_cancellation_inside_a_request_is_not_reported_as_shutdown() -> None:
    async def waits_for_what_was_cancelled(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    listener = serving.bind_socket("127.0.0.1", 0)
    async with serving.serve_sockets(OwnerAuthentication(waits_for_what_was_cancelled, OpenStreams()), [listener]):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 500 ")
        writer.close()


async def test_a_disconnected_client_is_not_waited_for(tmp_path: Path) -> None:
    """A client that disconnects during `wait` leaves nothing behind, and the run continues."""

    slow = Answer([delta(content="D"), PAUSE, delta(content="one."), delta(finish="stop"), DONE])
    async with serve_home(tmp_path, slow) as server:
        before = len(asyncio.all_tasks())
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = b'{"message": "x"}'
        said = ("Content-Type: application/json", f"Content-Length: {len(body)}")
        writer.write(head(server, "POST /v1/agents/one/runs?wait=600", *said) + body)
        while not (runs := (await server.ask("GET", "/v1/runs?status=running")).json["items"]):
            pass
        during = len(asyncio.all_tasks())
        writer.close()
        await until(lambda: len(asyncio.all_tasks()) < during)
        assert before <= during
        server.endpoint.go_on.set()
        assert (await server.until(runs[0]["run_id"], "completed"))["result"]["text"] == "Done."
