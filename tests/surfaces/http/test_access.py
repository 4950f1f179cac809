"""Access control: tokens, scopes, hosts, origins, and agents that a token cannot see."""

import asyncio
import re
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.patience import HANG_SECONDS
from tests.surfaces.http.served_home import ServedHome, serve_home, wants_a_file
from tests.surfaces.http.sse import Wire
from treadle.domain.access import SCOPES, Scope
from treadle.surfaces.http.application import DESCRIPTION_PATH
from treadle.surfaces.http.auth import PUBLIC_PATHS
from treadle.system.clock import SteadyClock

HOSTS = (
    "evil.example",
    "127.evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "localhost:x",
    "[::1].evil.example",
    "[::1]evil",
    "0.0.0.0",
    "",
)
ORIGINS = ("https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1:1", "file://")


def in_time(work: Coroutine[Any, Any, None], seconds: float = HANG_SECONDS) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await work

    asyncio.run(bounded())


def routes(server: ServedHome) -> list[tuple[str, str, tuple[Scope, ...]]]:
    """Return every route with each of its methods and the scopes of which it needs one."""
    return [
        (route.method, re.sub(r"\{\w+\}", "x", route.path), route.scopes)
        for route in server.app.routes
        if route.path not in PUBLIC_PATHS
    ]


WITHOUT_TOKEN = {("GET", "/v1/dashboard/identity"), ("POST", "/v1/dashboard/sign-in")}
"""Where a browser signs in, and finds out whether it has. tests/surfaces/http/test_sign_in.py covers them."""


