"""A request with an idempotency key is performed once, whatever happens between the attempts."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.surfaces.http.served_home import serve_home
from tests.surfaces.http.sse import Wire
from treadle.operations.registry import all_operations
from treadle.surfaces.http.idempotency import SECRET_ROUTES

RUNS = "/v1/agents/one/runs"


async def test_the_same_key_gets_the_same_response(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        first = await server.ask("POST", RUNS, {"message": "x"}, Idempotency_Key="k")
        again = await server.ask("POST", RUNS, {"message": "x"}, Idempotency_Key="k")
        assert first.status == again.status == 202
        assert first.body == again.body
        assert "idempotent-replayed" not in first.headers
        assert again.headers["idempotent-replayed"] == "true"
        other = await server.ask("POST", RUNS, {"message": "y"}, Idempotency_Key="k")
        assert (other.status, other.problem) == (422, "KeyReused")
        elsewhere = await server.ask("POST", "/v1/agents/two/runs", {"message": "x"}, Idempotency_Key="k")
        theirs = await server.ask("POST", RUNS, {"message": "x"}, await server.mint(), Idempotency_Key="k")
        ids = {reply.json["run_id"] for reply in (first, again, elsewhere, theirs)}
        assert len(ids) == 3
        for key in ("", "x" * 256):
            assert (await server.ask("POST", RUNS, {"message": "x"}, Idempotency_Key=key)).status == 400, key


async def test_a_key_belongs_to_the_route_for_any_spelling_of_the_path(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        first = await server.ask("POST", RUNS, {"message": "x"}, Idempotency_Key="k")
        for path in (f"/{RUNS}", f"{RUNS}/", RUNS.replace("/runs", "//runs")):
            again = await server.ask("POST", path, {"message": "x"}, Idempotency_Key="k")
            assert (again.status, again.body) == (202, first.body), path


async def test_concurrent_requests_with_one_key_create_one_run(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        asked = [server.ask("POST", f"{RUNS}?wait=20", {"message": "x"}, Idempotency_Key="k") for _ in range(30)]
        replies = await asyncio.gather(*asked)
        assert {reply.status for reply in replies} == {200}
        assert len({reply.body for reply in replies}) == 1
        assert len((await server.ask("GET", "/v1/runs")).json["items"]) == 1
        assert len(server.endpoint.requests) == 1


async def test_a_failed_request_can_be_retried(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        assert (await server.ask("POST", "/v1/agents/one/state", {"state": "paused"})).status == 200
        refused = await server.ask("POST", RUNS, {"message": "x"}, Idempotency_Key="k")
        assert refused.problem == "InvalidState"
        await server.ask("POST", "/v1/agents/one/state", {"state": "running"})
        assert (await server.ask("POST", RUNS, {"message": "x"}, Idempotency_Key="k")).status == 202
        assert (await server.ask("POST", RUNS, {"message": "z"}, Idempotency_Key="k")).status == 422


FORGET = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as database:
    database.execute("UPDATE requests SET status = NULL, body = NULL")
"""


def forget_responses(path: Path) -> None:
    """Change the database in another process: closing it in this one would release the locks of the server."""
    subprocess.run([sys.executable, "-c", FORGET, path], check=True)


async def test_a_server_that_died_before_storing_the_response_acts_once(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        first = await server.ask("POST", RUNS, {"message": "x"}, Idempotency_Key="k")
        run_id = first.json["run_id"]
        await server.until(run_id, "completed")
        said = await server.ask("POST", f"/v1/runs/{run_id}/messages", {"message": "y"}, Idempotency_Key="k")
        assert said.status == 409
        await asyncio.to_thread(forget_responses, server.home.path / "treadle.db")
        again = await server.ask("POST", RUNS, {"message": "x"}, Idempotency_Key="k")
        assert again.json["run_id"] == run_id
        assert len((await server.ask("GET", "/v1/runs")).json["items"]) == 1


async def test_a_secret_is_shown_once_and_not_stored(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        secrets: list[str] = []
        for path in ("/v1/tokens", "/v1/tokens/", "/v1//tokens"):
            made = await server.ask("POST", path, {"name": "x"}, Idempotency_Key=path)
            assert made.status == 201, made
            secrets.append(made.json["token"])
            again = await server.ask("POST", path, {"name": "x"}, Idempotency_Key=path)
            assert (again.status, again.problem) == (409, "ShownOnce")
        hook = await server.ask("POST", "/v1/hooks", {"name": "x", "agent": "one", "message": "Go."})
        rotate = f"/v1/hooks/{hook.json['hook_id']}/rotate"
        secrets.append((await server.ask("POST", rotate, Idempotency_Key="k")).json["secret"])
        assert (await server.ask("POST", rotate, Idempotency_Key="k")).problem == "ShownOnce"
        for file in server.home.path.rglob("*"):
            if file.is_file() and not file.is_socket():
                content = file.read_bytes()
                assert server.token.encode() not in content, file
                assert not [secret for secret in secrets if secret.encode() in content], file


def test_every_response_with_a_secret_is_known() -> None:
    secret = {"token", "secret", "code", "ticket"}
    showing = [
        operation.path
        for operation in all_operations()
        if operation.method == "POST" and secret & set(getattr(operation.response, "__struct_fields__", ()))
    ]
    assert "/v1/stream-tickets" in showing
    assert [path for path in showing if SECRET_ROUTES.fullmatch(path) is None] == []


async def test_a_key_on_a_request_that_does_not_create_changes_nothing(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        run_id = await server.begin()
        await server.until(run_id, "completed")
        for _ in range(2):
            reply = await server.ask("GET", f"/v1/runs/{run_id}", Idempotency_Key="k")
            assert reply.status == 200
            assert "idempotent-replayed" not in reply.headers
        wire = await Wire.open(server.port, f"/v1/runs/{run_id}/events", server.token)
        assert [sent.type async for sent in wire.events()][-1] == "run_end"
        await wire.close()
