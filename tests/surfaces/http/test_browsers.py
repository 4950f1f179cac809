"""Pages of other origins: preflights, response headers and stream tickets."""

from pathlib import Path
from typing import Any

from tests.surfaces.http.served_home import ServedHome, serve_home

CONSOLE = "https://console.example"


async def make_ticket(web: ServedHome, path: str, token: str | None = None) -> Any:
    return await web.ask("POST", "/v1/stream-tickets", {"path": path}, token=token)


async def test_a_page_of_a_named_origin_may_send_requests_and_read_the_responses(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        asked = {"Origin": CONSOLE, "Access_Control_Request_Method": "POST"}
        preflight = await web.ask("OPTIONS", "/v1/agents/one/runs", token="", **asked)
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == CONSOLE
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        assert "access-control-allow-credentials" not in preflight.headers
        listed = await web.ask("GET", "/v1/runs", Origin=CONSOLE)
        assert (listed.status, listed.headers["access-control-allow-origin"]) == (200, CONSOLE)
        assert "Origin" in listed.headers["vary"]
        refused = await web.ask("GET", "/v1/runs", token="", Origin=CONSOLE)
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, CONSOLE)
        for strange in ("https://evil.example", "https://console.example.evil.example", "null"):
            reply = await web.ask("OPTIONS", "/v1/runs", token="", **{**asked, "Origin": strange})
            assert reply.status != 204
            assert "access-control-allow-origin" not in reply.headers


async def test_a_page_may_use_an_openai_client(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        wanted = (
            "authorization, content-type, idempotency-key, openai-beta, x-stainless-lang, x-stainless-retry-count"
        )
        asked = {
            "Origin": CONSOLE,
            "Access_Control_Request_Method": "POST",
            "Access_Control_Request_Headers": f"{wanted}, x-evil, cookie",
        }
        preflight = await web.ask("OPTIONS", "/v1/chat/completions", token="", **asked)
        allowed = [name.strip().lower() for name in preflight.headers["access-control-allow-headers"].split(",")]
        assert set(wanted.split(", ")) <= set(allowed)
        assert not {"x-evil", "cookie", "*"} & set(allowed)
        body = {"model": "one", "messages": [{"role": "user", "content": "Go."}], "logprobs": True}
        answer = await web.ask("POST", "/v1/chat/completions", body, Origin=CONSOLE)
        exposed = answer.headers["access-control-expose-headers"].lower()
        for name in ("x-treadle-session", "x-treadle-run", "x-treadle-ignored"):
            assert name in exposed
            assert answer.headers[name]


async def test_a_ticket_opens_its_stream_alone_and_ends_with_its_token(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        run_id, other = await web.begin(), await web.begin()
        await web.until(run_id, "completed")
        token = await web.mint("read")
        path = f"/v1/runs/{run_id}/events"
        made = await make_ticket(web, path, token)
        assert made.status == 201
        ticket = made.json["ticket"]
        assert not ticket.startswith("trd_")
        for _ in range(2):
            stream = await web.ask("GET", f"{path}?after=0&ticket={ticket}", token="", Origin=CONSOLE)
            assert stream.status == 200, stream
            assert b"run_end" in stream.body
            assert stream.headers["access-control-allow-origin"] == CONSOLE
        for wrong in (f"/v1/runs/{other}/events", f"/v1/runs/{run_id}", "/v1/events", "/v1/runs", "/metrics"):
            assert (await web.ask("GET", f"{wrong}?ticket={ticket}", token="")).status == 401, wrong
        assert (await web.ask("POST", f"/v1/runs/{run_id}/cancel?ticket={ticket}", token="")).status == 401
        for forged in (ticket[:-1] + "A", ticket.replace(".", ".9", 1), "tkt_", "tkt_x.1.y", "", ticket[4:]):
            if forged != ticket:
                assert (await web.ask("GET", f"{path}?ticket={forged}", token="")).status == 401, forged
        listed = (await web.ask("GET", "/v1/tokens")).json["items"]
        [token_id] = [each["token_id"] for each in listed if each["name"] == "someone"]
        assert (await web.ask("DELETE", f"/v1/tokens/{token_id}")).status == 204
        assert (await web.ask("GET", f"{path}?ticket={ticket}", token="")).status == 401


async def test_a_ticket_is_made_only_for_streams_that_the_caller_may_see(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        run_id = await web.begin()
        stranger = await web.mint("read", agents=["two"])
        for token in (stranger, await web.mint("read", "run", visibility="own")):
            assert (await make_ticket(web, f"/v1/runs/{run_id}/events", token)).problem == "UnknownRun"
        assert (await make_ticket(web, "/v1/agents/one/events", stranger)).problem == "UnknownAgent"
        for path in ("/v1/runs", "/v1/runs/x/events?after=1", "https://evil.example/", "", "/v1/runs//events"):
            assert (await make_ticket(web, path)).status in (400, 422), path
        assert (await make_ticket(web, "/v1/events", await web.mint("run"))).problem == "Forbidden"
