"""The data of one user never reaches another: not in prompts, lists, streams, errors or numbers."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.fake_endpoint import Request, says
from tests.surfaces.http.served_home import Reply, ServedHome, serve_home, wants_a_file
from tests.surfaces.http.sse import Wire
from treadle.domain.access import Scope, Visibility
from treadle.domain.ids import RunId
from treadle.ports.access import CreateToken

CANARY = "Zanzibar"
"""A word that only Alice says."""
KEEN = "retry: {attempts: 0}\nmemory: {embedder: none}\ntools: [memory_search, memory_save, journal_write]\n"


async def mint(
    server: ServedHome, *scopes: Scope, user: str | None = None, visibility: Visibility | None = None
) -> str:
    wanted = CreateToken("someone", scopes, user=user, visibility=visibility)
    return (await server.engine.context.access.create(wanted)).secret


def answer(request: Request) -> Any:
    """A model that writes a file if it may, and otherwise answers with its message."""
    said = request.json["messages"]
    if any(tool["function"]["name"] == "write_file" for tool in request.json.get("tools", ())):
        return wants_a_file()
    return says(f"You said: {said[-1]['content']}" if isinstance(said[-1]["content"], str) else "Done.")


@asynccontextmanager
async def home(tmp_path: Path) -> AsyncGenerator[ServedHome, None]:
    """A server with the agents `keen`, which remembers, and `open`, which shares what it remembers."""
    async with serve_home(tmp_path, policy=answer) as server:
        for name, shared in (("keen", False), ("open", True)):
            folder = server.home.path / "agents" / name
            folder.mkdir()
            settings = KEEN.replace("none}", "none, shared: true}") if shared else KEEN
            (folder / "config.yaml").write_text(f"name: {name}\nmodel: fake/m\n{settings}")
        yield server


async def say(server: ServedHome, token: str, message: str, agent: str = "keen", **body: Any) -> Any:
    """Run an agent, and return the response to its caller."""
    sent = {"message": message, "wait": 30, **body}
    reply = await server.ask("POST", f"/v1/agents/{agent}/runs", sent, token)
    assert reply.status == 200, reply
    return reply.json


def prompts(server: ServedHome, since: int = 0) -> str:
    """All that models were sent."""
    return json.dumps([request.json for request in server.endpoint.requests[since:]])


# ── The prompt ─────────────────────────────────────────────────────────────────────────────────────


async def test_messages_of_one_token_do_not_enter_the_prompt_of_another(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        alice, bob = await mint(server, "run"), await mint(server, "run")
        await say(server, alice, f"My dog is called {CANARY}.")
        before = len(server.endpoint.requests)
        run = await say(server, bob, "What is my dog called?")
        assert CANARY not in prompts(server, before)
        assert CANARY not in json.dumps(run)
        before = len(server.endpoint.requests)
        await say(server, alice, "What is my dog called?")
        assert CANARY in prompts(server, before), "its own user is reminded of it"


async def test_the_local_user_and_tokens_do_not_share_memories(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        alice, local = await mint(server, "run"), await mint(server, "run", user="local")
        await say(server, local, f"My dog is called {CANARY}.")
        before = len(server.endpoint.requests)
        await say(server, alice, "What is my dog called?")
        await say(server, server.token, "What is my dog called?")
        assert CANARY not in prompts(server, before)
        before = len(server.endpoint.requests)
        agent = server.engine.context
        await say(server, local, "What is my dog called?")
        assert CANARY in prompts(server, before)
        assert [line.owner for line in await agent.memory.list("keen", user="local")] == ["local"] * 2


async def test_an_agent_that_shares_its_memories_recalls_those_of_all_users(
    tmp_path: Path,
) -> None:
    async with home(tmp_path) as server:
        alice, bob = await mint(server, "run", user="alice"), await mint(server, "run", user="bob")
        await say(server, alice, f"My dog is called {CANARY}.", "open")
        before = len(server.endpoint.requests)
        await say(server, bob, "What is my dog called?", "open")
        assert CANARY in prompts(server, before)
        kept = await server.engine.context.memory.list("open")
        assert [line.owner for line in kept] == ["bob", "alice"]


async def test_tokens_of_one_user_share_sessions(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        phone, laptop = await mint(server, "run", user="alice"), await mint(server, "run", user="alice")
        run = await say(server, phone, f"My dog is called {CANARY}.")
        before = len(server.endpoint.requests)
        again = await say(server, laptop, "And what is its name?", session_id=run["session_id"])
        assert again["session_id"] == run["session_id"]
        await say(server, laptop, "What is my dog called?")
        assert prompts(server, before).count(CANARY) >= 2


async def test_a_run_belongs_to_the_owner_of_its_session(tmp_path: Path) -> None:
    """A token that sees all users and goes on in a session of another asks in that user's name."""

    async with home(tmp_path) as server:
        alice, anyone = await mint(server, "run", user="alice"), await mint(server, "read", "run", user="bob")
        await say(server, alice, f"My dog is called {CANARY}.")
        run = await say(server, alice, "Good morning, how are you today?")
        before = len(server.endpoint.requests)
        more = await say(server, anyone, "What is my dog called?", session_id=run["session_id"])
        assert more["owner"] == "alice"
        assert CANARY in prompts(server, before), "it is reminded of what its owner has said"
        fork = (await server.ask("POST", f"/v1/runs/{run['run_id']}/fork", {}, anyone)).json
        assert (await server.ask("GET", f"/v1/runs/{fork['run_id']}", token=anyone)).json["owner"] == "alice"
        own = await say(server, anyone, "Hello there.")
        assert own["owner"] == "bob"


