"""What a token without all scopes and agents cannot do: see others, choose models, pin, open endless streams."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.http.served_home import ServedHome, serve_home

OWN_MODELS = (
    "name: routed\nmodel: fake/m\nfallbacks: [fake/f]\nretry: {attempts: 0}\nmemory: {recall: 0, remember: false}\n"
    "routing: {tiers: [{model: fake/small, upto: 0.5}, {model: fake/large}]}\n"
)


LOCAL = (
    "local/missing",
    "local//etc",
    "local/../../x",
    "local/\x01",
    "local/\x00",
    "local//proc/1/root",
    "local/~x",
)


def write_agent(server: ServedHome, name: str, text: str) -> None:
    folder = server.home.path / "agents" / name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(text)


async def test_metrics_show_a_limited_token_its_own_agents_only(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for agent in ("one", "two"):
            await server.until(await server.begin(agent), "completed")
        whole = (await server.ask("GET", "/metrics")).body.decode()
        assert 'agent="two"' in whole
        limited = await server.mint("read", agents=("one",))
        shown = (await server.ask("GET", "/metrics", token=limited)).body.decode()
        assert 'treadle_runs_total{agent="one",outcome="completed"} 1' in shown
        assert "two" not in shown
        samples = [line for line in shown.splitlines() if not line.startswith("#")]
        assert samples
        assert all('agent="one"' in line for line in samples)
        nothing = await server.mint("read", agents=("asking",))
        shown = (await server.ask("GET", "/metrics", token=nothing)).body.decode()
        assert [line for line in shown.splitlines() if not line.startswith("#")] == []


async def test_a_token_that_only_runs_reads_its_own_responses_and_no_others(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        run_only = await server.mint("run")
        foreign = await server.begin("one")
        session = (await server.until(foreign, "completed"))["session_id"]
        asked: list[tuple[str, str, Any]] = [
            ("GET", f"/v1/responses/resp_{foreign}", None),
            ("POST", f"/v1/responses/resp_{foreign}/cancel", None),
            (
                "POST",
                "/v1/responses",
                {"model": "one", "input": "x", "previous_response_id": f"resp_{foreign}"},
            ),
            ("POST", "/v1/responses", {"model": "one", "input": "x", "conversation": session}),
            ("POST", "/v1/agents/one/runs", {"message": "What was said?", "session_id": session}),
            ("POST", f"/v1/runs/{foreign}/fork", {}),
        ]
        for method, path, body in asked:
            reply = await server.ask(method, path, body, token=run_only)
            assert reply.status == 404, (path, reply)
        own = (await server.ask("POST", "/v1/responses", {"model": "one", "input": "x"}, token=run_only)).json
        assert (await server.ask("GET", f"/v1/responses/{own['id']}", token=run_only)).json["id"] == own["id"]
        again = {"model": "one", "input": "y", "previous_response_id": own["id"]}
        assert (await server.ask("POST", "/v1/responses", again, token=run_only)).status == 200
        reader = await server.mint("read", "run")
        assert (await server.ask("GET", f"/v1/responses/resp_{foreign}", token=reader)).status == 200
        other = await server.mint("run")
        assert (await server.ask("GET", f"/v1/responses/{own['id']}", token=other)).status == 404


@pytest.mark.parametrize("model", ["local/x", "local//etc/passwd", "fake/expensive", "fake", "large", "", "fake/"])
async def test_a_model_that_is_not_the_agents_own_needs_an_administrator(tmp_path: Path, model: str) -> None:
    async with serve_home(tmp_path) as server:
        write_agent(server, "routed", OWN_MODELS)
        token = await server.mint("read", "run")
        body = {"message": "Go.", "overrides": {"model": model}}
        reply = await server.ask("POST", "/v1/agents/routed/runs", body, token=token)
        assert reply.status in (400, 403), reply
        if model:
            assert reply.problem == "ModelNotAllowed"
        assert "/etc" not in reply.body.decode()
        run = await server.begin("routed")
        await server.until(run, "completed")
        forked = await server.ask("POST", f"/v1/runs/{run}/fork", {"model": model}, token=token)
        assert forked.status in (400, 403), forked


async def test_the_agents_own_models_can_be_chosen(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        write_agent(server, "routed", OWN_MODELS)
        token = await server.mint("read", "run")
        for model in ("fake/m", "fake/f", "fake/small", "fake/large"):
            body = {"message": "Go.", "overrides": {"model": model}}
            assert (await server.ask("POST", "/v1/agents/routed/runs", body, token=token)).status == 202, model
        body = {"message": "Go.", "overrides": {"model": "fake/other"}}
        assert (await server.ask("POST", "/v1/agents/routed/runs", body)).status == 202


@pytest.mark.parametrize(
    "model", [*LOCAL, "local/" + "a" * 5000, "local/" + "a/" * 3000], ids=range(len(LOCAL) + 2)
)
async def test_a_missing_local_model_is_refused_for_an_administrator(tmp_path: Path, model: str) -> None:
    async with serve_home(tmp_path) as server:
        body = {"message": "Go.", "overrides": {"model": model}}
        reply = await server.ask("POST", "/v1/agents/one/runs", body)
        assert reply.status == 400, reply
        assert reply.problem


async def test_pinning_requires_the_admin_scope(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        token = await server.mint("read", "run")
        body = {"agent": "one", "text": "The sky is green.", "pinned": True}
        reply = await server.ask("POST", "/v1/memory", body, token=token)
        assert (reply.status, reply.problem) == (403, "Forbidden")
        assert (await server.ask("POST", "/v1/memory", body | {"pinned": False}, token=token)).status == 201
        assert (await server.ask("POST", "/v1/memory", body | {"text": "Other."})).status == 201


async def test_the_open_streams_of_a_token_are_limited(tmp_path: Path) -> None:
    async with serve_home(tmp_path, streams_per_token=3) as server:
        token, other = await server.mint("read"), await server.mint("read", "run")
        opened = [await _open(server, token) for _ in range(3)]
        refused = await server.ask("GET", "/v1/events", token=token)
        assert (refused.status, refused.problem) == (429, "TooManyStreams")
        assert "streams_per_token" in refused.json["detail"]
        opened.append(await _open(server, other))
        opened[0][1].close()
        while len(server.streams) > 3:  # noqa: ASYNC110 -- no event reports that a reader left
            await asyncio.sleep(0)
        opened.append(await _open(server, token))
        streamed = {"model": "one", "messages": [{"role": "user", "content": "x"}], "stream": True}
        opened += [await _open(server, other) for _ in range(2)]
        assert (await server.ask("POST", "/v1/chat/completions", streamed, token=other)).status == 429
        for _, writer in opened:
            writer.close()


async def test_concurrent_streams_are_limited(tmp_path: Path) -> None:
    async with serve_home(tmp_path, streams_per_token=3) as server:
        token = await server.mint("read")
        heads = await asyncio.gather(*[_connect(server, token) for _ in range(12)])
        statuses = sorted(int(head.split()[1]) for head, _, _ in heads)
        assert statuses == [200] * 3 + [429] * 9
        for _, _, writer in heads:
            writer.close()


async def _open(server: ServedHome, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    head, reader, writer = await _connect(server, token)
    assert b"200" in head.split(b"\r\n")[0], head
    return reader, writer


async def _connect(server: ServedHome, token: str) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(head.encode())
    return await reader.readuntil(b"\r\n\r\n"), reader, writer


INVALID = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x28\x8c\x28")


@pytest.mark.parametrize("bytes_", INVALID)
async def test_invalid_utf8_is_a_bad_request(tmp_path: Path, bytes_: bytes) -> None:
    escaped = "".join(f"%{byte:02x}" for byte in bytes_)

    async with serve_home(tmp_path) as server:
        paths = [
            f"/v1/runs/{escaped}", f"/v1/runs?agent={escaped}", f"/v1/agents/{escaped}/runs", f"/{escaped}",
            f"/v1/runs?{escaped}=x",
        ]  # fmt: skip
        for path in paths:
            assert await _raw(server, f"GET {path} HTTP/1.1".encode()) == 400, path
        assert await _raw(server, b"GET /v1/runs/" + bytes_ + b" HTTP/1.1") == 400
        assert await _raw(server, b"GET /v1/runs?agent=" + bytes_ + b" HTTP/1.1") == 400
        for header in (
            b"Last-Event-ID",
            b"Idempotency-Key",
            b"X-Treadle-Session",
            b"Authorization",
            b"X-Other",
        ):
            line = b"POST /v1/agents/one/runs HTTP/1.1\r\n" + header + b": a" + bytes_
            assert await _raw(server, line) == 400, header
        posts = {
            "/v1/agents/one/runs": b'{"message": "%b"}',
            "/v1/memory": b'{"agent": "one", "text": "%b"}',
            "/v1/chat/completions": b'{"model": "one", "messages": [{"role": "user", "content": "%b"}]}',
            "/v1/responses": b'{"model": "one", "input": "%b", "metadata": {"%b": "x"}}',
            "/v1/tokens": b'{"name": "%b"}',
        }
        for path, template in posts.items():
            reply = await server.ask("POST", path, template.replace(b"%b", bytes_))
            assert reply.status == 400, (path, reply)
            keyed = await server.ask("POST", path, template.replace(b"%b", bytes_), Idempotency_Key="k")
            assert keyed.status == 400, (path, keyed)
        fine = await server.ask("POST", "/v1/memory", {"agent": "one", "text": "größer 🙂"})
        assert fine.status == 201


async def _raw(server: ServedHome, first: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = first + f"\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n".encode()
    if b"\r\nAuthorization:" in first:
        head = first + b"\r\nHost: localhost\r\n"
    writer.write(head + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
    status = (await reader.readline()).split()
    writer.close()
    return int(status[1])
