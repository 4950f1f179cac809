"""A token that serves several people keeps them apart: their memories, their sessions, their runs."""

from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.http.served_home import ServedHome
from tests.surfaces.http.test_owners import CANARY, home, prompts, say
from treadle.domain.access import Principal, Scope
from treadle.domain.errors import UsageError
from treadle.domain.ids import TokenId
from treadle.domain.users import make_client_user
from treadle.operations import inbound_webhooks, memories, schedules
from treadle.operations.automation import NewHook, NewSchedule
from treadle.ports.access import CreateToken

FACT, QUESTION = f"My dog is called {CANARY}.", "What is my dog called?"


async def mint(server: ServedHome, *scopes: Scope, multi_user: bool = True, **more: Any) -> str:
    wanted = CreateToken("backend", scopes or ("run",), multi_user=multi_user, **more)
    return (await server.engine.context.access.create(wanted)).secret


async def complete(server: ServedHome, token: str, message: str, **body: Any) -> None:
    sent = {"model": "keen", "messages": [{"role": "user", "content": message}], **body}
    reply = await server.ask("POST", "/v1/chat/completions", sent, token)
    assert reply.status == 200, reply


async def respond(server: ServedHome, token: str, message: str, **body: Any) -> None:
    reply = await server.ask("POST", "/v1/responses", {"model": "keen", "input": message, **body}, token)
    assert reply.status == 200, reply


@pytest.mark.parametrize("send", [say, complete, respond])
@pytest.mark.parametrize("multi_user", [True, False])
async def test_the_words_of_one_visitor_are_not_recalled_for_another(
    tmp_path: Path, send: Any, multi_user: bool
) -> None:
    async with home(tmp_path) as server:
        token = await mint(server, multi_user=multi_user)
        await send(server, token, FACT, user="visitor 1 / with odd characters: é")
        for body, expected in (
            ({"user": "two"}, False),
            ({"user": "visitor 1 / with odd characters: é"}, True),
        ):
            before = len(server.endpoint.requests)
            await send(server, token, QUESTION, **body)
            assert (CANARY in prompts(server, before)) is expected


@pytest.mark.parametrize("send", [say, complete, respond])
async def test_a_request_that_names_no_one_remembers_and_recalls_nothing(tmp_path: Path, send: Any) -> None:
    async with home(tmp_path) as server:
        token = await mint(server)
        await send(server, token, FACT)
        before = len(server.endpoint.requests)
        await send(server, token, QUESTION)
        assert CANARY not in prompts(server, before)
        assert await server.engine.context.memory.list("keen") == []


@pytest.mark.parametrize("scopes", [("run",), ("read", "run"), ("read", "run", "approve")])
async def test_a_session_of_a_visitor_is_continued_only_in_their_name(
    tmp_path: Path, scopes: tuple[Scope, ...]
) -> None:
    async with home(tmp_path) as server:
        token = await mint(server, *scopes)
        run = await say(server, token, FACT, user="one")
        session = {"session_id": run["session_id"]}
        for body in ({}, {"user": "two"}, {"user": "on"}):
            reply = await server.ask("POST", "/v1/agents/keen/runs", {"message": "Hi.", **session, **body}, token)
            assert reply.status == 404, body
            said, named = [{"role": "user", "content": "Hi."}], {"treadle_session": run["session_id"]}
            chat = {"model": "keen", "messages": said, "metadata": named, **body}
            assert (await server.ask("POST", "/v1/chat/completions", chat, token)).status == 404
        for path, body in (
            ("messages", {"message": "Hi."}),
            ("fork", {"message": "Hi."}),
            ("answers/c1", {"text": "Hi."}),
        ):
            reply = await server.ask("POST", f"/v1/runs/{run['run_id']}/{path}", body, token)
            assert reply.status in (403, 404), (path, reply)
        again = {"message": "Hi.", "resumed_from": run["run_id"]}
        assert (await server.ask("POST", "/v1/agents/keen/runs", again, token)).status == 404
        await say(server, token, "Hi.", user="one", **session)


