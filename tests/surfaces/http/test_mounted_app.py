"""`treadle.asgi` in a FastAPI program, over uvicorn: its users, its mounts, and what it refuses."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from starlette.types import ASGIApp

import treadle
from tests.fake_endpoint import DONE as LAST
from tests.fake_endpoint import PAUSE, Answer, Behaviour, FakeEndpoint, Policy, calls, delta, fragment, says
from tests.stores.postgres.conftest import databases as databases
from tests.stores.postgres.conftest import url as url
from treadle.domain.errors import UsageError
from treadle.ports.access import CreateToken
from treadle.surfaces.http import mounted_app

HELPER = treadle.Agent(name="helper", model="fake/m")
PEOPLE = {"a-cookie": "alice@example.com", "b-cookie": "bob"}


def find_user(request: Request) -> str | None:
    """Return who has signed in to the program."""
    return PEOPLE.get(request.cookies.get("login", ""))


def make_engine(home: Path, url: str, database: str | None = None) -> treadle.Engine:
    engine = treadle.Engine(database, home=home)
    engine.add_provider("fake", base_url=url, api_key="x")
    engine.add_agents(HELPER)
    return engine


class Program:
    """A program that listens, and a browser for each of its users."""

    def __init__(self, port: int, http: aiohttp.ClientSession) -> None:
        self.port = port
        self._http = http

    async def ask(
        self, who: str, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON of a response."""
        async with self.open(who, method, path, body, **headers) as response:
            text = await response.read()
            return response.status, json.loads(text) if text else {}

    def open(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            sent["Cookie"] = f"login={who}-cookie"
        return self._http.request(method, f"http://127.0.0.1:{self.port}{path}", json=body, headers=sent)

    async def run(self, who: str, message: str = "Go.", under: str = "/agents", **headers: str) -> dict[str, Any]:
        """Run an agent to its end, and return the run."""
        path = f"{under}/v1/agents/helper/runs?wait=60"
        status, run = await self.ask(who, "POST", path, {"message": message}, **headers)
        assert status in (200, 202), run
        return run


@asynccontextmanager
async def listen(app: ASGIApp) -> AsyncGenerator[Program, None]:
    """Serve a program with uvicorn as it is started from a command line."""
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="on", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done(), "the program did not start"
        await asyncio.sleep(0)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with aiohttp.ClientSession() as http:
            yield Program(port, http)
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def serve_program(
    home: Path,
    *script: Behaviour,
    policy: Policy | None = None,
    mount: Callable[[FastAPI, treadle.Engine], None] | None = None,
    database: str | None = None,
) -> AsyncGenerator[Program, None]:
    """Serve a program with the API at `/agents`, for the users who have signed in to it."""
    async with FakeEndpoint(*script, policy=policy or (lambda _: says("It is fine."))) as endpoint:
        engine = make_engine(home, endpoint.url, database)

        @asynccontextmanager
        async def live(_: FastAPI) -> AsyncGenerator[None, None]:
            async with engine:
                yield

        app = FastAPI(lifespan=live)
        if mount is None:
            app.mount("/agents", treadle.asgi(engine, authenticate=find_user))
        else:
            mount(app, engine)

        @app.get("/")
        def show_page() -> str:  # pyright: ignore[reportUnusedFunction] -- a route
            return "the page of the program"

        @app.get("/library")
        async def run_here(user: str) -> str:  # pyright: ignore[reportUnusedFunction]
            return (await engine.run(HELPER, "From the program.", user=user)).run_id

        async with listen(app) as program:
            yield program


async def read_events(response: aiohttp.ClientResponse) -> list[tuple[int, str]]:
    """Return the ids and types of the durable events up to the end of a stream."""
    text = (await response.read()).decode()
    frames = [dict(line.split(": ", 1) for line in frame.splitlines()) for frame in text.split("\n\n") if frame]
    return [(int(frame["id"]), frame["event"]) for frame in frames if "id" in frame]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "sqlite" else request.getfixturevalue("url")


async def test_what_a_user_starts_belongs_to_that_user(tmp_path: Path, database: str | None) -> None:
    async with serve_program(tmp_path, database=database) as program:
        assert await program.ask("", "GET", "/") == (200, "the page of the program")
        run = await program.run("a")
        assert (run["outcome"], run["result"]["text"]) == ("completed", "It is fine.")
        run_id, session_id = run["run_id"], run["session_id"]
        status, shown = await program.ask("a", "GET", f"/agents/v1/runs/{run_id}")
        assert (status, shown["owner"]) == (200, "alice@example.com")
        _, listed = await program.ask("a", "GET", "/agents/v1/sessions")
        assert [each["session_id"] for each in listed["items"]] == [session_id]

        for path in (
            f"runs/{run_id}",
            f"runs/{run_id}/events",
            f"runs/{run_id}/transcript",
            f"runs/{run_id}/steps",
            f"sessions/{session_id}",
        ):
            assert (await program.ask("b", "GET", f"/agents/v1/{path}"))[0] == 404, path
            assert (await program.ask("", "GET", f"/agents/v1/{path}"))[0] == 401, path
        for path in (f"runs/{run_id}/cancel", f"runs/{run_id}/messages", f"runs/{run_id}/fork"):
            assert (await program.ask("b", "POST", f"/agents/v1/{path}", {"message": "x"}))[0] in (400, 404), path
        into = {"message": "Let me in.", "session_id": session_id}
        assert (await program.ask("b", "POST", "/agents/v1/agents/helper/runs", into))[0] == 404
        for path in ("runs", "sessions", "approvals", "usage"):
            assert (await program.ask("b", "GET", f"/agents/v1/{path}"))[1]["items"] == [], path
        again = {"message": "And then?", "session_id": session_id}
        status, _ = await program.ask("a", "POST", "/agents/v1/agents/helper/runs?wait=60", again)
        assert status == 200


async def test_runs_that_the_program_starts_for_a_user_are_found_over_http(tmp_path: Path) -> None:
    async with serve_program(tmp_path) as program:
        _, for_bob = await program.ask("", "GET", "/library?user=bob")
        assert (await program.ask("b", "GET", f"/agents/v1/runs/{for_bob}"))[0] == 200
        assert (await program.ask("a", "GET", f"/agents/v1/runs/{for_bob}"))[0] == 404


async def test_the_same_idempotency_key_of_two_users_starts_two_runs(tmp_path: Path, database: str | None) -> None:
    async with serve_program(tmp_path, database=database) as program:
        [first, second, again] = [await program.run(who, Idempotency_Key="k") for who in ("a", "b", "a")]
        assert first["run_id"] == again["run_id"] != second["run_id"]


async def test_a_stream_under_the_prefix_continues_where_it_stopped(tmp_path: Path) -> None:
    async with serve_program(tmp_path) as program:
        path = f"/agents/v1/runs/{(await program.run('a'))['run_id']}/events"
        async with program.open("a", "GET", path) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            whole = await read_events(response)
        assert whole[-1][1] == "run_end"
        async with program.open("a", "GET", path, Last_Event_ID="3") as response:
            assert await read_events(response) == whole[3:]
        async with program.open("a", "GET", path, Last_Event_ID=str(whole[-1][0])) as response:
            assert response.status == 204


async def test_the_reader_of_a_long_stream_is_authenticated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounted_app, "AUTHENTICATED_SECONDS", 0.1)
    monkeypatch.setitem(PEOPLE, "c-cookie", "carol")
    async with serve_program(tmp_path) as program:
        async with program.open("c", "GET", "/agents/v1/events") as response:
            await response.read()  # ends although the server goes on
        del PEOPLE["c-cookie"]
        assert (await program.ask("c", "GET", "/agents/v1/events"))[0] == 401