# ── Every route ────────────────────────────────────────────────────────────────────────────────────


class OtherUserIds(NamedTuple):
    """Ids of another user, or such as never were."""

    run_id: str
    session_id: str
    approval_id: str
    call_id: str = "call_1"

    def path(self, template: str) -> str:
        values = {**self._asdict(), "response": f"resp_{self.run_id}", "name": "keen"}
        return template.format_map(
            {
                "memory_id": "mem_0",
                "step": "1",
                "version": "1",
                "label": "x",
                "path": "x",
                "other_id": self.run_id,
                **values,
            }
        )


MISSING_IDS = OtherUserIds(f"run_{'0' * 32}", f"ses_{'0' * 32}", f"apr_{'0' * 32}")
CHAT = {"model": "keen", "messages": [{"role": "user", "content": "Hello."}]}
ASKED: dict[str, Any] = {
    "PUT /v1/sessions/{session_id}/mode": {"mode": "ask"},
    "PUT /v1/runs/{run_id}/feedback": {"score": 1},
    "POST /v1/runs/{run_id}/messages": {"message": "Hello."},
    "POST /v1/runs/{run_id}/answers/{call_id}": {"text": "Yes."},
    "POST /v1/runs/{run_id}/results/{call_id}": {"content": "Yes."},
    "POST /v1/approvals/{approval_id}": {"decision": "approve"},
    "PATCH /v1/sessions/{session_id}": {"title": "Mine"},
    "PUT /v1/sessions/{session_id}/model": {"model": None},
}
"""What is sent to routes that name something of a user: whatever the method, it must not be there."""
OF_NOBODY = {
    "GET /v1/agents",
    "GET /v1/evaluations",
    "GET /v1/evaluations/{evaluation_id}",
    "GET /v1/suites",
    "GET /v1/suites/{name}",
    "GET /v1/agents/{name}",
    "GET /v1/agents/{name}/versions",
    "GET /v1/agents/{name}/versions/{version}",
    "GET /v1/agents/{name}/versions/{version}/diff",
    "GET /v1/models",
    "GET /v1/models/{name}",
    "POST /v1/hooks/{hook_id}",
    "POST /v1/channels/{channel}/webhook",
    "GET /v1/skills",
    "GET /v1/skills/{name}",
    "DELETE /v1/dashboard/sign-in",
    "DELETE /v1/dashboard/sign-ins",
    "GET /v1/dashboard/identity",
    "POST /v1/dashboard/sign-in",
    "GET /v1/system",
    "GET /v1/system/guards",
    "GET /v1/system/models",
}
"""Routes that tell nothing of any user; what comes to a hook is signed."""
LISTS = {
    "GET /v1/runs",
    "GET /v1/sessions",
    "GET /v1/approvals",
    "GET /v1/questions",
    "GET /v1/feedback",
    "GET /v1/overview",
    "GET /v1/run-sums",
    "GET /v1/memory",
    "GET /v1/usage",
    "GET /v1/usage/series",
    "GET /v1/search",
}
"""Routes that leave out what belongs to others."""
STREAMS = {"GET /v1/events", "GET /v1/agents/{name}/events"}
IN_A_SESSION = {
    "POST /v1/agents/{name}/ag-ui",
    "POST /v1/agents/{name}/runs",
    "POST /v1/chat/completions",
    "POST /v1/responses",
}
"""Routes that go on in a session that the body names."""
OWN_ALONE = {"POST /v1/memory", "POST /v1/stream-tickets", "GET /metrics"}