async def test_the_header_names_the_visitor_of_any_request(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        token = await mint(server, "read", "run")
        run = await say(server, token, FACT, user="one")
        path = f"/v1/runs/{run['run_id']}"
        for name, status in (("one", 200), ("two", 404)):
            reply = await server.ask("GET", path, token=token, X_Treadle_User=name)
            assert reply.status == status
            listed = await server.ask("GET", "/v1/sessions", token=token, X_Treadle_User=name)
            assert len(listed.json["items"]) == (name == "one")
        assert (await server.ask("GET", path, token=token)).status == 200, "the backend can poll its runs by id"
        both = {"message": "Hi.", "user": "two"}
        reply = await server.ask("POST", "/v1/agents/keen/runs", both, token, X_Treadle_User="one")
        assert (reply.status, "names two users" in str(reply.json)) == (400, True)


async def test_a_visitor_cannot_take_the_name_of_another_user(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        await say(server, await mint(server, multi_user=False, user="local"), FACT)
        one, other = await mint(server), await mint(server)
        await say(server, one, FACT, user="ada")
        for token, name in ((one, "local"), (other, "ada"), (one, "../local"), (one, ""), (other, "ada/ada")):
            before = len(server.endpoint.requests)
            body = {"message": QUESTION, "wait": 30, "user": name}
            reply = await server.ask("POST", "/v1/agents/keen/runs", body, token)
            assert reply.status in (200, 400, 422), reply
            assert CANARY not in prompts(server, before)


async def test_folders_of_the_machine_are_shown_to_administrators_alone(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        token = await mint(server, "read", "run", multi_user=False, user="local")
        admin = await mint(server, "admin", multi_user=False, user="local")
        run = await say(server, token, FACT)
        paths = ("/v1/sessions", f"/v1/sessions/{run['session_id']}", "/v1/memory")
        for path in paths:
            assert str(server.home.path) not in str((await server.ask("GET", path, token=token)).json)
            assert str(server.home.path) in str((await server.ask("GET", path, token=admin)).json)
        folder = (await server.ask("GET", paths[1], token=admin)).json["workspace"]["id"]
        for path in ("/v1/sessions", "/v1/memory"):
            guess = f"{path}?workspace={folder}"
            assert (await server.ask("GET", guess, token=token)).status == 403
            assert len((await server.ask("GET", guess, token=admin)).json["items"]) == 1


CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/runs/{run}/messages", {"message": "Hi."}),
    ("POST", "/v1/runs/{run}/interrupt", {}),
    ("POST", "/v1/runs/{run}/resume", {}),
    ("POST", "/v1/runs/{run}/fork", {"message": "Hi."}),
    ("POST", "/v1/runs/{run}/answers/c1", {"text": "Hi."}),
    ("POST", "/v1/approvals/{approval}", {"decision": "deny"}),
    ("PATCH", "/v1/sessions/{session}", {"title": "Mine"}),
    ("PUT", "/v1/sessions/{session}/model", {"model": None}),
    ("POST", "/v1/runs/{run}/cancel", {}),
    ("POST", "/v1/responses/resp_{run}/cancel", None),
)
"""Requests that change a run or a session, the last ones end it."""


async def test_a_run_or_session_of_a_visitor_is_changed_only_in_their_name(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        token = await mint(server, "read", "run", "approve")
        waiting = {"message": "Go.", "user": "one"}
        run = (await server.ask("POST", "/v1/agents/asking/runs", waiting, token)).json
        await server.until(run["run_id"], "waiting")
        [approval] = (await server.ask("GET", "/v1/approvals", token=token)).json["items"]
        names = {"run": run["run_id"], "session": run["session_id"], "approval": approval["approval_id"]}
        for header in ({}, {"X_Treadle_User": "two"}):
            for method, path, body in CHANGES:
                reply = await server.ask(method, path.format(**names), body, token, **header)
                assert reply.status == 404, (header, path, reply)
        shown = (await server.ask("GET", f"/v1/runs/{run['run_id']}", token=token)).json
        assert (shown["status"], shown["waiting_for"]) == ("waiting", "approval")
        for method, path, body in CHANGES[-4:-1]:
            reply = await server.ask(method, path.format(**names), body, token, X_Treadle_User="one")
            assert reply.status in (200, 202), (path, reply)


async def test_a_visitor_who_is_not_named_cannot_be_given_a_memory_a_schedule_or_a_webhook(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        token = await mint(server)
        fact = {"agent": "keen", "text": FACT}
        reply = await server.ask("POST", "/v1/memory", fact, token)
        assert (reply.status, "names none of them" in str(reply.json)) == (400, True)
        assert (await server.ask("POST", "/v1/memory", fact, token, X_Treadle_User="one")).status == 201
        everything = frozenset[Scope](("read", "run", "approve", "admin"))
        nameless = Principal(TokenId("tok_1"), "old", everything, multi_user=True)
        context = server.engine.context.for_caller(nameless, None)
        for create, request in (
            (schedules.create_schedule, NewSchedule("keen", "Hi.", "1h")),
            (inbound_webhooks.create_hook, NewHook("hook", "keen", "Hi.")),
            (memories.add_memory, memories.AddMemory("keen", FACT)),
        ):
            with pytest.raises(UsageError, match="names none of them"):
                await create(context, request)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("multi_user", [True, False])
async def test_a_ticket_for_a_visitor_opens_the_stream_of_one_run(tmp_path: Path, multi_user: bool) -> None:
    async with home(tmp_path) as server:
        token = await mint(server, "read", "run", multi_user=multi_user)
        run = await say(server, token, FACT, user="one")
        for path, name, status in (
            ("/v1/events", "one", 400),
            ("/v1/agents/keen/events", "one", 400),
            (f"/v1/runs/{run['run_id']}/events", "one", 201),
            ("/v1/events", None, 400 if multi_user else 201),
        ):
            header = {} if name is None else {"X_Treadle_User": name}
            reply = await server.ask("POST", "/v1/stream-tickets", {"path": path}, token, **header)
            assert reply.status == status, (path, name, reply)


async def test_an_idempotency_key_belongs_to_one_visitor(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        token, found = await mint(server), list[str]()
        for name in ("one", "two", "one"):
            reply = await server.ask(
                "POST",
                "/v1/agents/keen/runs",
                {"message": "Hi.", "wait": 30},
                token,
                X_Treadle_User=name,
                Idempotency_Key="the-key",
            )
            assert reply.status == 200, reply
            found.append(reply.json["run_id"])
        assert (found[0] == found[2], found[0] == found[1]) == (True, False)


async def test_the_header_is_read_as_utf_8_and_has_a_length(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        token = await mint(server, "read", "run")
        run = await say(server, token, FACT, user="Zoë 🐕")
        path = f"/v1/runs/{run['run_id']}"
        assert (await server.ask("GET", path, token=token, X_Treadle_User="Zoë 🐕")).status == 200
        long = await server.ask("GET", path, token=token, X_Treadle_User="z" * 1001)
        assert (long.status, "too long" in str(long.json)) == (400, True)
        assert (await server.ask("GET", path, token=token, X_Treadle_User="z" * 1000)).status == 404


def test_a_visitor_cannot_take_the_digest_of_another_as_a_name() -> None:
    victim = make_client_user("backend", "a name with spaces")
    assert victim.startswith("backend")
    digest = victim.removeprefix("backend")[1:]
    assert digest.startswith("sha256-")
    assert make_client_user("backend", digest) != victim
    assert make_client_user("backend", "ada") == victim.replace(digest, "ada")


async def test_a_token_for_several_people_is_not_one_of_an_administrator(tmp_path: Path) -> None:
    async with home(tmp_path) as server:
        with pytest.raises(UsageError, match="remove the scope admin, or the service of several people"):
            await mint(server, "admin", "run")
        wanted = {"name": "backend", "scopes": ["admin"], "multi_user": True}
        assert (await server.ask("POST", "/v1/tokens", wanted)).status == 400


@pytest.mark.parametrize(("scopes", "inherits"), [(("read", "run"), False), (("read", "run", "approve"), True)])
async def test_a_token_inherits_the_folder_of_a_session_if_it_can_be_asked_or_owns_it(
    tmp_path: Path, scopes: tuple[Scope, ...], inherits: bool
) -> None:
    async with home(tmp_path) as server:
        folder = tmp_path / "project"
        folder.mkdir()
        agent = server.home.agent("keen")
        started = await server.engine.run(agent, "Hi.", workspace=str(folder), user="local")
        shown = f"/v1/sessions/{started.session_id}"
        for user, expected in (("backend", inherits), ("local", True)):
            token = await mint(server, *scopes, multi_user=False, user=user, visibility="all")
            await say(server, token, "Again.", session_id=started.session_id)
            works_in = (await server.ask("GET", shown)).json["workspace"]["folder"]
            assert (works_in == str(folder)) is expected, (user, works_in)
            await server.engine.run(agent, "Back.", session=started.session_id, workspace=str(folder))