async def test_each_mount_has_an_engine_of_its_own(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda _: says("It is fine.")) as endpoint:
        one, two = (make_engine(tmp_path / name, endpoint.url) for name in ("one", "two"))

        @asynccontextmanager
        async def live(_: FastAPI) -> AsyncGenerator[None, None]:
            async with one, two:
                yield

        app, inner = FastAPI(lifespan=live), FastAPI()
        app.mount("/agents", treadle.asgi(one, authenticate=find_user))
        inner.mount("/more/agents", treadle.asgi(two, authenticate=find_user))
        app.mount("/inner", inner)
        async with listen(app) as program:
            first = await program.run("a")
            second = await program.run("a", under="/inner/more/agents")
            for found, under, other in (
                (first, "/agents", "/inner/more/agents"),
                (second, "/inner/more/agents", "/agents"),
            ):
                assert (await program.ask("a", "GET", f"{under}/v1/runs/{found['run_id']}"))[0] == 200
                assert (await program.ask("a", "GET", f"{other}/v1/runs/{found['run_id']}"))[0] == 404
            assert (await program.ask("a", "GET", "/agents"))[0] == 404  # the API has no page
            assert (await program.ask("a", "GET", "/agentsv1/runs"))[0] == 404


async def test_a_run_that_was_interrupted_by_the_end_of_the_program_goes_on(tmp_path: Path) -> None:
    slow = Answer([PAUSE, delta(content="Never."), LAST])
    async with serve_program(tmp_path, slow) as program:
        path = "/agents/v1/agents/helper/runs"
        status, begun = await program.ask("a", "POST", path, {"message": "Go."})
        assert status == HTTPStatus.ACCEPTED
        run_id = begun["run_id"]
        while (await program.ask("a", "GET", f"/agents/v1/runs/{run_id}"))[1]["status"] != "running":
            pass
    async with serve_program(tmp_path) as program:
        status, ended = await program.ask("a", "GET", f"/agents/v1/runs/{run_id}?wait=60")
        assert (status, ended["result"]["text"]) == (200, "It is fine.")
        assert (await program.ask("b", "GET", f"/agents/v1/runs/{run_id}"))[0] == 404


