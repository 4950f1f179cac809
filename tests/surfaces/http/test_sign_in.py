"""Sign-in of browsers: with a token or a one-time code, the rights of the cookie, and its end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.http.served_home import Reply, ServedHome, serve_home
from treadle.domain.events import RunQueued
from treadle.domain.ids import RunId, TokenId
from treadle.operations.sign_in_service import CODE_SECONDS, FRESH_SECONDS, IDLE_SECONDS, LONGEST_SECONDS
from treadle.surfaces.http.assets import HEADERS
from treadle.surfaces.http.sign_in_limit import MAX_FAILURES, MAX_PROXY_FAILURES
from treadle.testing.time import FakeClock

PATH = "/v1/dashboard/sign-in"


def make_dashboard_headers(server: ServedHome) -> dict[str, str]:
    """Return the headers that the dashboard sends."""
    return {"Origin": server.url, "X-Treadle": "dashboard"}


async def sign_in(server: ServedHome, **body: str) -> Reply:
    return await server.ask("POST", PATH, body, token="", **make_dashboard_headers(server))


def cookie_of(reply: Reply) -> str:
    assert reply.status == 200, reply
    return reply.headers["set-cookie"].partition(";")[0]


async def identity(server: ServedHome, cookie: str) -> Any:
    reply = await server.ask("GET", "/v1/dashboard/identity", token="", Cookie=cookie)
    return json.loads(reply.body)["identity"]


async def test_a_cookie_has_the_rights_of_its_token_until_it_is_revoked(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000.0)
    async with serve_home(tmp_path, clock=clock) as server:
        secret = await server.mint("read", agents=("one",))
        reply = await sign_in(server, token=secret)
        cookie = cookie_of(reply)
        assert cookie.startswith(f"treadle_{server.url.rpartition(':')[2]}=")
        said = reply.headers["set-cookie"]
        assert "HttpOnly" in said
        assert "SameSite=Strict" in said
        assert "Secure" not in said
        assert secret.encode() not in reply.body
        found = await identity(server, cookie)
        assert (found["scopes"], found["agents"], found["is_owner"]) == (["read"], ["one"], False)
        listed = await server.ask("GET", "/v1/agents", token="", Cookie=cookie)
        assert listed.headers["x-content-type-options"] == "nosniff"
        assert [each["agent"]["name"] for each in json.loads(listed.body)["items"]] == ["one"]
        tokens = json.loads((await server.ask("GET", "/v1/tokens")).body)["items"]
        await server.engine.context.access.revoke(TokenId(tokens[-1]["token_id"]))
        clock.pass_time(FRESH_SECONDS)  # another process may have looked it up before that
        assert await identity(server, cookie) is None


async def test_a_code_signs_in_once_as_the_owner_and_expires(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000.0)
    async with serve_home(tmp_path, clock=clock) as server:
        sign_ins = server.engine.context.sign_ins
        code = await sign_ins.make_code()
        found = await identity(server, cookie_of(await sign_in(server, code=code)))
        assert (found["is_owner"], found["scopes"]) == (True, ["read", "run", "approve", "admin"])
        assert (await sign_in(server, code=code)).status == 403
        late = await sign_ins.make_code()
        clock.pass_time(CODE_SECONDS)
        assert (await sign_in(server, code=late)).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:1"},
        {"X-Treadle": "dashboard"},
        {"Origin": "null", "X-Treadle": "dashboard"},
        {"Origin": "https://console.example", "X-Treadle": "dashboard"},
        {"Sec-Fetch-Site": "same-site", "X-Treadle": "dashboard", "Origin": "OWN"},
    ],
)
async def test_only_a_page_of_this_server_changes_something_with_a_cookie(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with serve_home(tmp_path) as server:
        cookie = cookie_of(await sign_in(server, token=server.token))
        sent = {name: server.url if value == "OWN" else value for name, value in headers.items()}
        for method, path, body in (("POST", PATH, {"token": server.token}), ("DELETE", PATH, None)):
            reply = await server.ask(method, path, body, token="", Cookie=cookie, **sent)
            assert reply.status == 403, reply
            assert "set-cookie" not in reply.headers
        assert await identity(server, cookie) is not None


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/v1/models",
        "/v1/models/one",
        "/v1/responses/x",
        "/v1/chat/completions",
        "//metrics",
        "/v1//models",
        "/v1/%2Fmodels/",
        "//v1///responses/x",
        "/v1//chat/completions",
    ],
)
async def test_a_cookie_does_not_count_where_programs_call(tmp_path: Path, path: str) -> None:
    async with serve_home(tmp_path) as server:
        cookie = cookie_of(await sign_in(server, token=server.token))
        method = "POST" if "chat" in path else "GET"
        reply = await server.ask(
            method,
            path,
            {} if method == "POST" else None,
            token="",
            Cookie=cookie,
            **make_dashboard_headers(server),
        )
        assert reply.status == 401


async def test_a_sign_in_ends_when_it_is_idle_or_old_and_by_signing_out(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000.0)
    async with serve_home(tmp_path, clock=clock) as server:
        idle = cookie_of(await sign_in(server, token=server.token))
        clock.pass_time(IDLE_SECONDS - 1)
        assert await identity(server, idle) is not None
        clock.pass_time(IDLE_SECONDS)
        assert await identity(server, idle) is None
        used = cookie_of(await sign_in(server, token=server.token))
        for _ in range(int(LONGEST_SECONDS // (IDLE_SECONDS - 60)) + 1):
            clock.pass_time(IDLE_SECONDS - 60)
            await identity(server, used)
        assert await identity(server, used) is None
        one, two = [cookie_of(await sign_in(server, token=server.token)) for _ in range(2)]
        reply = await server.ask("DELETE", PATH, token="", Cookie=one, **make_dashboard_headers(server))
        assert "Max-Age=0" in reply.headers["set-cookie"]
        assert await identity(server, one) is None
        assert await identity(server, two) is not None
        ended = await server.ask(
            "DELETE", "/v1/dashboard/sign-ins", token="", Cookie=two, **make_dashboard_headers(server)
        )
        assert json.loads(ended.body)["sign_ins"] >= 1
        assert await identity(server, two) is None


async def test_a_browser_that_opens_an_unknown_path_sees_a_page(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for path, accepted, kind in (
            ("/nonsense", "text/html,*/*", "text/html"),
            ("/nonsense", "application/json", "application/problem+json"),
            ("/v1/nonsense", "text/html", "application/problem+json"),
            ("/assets/nonsense.js", "text/html", "application/problem+json"),
        ):
            reply = await server.ask("GET", path, Accept=accepted)
            assert reply.status == 404, (path, accepted)
            assert reply.headers["content-type"].startswith(kind), (path, accepted)


async def test_a_stream_ends_with_its_sign_in(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        cookie = cookie_of(await sign_in(server, token=server.token))
        streaming = asyncio.ensure_future(server.ask("GET", "/v1/events?live=true", token="", Cookie=cookie))
        while not len(server.streams):  # noqa: ASYNC110 -- the server has no event for it
            await asyncio.sleep(0)
        await server.ask("DELETE", PATH, token="", Cookie=cookie, **make_dashboard_headers(server))
        reply = await streaming
        assert reply.body.startswith(b"id: ")


async def test_failed_attempts_are_limited(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for _ in range(MAX_FAILURES):
            reply = await sign_in(server, token="trd_wrong")
            assert (reply.status, b"not valid" in reply.body) == (403, True)
        assert (await sign_in(server, token=server.token)).status == 429


async def test_clients_behind_a_local_proxy_are_limited_separately(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:

        async def attempt(forwarded: str, token: str = "trd_wrong") -> int:
            headers = {"X-Forwarded-For": forwarded, **make_dashboard_headers(server)}
            return (await server.ask("POST", PATH, {"token": token}, token="", **headers)).status

        for number in range(MAX_FAILURES):
            assert await attempt(f"203.0.113.{number}, 198.51.100.7") == 403  # only the last entry counts
        assert await attempt("198.51.100.7", server.token) == 429
        assert await attempt("198.51.100.8", server.token) == 200
        assert (await sign_in(server, token=server.token)).status == 200
        for number in range(MAX_PROXY_FAILURES):
            await attempt(f"192.0.2.{number}")
        assert await attempt("198.51.100.8", server.token) == 429  # a proxy cannot multiply the limit for ever


async def test_pages_need_no_sign_in_and_are_locked_down(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for path in ("/", "/runs/run_x", "/chat/../agents"):
            reply = await server.ask("GET", path, token="")
            assert reply.status == 200
            assert {name: reply.headers[name] for name in HEADERS} == HEADERS
            assert b"<script>" not in reply.body
        for path in ("/assets/../../auth.py", "/assets/..%2f..%2fauth.py", "/assets/none.js", "/other"):
            assert (await server.ask("GET", path, token="")).status in (401, 404)
        assert (await server.ask("POST", "/runs", {}, token="")).status == 401


async def test_runs_are_filtered_by_text_time_and_cost(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for message in ("Count the MODULES\nplease", "Write a poem"):
            await server.ask("POST", "/v1/agents/one/runs?wait=30", {"message": message})

        async def found(query: str) -> list[str]:
            items = json.loads((await server.ask("GET", f"/v1/runs?{query}")).body)["items"]
            return [each["summary"] for each in items]

        assert await found("text=modules%20PLEASE") == ["Count the MODULES please"]
        assert await found("text=nothing") == []
        assert len(await found("min_cost=0")) == 2
        assert await found("min_cost=100") == []
        assert await found("until=2020-01-01T00:00:00Z") == []
        assert len(await found("since=2020-01-01T00:00:00Z")) == 2


async def test_event_summaries_name_their_subject(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        reply = await server.ask("POST", "/v1/agents/one/runs?wait=30", {"message": "hello there"})
        run_id = json.loads(reply.body)["run_id"]
        page = json.loads((await server.ask("GET", f"/v1/runs/{run_id}/event-lines?limit=3")).body)
        assert [line["sequence"] for line in page["items"]] == [1, 2, 3]
        assert page["next"] == "3"
        rest = json.loads((await server.ask("GET", f"/v1/runs/{run_id}/event-lines?after=3")).body)
        lines = {line["type"]: line for line in (*page["items"], *rest["items"])}
        assert lines["user_message"]["text"] == "hello there"
        assert lines["llm_request"]["name"] == "m"
        assert lines["run_end"]["text"] == "completed"
        assert rest["next"] is None


async def test_a_sender_who_may_answer_can_be_asked(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        asked: list[str | None] = []
        writer, reviewer = await server.mint("run"), await server.mint("run", "approve")
        for token in (writer, reviewer):
            cookie = cookie_of(await sign_in(server, token=token))
            reply = await server.ask(
                "POST",
                "/v1/agents/one/runs",
                {"message": "Go."},
                token="",
                Cookie=cookie,
                **make_dashboard_headers(server),
            )
            asked.append(await asker_of_run(server, reply))
        plain = await server.ask("POST", "/v1/agents/one/runs", {"message": "Go."}, token=reviewer)
        asked.append(await asker_of_run(server, plain))
        assert asked == [None, "dashboard", "api"]


async def asker_of_run(server: ServedHome, reply: Reply) -> str | None:
    assert reply.status == 202, reply
    [first] = await server.engine.service.page(RunId(reply.json["run_id"]), 0, 1)
    assert isinstance(first.data, RunQueued)
    return first.data.asker