async def test_every_route_requires_a_token(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        found = routes(server)
        assert len(found) > 60
        for method, path, _ in found:
            if path.startswith("/v1/hooks/") and method == "POST":
                continue  # what comes there is signed
            if (method, path) in WITHOUT_TOKEN:
                continue
            for token in ("", server.token[:-1], server.token + "x", "trd_", "Bearer", server.token[4:]):
                reply = await server.ask(method, path, token=token)
                assert reply.status == 401, (method, path, token, reply)
                assert reply.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("how", ["query", "basic", "cookie"])
async def test_a_token_is_accepted_only_in_its_header(tmp_path: Path, how: str) -> None:
    async with serve_home(tmp_path) as server:
        said: dict[str, dict[str, str]] = {
            "query": {},
            "basic": {"Authorization": f"Basic {server.token}"},
            "cookie": {"Cookie": f"token={server.token}; Authorization=Bearer {server.token}"},
        }
        path = f"/v1/agents?token={server.token}&access_token={server.token}" if how == "query" else "/v1/agents"
        reply = await server.ask("GET", path, token="", **said[how])
        assert reply.status == 401
        assert server.token.encode() not in reply.body


async def test_every_route_requires_its_scope(tmp_path: Path) -> None:
    """Without the scopes of which it needs one, a route is closed; admin alone opens each."""

    async with serve_home(tmp_path) as server:
        kinds: tuple[Scope, ...] = ("read", "run", "approve")
        without: dict[tuple[Scope, ...], str] = {}
        for _, _, scopes in routes(server):
            if scopes not in without:
                others: list[Scope] = [other for other in kinds if other not in scopes]
                without[scopes] = await server.mint(*others)
        asked: set[Scope] = set()
        for method, path, scopes in routes(server):
            if not scopes:
                open_paths = (DESCRIPTION_PATH, "/v1/hooks/", "/v1/dashboard/", "/v1/channels/x/webhook")
                assert method == "OPTIONS" or path.startswith(open_paths), path
                continue
            asked.update(scopes)
            reply = await server.ask(method, path, {} if method in ("POST", "PUT") else None, without[scopes])
            assert reply.status == 403, (method, path, scopes, reply)
            assert b"lacks the scope" in reply.body
        assert asked == set(SCOPES)
        only = await server.mint("admin")
        for path in ("/v1/agents", "/v1/tokens", "/v1/runs", "/v1/approvals"):
            assert (await server.ask("GET", path, token=only)).status == 200


async def test_only_our_own_host_and_site_are_answered(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        run_id = await server.begin()
        for path in ("/v1/agents", f"/v1/runs/{run_id}/events", "/healthz", "/v1/nowhere"):
            for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                for host in HOSTS:
                    reply = await server.ask(method, path, Host=host)
                    assert reply.status == 421, (method, path, host)
                    assert reply.problem == "UnknownHost"
                for origin in ORIGINS:
                    reply = await server.ask(method, path, Origin=origin)
                    assert reply.status == 403, (method, path, origin)
                    assert "access-control-allow-origin" not in reply.headers
        for host in ("localhost", f"localhost:{server.port}", "127.0.0.1:80", "[::1]", "[::1]:80", "LOCALHOST"):
            assert (await server.ask("GET", "/v1/agents", Host=host)).status == 200, host
        ours = f"http://localhost:{server.port}"
        for origin in (ours, "https://console.example"):
            reply = await server.ask("GET", "/v1/agents", Host=f"localhost:{server.port}", Origin=origin)
            assert reply.status == 200, origin


async def test_a_repeated_header_is_refused(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for twice in ("Host: localhost", "Host: evil.example", f"Authorization: Bearer {server.token}"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            head = f"GET /v1/agents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
            writer.write(f"{head}{twice}\r\nConnection: close\r\n\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()


async def test_a_revoked_or_expired_token_is_refused_at_once(tmp_path: Path) -> None:
    ahead = [0.0]

    clock = SteadyClock(elapsed=lambda: time.monotonic() + ahead[0])
    async with serve_home(tmp_path, clock=clock) as server:
        token = await server.mint()
        assert (await server.ask("GET", "/v1/agents", token=token)).status == 200
        listed = (await server.ask("GET", "/v1/tokens")).json["items"]
        assert token not in str(listed)
        reply = await server.ask("DELETE", f"/v1/tokens/{listed[-1]['token_id']}")
        assert reply.status == 204
        assert (await server.ask("GET", "/v1/agents", token=token)).status == 401
        assert (await server.ask("DELETE", f"/v1/tokens/{listed[-1]['token_id']}")).status == 400
        assert (await server.ask("DELETE", "/v1/tokens/tok_x")).problem == "UnknownToken"
        short = await server.mint(expires_at=server.engine.clock.now() + 3600)
        assert (await server.ask("GET", "/v1/agents", token=short)).status == 200
        ahead[0] = 3600.0
        assert (await server.ask("GET", "/v1/agents", token=short)).status == 401


async def test_data_of_another_agent_does_not_exist_for_a_token(tmp_path: Path) -> None:
    async with serve_home(tmp_path, wants_a_file()) as server:
        run_id = await server.begin("asking")
        waiting = await server.until(run_id, "waiting")
        [approval] = (await server.ask("GET", "/v1/approvals")).json["items"]
        await server.ask("POST", "/v1/memory", {"agent": "asking", "text": "The key is under the mat."})
        session, apr = waiting["session_id"], approval["approval_id"]
        mine = await server.mint("read", "run", "approve", agents=["one", "gone"])
        own_run = (await server.ask("POST", "/v1/agents/one/runs", {"message": "x"}, mine)).json["run_id"]
        hidden = [
            ("GET", "/v1/agents/asking", None),
            ("GET", "/v1/agents/asking/events", None),
            ("GET", "/v1/memory?agent=asking", None),
            ("GET", "/v1/memory?agent=asking&query=key", None),
            ("POST", "/v1/memory", {"agent": "asking", "text": "x"}),
            ("POST", "/v1/agents/asking/runs", {"message": "x"}),
            ("POST", "/v1/agents/one/runs", {"message": "x", "session_id": session}),
            ("GET", f"/v1/runs/{run_id}", None),
            *(("GET", f"/v1/runs/{run_id}/{part}", None) for part in ("events", "journal", "steps")),
            *(("GET", f"/v1/runs/{run_id}/{part}", None) for part in ("children", "questions")),
            *(("POST", f"/v1/runs/{run_id}/{verb}", None) for verb in ("interrupt", "cancel", "resume")),
            ("POST", f"/v1/runs/{run_id}/messages", {"message": "x"}),
            ("POST", f"/v1/runs/{run_id}/answers/call_1", {"text": "x"}),
            ("GET", f"/v1/approvals/{apr}", None),
            ("GET", f"/v1/approvals?run_id={run_id}", None),
            ("POST", f"/v1/approvals/{apr}", {"decision": "approve"}),
            ("GET", f"/v1/sessions/{session}", None),
            ("GET", f"/v1/sessions/{session}/runs", None),
        ]
        for method, path, body in hidden:
            reply = await server.ask(method, path, body, mine)
            assert reply.status == 404, (method, path, reply)
            assert b"asking" not in reply.body or "asking" in path + str(body), (path, reply)
        gone = await server.ask("GET", "/v1/agents/gone", token=mine)
        assert gone.status == 404
        assert b"two" not in gone.body  # nor are the others named
        assert b"asking" not in gone.body
        for path in ("/v1/runs", "/v1/sessions", "/v1/agents"):
            shown = await server.ask("GET", path, token=mine)
            assert shown.status == 200
            assert len(shown.json["items"]) == 1, path
            assert b"asking" not in shown.body
        for path in ("/v1/approvals", "/v1/memory", "/v1/runs?agent=asking", "/v1/usage?agent=asking"):
            assert (await server.ask("GET", path, token=mine)).json["items"] == [], path
        assert b"asking" not in (await server.ask("GET", "/v1/usage", token=mine)).body
        assert (await server.ask("GET", f"/v1/runs/{own_run}", token=mine)).status == 200
        wire = await Wire.open(server.port, "/v1/events?after=0", mine)
        async for sent in wire.events():
            assert sent.data["run_id"] == own_run
            if sent.type == "run_end":
                break
        await wire.close()


async def test_the_scope_run_cannot_raise_limits(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        limits = {"max_steps": 5, "deadline": "10m"}
        limited = {"name": "frugal", "model": "fake/m", "memory": {"remember": False}, "limits": limits}
        assert (await server.ask("POST", "/v1/agents", limited)).status == 201
        token = await server.mint()
        more: list[Any] = [
            {"limits": {"max_steps": 6}},
            {"limits": {"max_steps": None}},
            {"limits": {"stuck_steps": 7}},
            {"limits": {"max_continuations": 6}},
            {"limits": {"deadline": None}},
            {"deadline": "11m"},
            {"deadline": 601},
        ]
        for overrides in more:
            body = {"message": "x", "overrides": overrides}
            reply = await server.ask("POST", "/v1/agents/frugal/runs", body, token)
            assert reply.problem == "AboveTheLimit", overrides
            assert (await server.ask("POST", "/v1/agents/frugal/runs", body)).status == 202, overrides
        less = {"limits": {"max_steps": 5, "deadline": 599}, "deadline": "10m"}
        body = {"message": "x", "overrides": less}
        assert (await server.ask("POST", "/v1/agents/frugal/runs", body, token)).status == 202
        assert (await server.ask("GET", "/v1/agents/frugal")).json["agent"]["limits"]["max_steps"] == 5
        wrong = {"message": "x", "overrides": {"tools": ["bash"]}}
        assert (await server.ask("POST", "/v1/agents/frugal/runs", wrong, token)).status == 400


async def test_a_decision_records_its_token(tmp_path: Path) -> None:
    async with serve_home(tmp_path, wants_a_file()) as server:
        run_id = await server.begin("asking")
        await server.until(run_id, "waiting")
        [approval] = (await server.ask("GET", "/v1/approvals")).json["items"]
        token = await server.mint("approve")
        path, body = f"/v1/approvals/{approval['approval_id']}", {"decision": "deny", "by": "the president"}
        assert (await server.ask("POST", path, body, token)).status == 200
        assert (await server.ask("POST", path, body, token)).problem == "InvalidState"
        events = (await server.ask("GET", f"/v1/runs/{run_id}/journal")).json["items"]
        [decided] = [event["data"] for event in events if event["type"] == "approval_decided"]
        assert decided["by"] == "the president (token someone)"