async def test_an_approval_is_decided_by_the_user_who_started_the_run(tmp_path: Path) -> None:
    @treadle.tool(effect="external")
    def send_letter(to: str) -> str:
        """Send a letter."""
        return f"sent to {to}"

    clerk = treadle.Agent(name="helper", model="fake/m", tools=[send_letter], approvals={"default": "ask"})

    def mount(app: FastAPI, engine: treadle.Engine) -> None:
        engine.add_agents(clerk)
        app.mount("/agents", treadle.asgi(engine, authenticate=find_user))

    asks = calls(fragment(0, "call_1", "send_letter", '{"to": "Ann"}'))
    async with serve_program(tmp_path, asks, mount=mount) as program:
        _, begun = await program.ask("a", "POST", "/agents/v1/agents/helper/runs", {"message": "Write to Ann."})
        while not (found := (await program.ask("a", "GET", "/agents/v1/approvals"))[1]["items"]):
            pass
        path, decision = f"/agents/v1/approvals/{found[0]['approval_id']}", {"decision": "approve", "by": "bob"}
        assert (await program.ask("b", "POST", path, {"decision": "approve"}))[0] == 404
        status, shown = await program.ask("a", "POST", path, decision)
        assert status == 200, shown
        _, ended = await program.ask("a", "GET", f"/agents/v1/runs/{begun['run_id']}?wait=60")
        assert ended["outcome"] == "completed"