def is_about_something_of_a_user(operation: str) -> bool:
    return any(name in operation for name in ("{run_id}", "{session_id}", "{approval_id}", "{response}"))


async def operations(server: ServedHome) -> dict[str, tuple[Scope, ...]]:
    """Every operation that the document describes, and the scopes of which it needs one."""
    scopes = {f"{route.method} {route.path}": route.scopes for route in server.app.routes}
    document = (await server.ask("GET", "/v1/openapi.json")).json
    found = [f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods]
    assert len(found) > 60
    return {operation: scopes[operation] for operation in found}


async def make_data_of_alice(server: ServedHome, token: str) -> OtherUserIds:
    """A run that has ended, one that waits for an approval, and what was remembered of it."""
    run = await say(server, token, f"My dog is called {CANARY}.")
    sent = {"message": f"Write {CANARY} into a file."}
    waiting = (await server.ask("POST", "/v1/agents/asking/runs", sent, token)).json
    await server.until(waiting["run_id"], "waiting")
    await server.ask("PUT", f"/v1/runs/{run['run_id']}/feedback", {"score": 1, "note": CANARY}, token)
    [approval] = (await server.ask("GET", f"/v1/approvals?run_id={waiting['run_id']}")).json["items"]
    return OtherUserIds(run["run_id"], run["session_id"], approval["approval_id"])


def mask_ids(reply: Reply, theirs: OtherUserIds) -> tuple[int, str]:
    """Return a response without the requested ids."""
    body = reply.body.decode()
    for value in (*theirs[:3], theirs.run_id.removeprefix("run_")):
        body = body.replace(value, "ID")
    return reply.status, body


async def test_for_a_limited_token_nothing_of_other_users_exists_on_any_route(tmp_path: Path) -> None:
    """A new route without an entry here fails this test."""

    async with home(tmp_path) as server:
        scopes: tuple[Scope, ...] = ("read", "run", "approve")
        alice, bob = [await mint(server, *scopes, visibility="own") for _ in range(2)]
        theirs = await make_data_of_alice(server, alice)
        undecided: list[str] = []
        for operation, needed in (await operations(server)).items():
            method, path = operation.split(" ")
            if needed == ("admin",):  # whatever it names
                reply = await server.ask(method, theirs.path(_fill_path(path)), {}, bob)
                assert reply.status == 403, (operation, reply)
            elif is_about_something_of_a_user(operation):
                body = ASKED.get(operation, {} if method == "POST" else None)
                found = await server.ask(method, theirs.path(path), body, bob)
                missing = await server.ask(method, MISSING_IDS.path(path), body, bob)
                assert mask_ids(found, theirs) == mask_ids(missing, MISSING_IDS), operation
                assert found.status == 404, (operation, found)
            elif operation not in OF_NOBODY | LISTS | STREAMS | IN_A_SESSION | OWN_ALONE:
                undecided.append(operation)
        assert undecided == [], "whose is what these routes tell?"
        assert (await server.ask("GET", f"/v1/runs/{theirs.run_id}", token=alice)).status == 200


def _fill_path(path: str) -> str:
    for name in ("token_id", "schedule_id", "hook_id", "webhook_id", "channel"):
        path = path.replace("{" + name + "}", "x")
    return path


