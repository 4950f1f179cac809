"""A token that serves several people keeps them apart: their memories, their sessions, their runs."""

from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.http.served_home import ServedHome
from tests.surfaces.http.test_owners import CANARY, home, in_time, prompts, say
from treadle.domain.access import Scope
from treadle.operations.token_service import NewToken

FACT, QUESTION = f"My dog is called {CANARY}.", "What is my dog called?"


async def mint(server: ServedHome, *scopes: Scope, multi_user: bool = True, **more: Any) -> str:
    wanted = NewToken("backend", scopes or ("run",), multi_user=multi_user, **more)
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
def test_the_words_of_one_visitor_are_not_recalled_for_another(tmp_path: Path, send: Any, multi_user: bool) -> None:
    async def perform() -> None:
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

    in_time(perform())


@pytest.mark.parametrize("send", [say, complete, respond])
def test_a_request_that_names_no_one_remembers_and_recalls_nothing(tmp_path: Path, send: Any) -> None:
    async def perform() -> None:
        async with home(tmp_path) as server:
            token = await mint(server)
            await send(server, token, FACT)
            before = len(server.endpoint.requests)
            await send(server, token, QUESTION)
            assert CANARY not in prompts(server, before)
            assert await server.engine.context.memory.list("keen") == []

    in_time(perform())


@pytest.mark.parametrize("scopes", [("run",), ("read", "run"), ("read", "run", "approve")])
def test_a_session_of_a_visitor_is_continued_only_in_their_name(tmp_path: Path, scopes: tuple[Scope, ...]) -> None:
    async def perform() -> None:
        async with home(tmp_path) as server:
            token = await mint(server, *scopes)
            run = await say(server, token, FACT, user="one")
            session = {"session_id": run["session_id"]}
            for body in ({}, {"user": "two"}, {"user": "on"}):
                reply = await server.ask(
                    "POST", "/v1/agents/keen/runs", {"message": "Hi.", **session, **body}, token
                )
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

    in_time(perform())


def test_the_header_names_the_visitor_of_any_request(tmp_path: Path) -> None:
    async def perform() -> None:
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

    in_time(perform())


def test_a_visitor_cannot_take_the_name_of_another_user(tmp_path: Path) -> None:
    async def perform() -> None:
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

    in_time(perform())


def test_folders_of_the_machine_are_shown_to_administrators_alone(tmp_path: Path) -> None:
    async def perform() -> None:
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

    in_time(perform())