async def test_users_see_only_the_agents_of_the_program_and_administer_nothing(tmp_path: Path) -> None:
    agent = tmp_path / "agents" / "root" / "config.yaml"
    agent.parent.mkdir(parents=True)
    agent.write_text("name: root\nmodel: fake/m\ntools: [bash]\n")
    async with serve_program(tmp_path) as program:
        _, listed = await program.ask("a", "GET", "/agents/v1/agents")
        assert [each["agent"]["name"] for each in listed["items"]] == ["helper"]
        for name in ("root", "default"):
            body = {"message": "Go."}
            assert (await program.ask("a", "POST", f"/agents/v1/agents/{name}/runs", body))[0] == 404
        for method, path in (
            ("GET", "tokens"),
            ("POST", "tokens"),
            ("GET", "vault"),
            ("DELETE", "agents/helper"),
            ("GET", "system/doctor"),
            ("POST", "dashboard/links"),
        ):
            assert (await program.ask("a", method, f"/agents/v1/{path}", {}))[0] == 403, path
        for path in ("/agents/mcp", "/agents/metrics", "/agents/v1/nothing"):
            assert (await program.ask("a", "GET", path))[0] == 404, path
        for path in ("/agents/healthz", "/agents/v1/openapi.json", "/agents/v1/hooks/hook_1"):
            assert (await program.ask("", "POST", path))[0] == 401, path


async def test_an_agent_of_the_program_cannot_be_changed_with_a_token(tmp_path: Path) -> None:
    def mount(app: FastAPI, engine: treadle.Engine) -> None:
        app.mount("/agents", treadle.asgi(engine))

        @app.get("/token")
        async def make_token() -> str:  # pyright: ignore[reportUnusedFunction] -- a route
            access = mounted_app.access_engine(engine).context.access
            return (await access.create(CreateToken("admin", ("admin",)))).secret

    async with serve_program(tmp_path, mount=mount) as program:
        _, token = await program.ask("", "GET", "/token")
        bearer = {"Authorization": f"Bearer {token}"}
        assert (await program.ask("a", "GET", "/agents/v1/agents"))[0] == 401
        _, listed = await program.ask("", "GET", "/agents/v1/agents", **bearer)
        assert "helper" in [each["agent"]["name"] for each in listed["items"]]
        settings = {"name": "helper", "model": "fake/other"}
        for method, path, body in (
            ("PUT", "agents/helper", settings),
            ("POST", "agents", settings),
            ("DELETE", "agents/helper", None),
        ):
            status, problem = await program.ask("", method, f"/agents/v1/{path}", body, **bearer)
            assert (status, problem["type"]) == (409, "urn:treadle:problem:InvalidState"), path
        assert (await program.run("", **bearer))["outcome"] == "completed"
        assert (await program.ask("", "GET", "/agents/healthz"))[0] == 200


@pytest.mark.parametrize("name", ["local", "LOCAL", "tok_0123", "bob/alice", "telegram:1", "", " ", "x" * 200, "ü"])
async def test_a_name_that_belongs_to_others_or_to_no_one_is_refused(tmp_path: Path, name: str) -> None:
    def mount(app: FastAPI, engine: treadle.Engine) -> None:
        app.mount("/agents", treadle.asgi(engine, authenticate=lambda _: name))

    async with serve_program(tmp_path, mount=mount) as program:
        status, problem = await program.ask("a", "GET", "/agents/v1/runs")
        assert (status, problem["type"].rpartition(":")[2]) in ((403, "WrongUser"), (401, "Unauthorized"))


async def test_an_authentication_that_fails_lets_no_one_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_: Request) -> str | None:
        raise HTTPException(402, "Pay first.")

    async def fail(_: Request) -> str | None:
        raise ValueError("the database of the program is away")

    async def find_later(request: Request) -> str | None:
        await asyncio.sleep(0)
        return find_user(request)

    def mount(app: FastAPI, engine: treadle.Engine) -> None:
        app.mount("/refusing", treadle.asgi(engine, authenticate=refuse))
        app.mount("/failing", treadle.asgi(engine, authenticate=fail))
        app.mount("/number", treadle.asgi(engine, authenticate=lambda _: 7))  # pyright: ignore[reportArgumentType]
        app.mount("/async", treadle.asgi(engine, authenticate=find_later))

    async with serve_program(tmp_path, mount=mount) as program:
        status, problem = await program.ask("a", "GET", "/refusing/v1/runs")
        assert (status, problem["detail"]) == (402, "Pay first.")
        assert (await program.ask("a", "GET", "/failing/v1/runs"))[0] == 500
        assert (await program.ask("a", "GET", "/number/v1/runs"))[0] == 500
        assert "return the name of the user as a str" in caplog.text
        assert (await program.ask("a", "GET", "/async/v1/runs"))[0] == 200
        assert (await program.ask("", "GET", "/async/v1/runs"))[0] == 401