async def test_lists_leave_out_data_of_other_users(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        scopes: tuple[Scope, ...] = ("read", "run")
        alice, bob = [await mint(server, *scopes, visibility="own") for _ in range(2)]
        theirs = await make_data_of_alice(server, alice)
        own = await say(server, bob, "Hello.")
        filters = {
            "/v1/runs": (f"?session_id={theirs.session_id}", f"?cursor={theirs.run_id}", "?agent=keen", ""),
            "/v1/sessions": (f"?cursor={theirs.session_id}", ""),
            "/v1/approvals": ("",),
            "/v1/questions": ("",),
            "/v1/feedback": ("",),
            "/v1/overview": ("",),
            "/v1/run-sums": ("", f"?text={CANARY}"),
            "/v1/memory": ("", "?agent=keen", f"?agent=keen&query=dog%20{CANARY}"),
            "/v1/search": (f"?text={CANARY}", "?text=Hello"),
            "/v1/usage/series": ("?by=token", "?by=agent", ""),
            "/v1/usage": ("?by=token", "?by=agent", "?by=day", "?by=model"),
        }
        assert {f"GET {path}" for path in filters} == LISTS
        for path, asked in filters.items():
            for query in asked:
                reply = await server.ask("GET", path + query, token=bob)
                assert reply.status == 200, reply
                told = reply.body.decode()
                assert not any(each in told for each in (CANARY, *theirs[:3])), (path, query)
                if path == "/v1/usage":
                    assert sum(line["runs"] for line in reply.json["items"]) == 1
        runs = (await server.ask("GET", "/v1/runs", token=bob)).json["items"]
        assert [run["run_id"] for run in runs] == [own["run_id"]]
        assert (await server.ask("GET", f"/v1/runs?cursor={theirs.run_id}", token=bob)).json["items"] == []
        assert (await server.ask("GET", "/metrics", token=bob)).status == 404
        everyone = (await server.ask("GET", "/v1/runs")).json["items"]
        assert {run["owner"] for run in everyone} > {runs[0]["owner"]}


async def test_streams_leave_out_data_of_other_users(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        alice, bob = [await mint(server, "read", "run", visibility="own") for _ in range(2)]
        await say(server, alice, f"My dog is called {CANARY}.")
        for path in ("/v1/events", "/v1/agents/keen/events"):
            wire = await Wire.open(server.port, f"{path}?after=0", bob)
            await say(server, alice, f"{CANARY} barks.")
            own = await say(server, bob, "Hello.")
            told: list[Any] = []
            async with aclosing(wire.events()) as events:
                async for event in events:
                    told.append(event.data)
                    if event.type == "run_end" and event.data["run_id"] == own["run_id"]:
                        break
            wire.writer.close()
            assert CANARY not in json.dumps(told), path
            [record] = await server.engine.service.runs(limit=1)
            assert {each["run_id"] for each in told} <= {
                run.origin.run_id for run in await server.engine.service.runs() if run.owner == record.owner
            }


async def test_a_session_of_another_user_cannot_be_continued(tmp_path: Path) -> None:
    """It looks like one that never was, on every route that takes one; nor can such a token name a new one."""

    async with home(tmp_path) as server:
        alice, bob = await mint(server, "run"), await mint(server, "run")
        run = await say(server, alice, f"My dog is called {CANARY}.")
        theirs = OtherUserIds(run["run_id"], run["session_id"], "apr_x")
        bodies: dict[str, Callable[[OtherUserIds], dict[str, Any]]] = {
            "POST /v1/agents/{name}/ag-ui": lambda ids: {
                "threadId": ids.session_id,
                "runId": "run",
                "messages": [{"id": "1", "role": "user", "content": "Hello."}],
            },
            "POST /v1/agents/{name}/runs": lambda ids: {"message": "Hello.", "session_id": ids.session_id},
            "POST /v1/chat/completions": lambda ids: {**CHAT, "metadata": {"treadle_session": ids.session_id}},
            "POST /v1/responses": lambda ids: {
                "model": "keen",
                "input": "Hello.",
                "conversation": ids.session_id,
            },
        }
        assert set(bodies) == IN_A_SESSION
        for operation, body in bodies.items():
            path = operation.split(" ")[1].format(name="keen")
            found = await server.ask("POST", path, body(theirs), bob)
            missing = await server.ask("POST", path, body(MISSING_IDS), bob)
            assert (found.status, mask_ids(found, theirs)) == (404, mask_ids(missing, MISSING_IDS)), operation
        sent = {"model": "keen", "input": "Hello.", "previous_response_id": f"resp_{theirs.run_id}"}
        assert (await server.ask("POST", "/v1/responses", sent, bob)).status == 404
        assert len(await server.engine.service.runs()) == 1
        await server.engine.context.retention.delete_session(theirs.session_id, "a person")  # pyright: ignore[reportArgumentType] -- an id
        gone = await server.ask("GET", f"/v1/responses/resp_{theirs.run_id}", token=bob)
        never = await server.ask("GET", f"/v1/responses/resp_{MISSING_IDS.run_id}", token=bob)
        assert mask_ids(gone, theirs) == mask_ids(never, MISSING_IDS)


# ── Memories ───────────────────────────────────────────────────────────────────────────────────────


async def test_memory_is_that_of_the_tokens_user_and_only_an_administrator_names_another(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        alice = await mint(server, "read", "run", user="alice")
        sent = {"agent": "keen", "text": "Likes tea."}
        assert (await server.ask("POST", "/v1/memory", sent, alice)).status == 201
        assert (await server.ask("POST", "/v1/memory", {**sent, "user": "bob"}, alice)).status == 403
        assert (await server.ask("POST", "/v1/memory", {**sent, "user": "bob"})).status == 201
        assert (await server.ask("GET", "/v1/memory?user=bob", token=alice)).status == 403
        for query, owners in (("", {"alice", "bob"}), ("?user=bob", {"bob"}), ("?user=carol", set[str]())):
            found = (await server.ask("GET", f"/v1/memory{query}")).json["items"]
            assert {line["owner"] for line in found} == owners
        own = (await server.ask("GET", "/v1/memory", token=alice)).json["items"]
        assert [line["owner"] for line in own] == ["alice"]
        moved = await server.ask("POST", "/v1/memory/assign", {"user": "carol", "from_user": "alice"})
        assert moved.json == {"moved": 1, "merged": 0}
        assert (await server.ask("POST", "/v1/memory/assign", {"user": "carol"})).status == 400
        assert (await server.ask("POST", "/v1/memory/assign", {"user": "Local", "agent": "keen"})).status == 400


# ── Tokens ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_token_has_its_own_user_unless_created_for_another(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        made: list[Any] = []
        for body in (
            {"name": "a", "scopes": ["run"]},
            {"name": "b", "scopes": ["read", "run"]},
            {"name": "c", "scopes": ["run"], "visibility": "all", "user": "alice"},
            {"name": "d", "scopes": ["read"], "visibility": "own", "user": "local"},
        ):
            reply = await server.ask("POST", "/v1/tokens", body)
            assert reply.status == 201, reply
            made.append(reply.json)
        assert [token["visibility"] for token in made] == ["own", "all", "all", "own"]
        assert [token["user"] for token in made] == [made[0]["token_id"], made[1]["token_id"], "alice", "local"]
        again = {"name": "e", "scopes": ["run"], "user": made[0]["token_id"]}
        assert (await server.ask("POST", "/v1/tokens", again)).json["user"] == made[0]["token_id"]
        listed = {token["name"]: token["user"] for token in (await server.ask("GET", "/v1/tokens")).json["items"]}
        assert listed["c"] == "alice"
        for wrong in ("LOCAL", "tok_nobody", "telegram:1", "*", "", "a b", "-x", "ä"):
            reply = await server.ask("POST", "/v1/tokens", {"name": "x", "user": wrong})
            assert reply.status in (400, 422), (wrong, reply)
        both = {"name": "x", "scopes": ["admin"], "visibility": "own"}
        assert (await server.ask("POST", "/v1/tokens", both)).status == 400


# ── What runs begin ────────────────────────────────────────────────────────────────────────────────


async def test_schedules_and_inbound_webhooks_run_for_their_creator(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        access = server.engine.context.access
        admin = (await access.create(CreateToken("boss", ("admin",), user="boss"))).secret
        made = {"agent": "keen", "message": "Look.", "every": "1h"}
        assert (await server.ask("POST", "/v1/schedules", made, admin)).json["owner"] == "boss"
        hook = {"name": "h", "agent": "keen", "message": "{{payload}}"}
        assert (await server.ask("POST", "/v1/hooks", hook, admin)).json["owner"] == "boss"


async def test_the_owner_is_in_the_journal(tmp_path: Path) -> None:
    """Only where it is not the local user: older journals have the same bytes as before."""

    async with home(tmp_path) as server:
        alice, local = await mint(server, "run", user="alice"), await mint(server, "run", user="local")
        for token, owner in ((alice, "alice"), (local, None)):
            run = await say(server, token, "Hello.")
            [queued] = await server.engine.service.page(RunId(run["run_id"]), 0, 1)
            assert json.loads(queued.raw).get("owner") == owner