async def test_pages_of_other_sites_and_unknown_hosts_are_refused(tmp_path: Path) -> None:
    def mount(app: FastAPI, engine: treadle.Engine) -> None:
        allowed = {"authenticate": find_user, "hosts": ["app.example"], "origins": ["https://other.example"]}
        app.mount("/agents", treadle.asgi(engine, **allowed))  # pyright: ignore[reportArgumentType]
        app.mount("/open", treadle.asgi(engine, authenticate=find_user, hosts=["*"]))

    async with serve_program(tmp_path, mount=mount) as program:
        path = "/agents/v1/agents"
        for headers, status in (
            ({"Host": "app.example"}, 200),
            ({"Host": "evil.example"}, 421),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec_Fetch_Site": "cross-site"}, 403),
            ({"Sec_Fetch_Site": "same-site"}, 403),
            ({"Sec_Fetch_Site": "same-origin"}, 200),
            ({"Sec_Fetch_Site": "cross-site", "Origin": "https://other.example"}, 200),
        ):
            assert (await program.ask("a", "GET", path, **headers))[0] == status, headers
        assert (await program.ask("a", "GET", "/open/v1/agents", Host="any.example"))[0] == 200
        async with program.open("a", "GET", path) as response:
            assert "sandbox" in response.headers["content-security-policy"]


async def test_what_the_program_notes_about_a_request_is_not_taken_for_ours(tmp_path: Path) -> None:
    def mount(app: FastAPI, engine: treadle.Engine) -> None:
        @app.middleware("http")
        async def note(request: Request, answer: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
            request.state.principal = request.state.cookie = request.state.hold = "alice"
            return await answer(request)

        app.mount("/agents", treadle.asgi(engine))
        app.mount("/users", treadle.asgi(engine, authenticate=lambda request: request.state.principal))

    async with serve_program(tmp_path, mount=mount) as program:
        assert (await program.ask("", "GET", "/agents/v1/runs"))[0] == 401
        _, found = await program.ask("", "GET", "/agents/v1/dashboard/identity")
        assert found == {"identity": None}
        _, found = await program.ask("", "GET", "/users/v1/dashboard/identity")
        assert (found["identity"]["user"], found["identity"]["is_owner"]) == ("alice", False)


async def test_without_an_open_engine_requests_get_503(tmp_path: Path) -> None:
    app = FastAPI()
    engine = treadle.Engine(home=tmp_path)
    app.mount("/agents", treadle.asgi(engine, authenticate=find_user))
    async with listen(app) as program:
        status, problem = await program.ask("a", "GET", "/agents/v1/runs")
        assert (status, problem["type"]) == (503, "urn:treadle:problem:EngineClosed")
        assert "async with" in problem["detail"]


async def test_as_an_application_of_its_own_it_opens_the_engine(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda _: says("It is fine.")) as endpoint:
        engine = make_engine(tmp_path, endpoint.url)
        app = treadle.asgi(engine, authenticate=find_user)
        for _ in range(2):
            async with listen(app) as program:
                assert (await program.run("a", under=""))["outcome"] == "completed"
                async with program.open("", "GET", "/runs") as response:
                    assert (response.status, response.content_type) == (200, "text/html")
            with pytest.raises(UsageError):
                await engine.run(HELPER, "It is closed again.")


async def test_a_websocket_is_refused(tmp_path: Path) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await treadle.asgi(treadle.Engine(home=tmp_path))({"type": "websocket", "path": "/v1/events"}, receive, send)
    assert sent == ["websocket.close"]


def test_administrators_are_no_users_of_a_program(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="access tokens"):
        treadle.asgi(treadle.Engine(home=tmp_path), authenticate=find_user, scopes=["admin"])
