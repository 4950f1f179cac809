"""Tools that a client of the HTTP API brings and runs: who delivers results, what it may deliver, and restarts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.fake_endpoint import Behaviour, FakeEndpoint, Request, calls, fragment, says
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import ServedHome, serve_home, write_home
from tests.surfaces.shell import Shell

WEATHER: dict[str, Any] = {
    "name": "weather",
    "schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = calls(fragment(0, "call_1", "weather", '{"city": "Ulm"}'))


async def begin(web: ServedHome, token: str | None = None, **more: Any) -> Any:
    """Start a run with the tool, and return it as it waits."""
    body = {"message": "Go.", "client_tools": [WEATHER], "wait": 60, **more}
    reply = await web.ask("POST", "/v1/agents/one/runs", body, token=token)
    assert reply.status == 202, reply
    return reply.json


def results(run: Any, call_id: str = "call_1") -> str:
    return f"/v1/runs/{run['run_id']}/results/{call_id}"


async def test_start_with_wait_returns_the_calls_and_each_result_is_delivered_once(tmp_path: Path) -> None:
    async with serve_home(tmp_path, CALL, says("Sunny.")) as web:
        run = await begin(web)
        assert run["waiting_for"] == "client_tool"
        [call] = run["client_calls"]
        assert (call["call_id"], call["name"], call["arguments"]) == ("call_1", "weather", '{"city": "Ulm"}')
        listed = (await web.ask("GET", f"/v1/runs/{run['run_id']}/calls")).json
        assert listed["items"] == [call]
        first = await web.ask("POST", results(run), {"content": "sun"})
        assert first.status == 200, first
        again = await web.ask("POST", results(run), {"content": "sun"})
        assert (again.status, again.json) == (200, first.json)
        other = await web.ask("POST", results(run), {"content": "rain"})
        assert (other.status, other.problem) == (409, "InvalidState")
        ended = (await web.ask("GET", f"/v1/runs/{run['run_id']}?wait=60")).json
        assert ended["result"]["text"] == "Sunny."
        assert (await web.ask("POST", results(run), {"content": "sun"})).status == 200, "also after the end"
        assert (await web.ask("GET", f"/v1/runs/{run['run_id']}/calls")).json["items"] == []


async def test_only_the_token_that_brought_a_tool_delivers_its_results(tmp_path: Path) -> None:
    async with serve_home(tmp_path, CALL, says("Sunny.")) as web:
        owner, other = await web.mint("run"), await web.mint("run")
        stranger = await web.mint("run", visibility="own")
        run = await begin(web, owner)
        refused = await web.ask("POST", results(run), {"content": "sun"}, token=other)
        assert refused.status == 403
        hidden = await web.ask("POST", results(run), {"content": "sun"}, token=stranger)
        absent = await web.ask("POST", "/v1/runs/run_none/results/call_1", {"content": "sun"}, token=stranger)
        assert (hidden.status, absent.status) == (404, 404)
        assert hidden.body.replace(run["run_id"].encode(), b"run_none") == absent.body
        assert (await web.ask("POST", results(run), {"content": "sun"})).status == 403, "not even an administrator"
        assert (await web.ask("GET", f"/v1/runs/{run['run_id']}/calls", token=owner)).json["items"]
        assert (await web.ask("POST", results(run), {"content": "sun"}, token=owner)).status == 200


@pytest.mark.parametrize(
    "tools",
    [
        [{"name": "a b"}],
        [{"name": "a", "parameters": {}}],
        [{"name": "a", "schema": {"type": "string"}}],
        [WEATHER, WEATHER],
        [{"name": f"t{number}"} for number in range(129)],
        [{"name": "a", "description": "x" * 300_000}],
    ],
    ids=["name", "field", "schema", "twice", "many", "large"],
)
async def test_invalid_tools_start_nothing(tmp_path: Path, tools: Any) -> None:
    async with serve_home(tmp_path) as web:
        reply = await web.ask("POST", "/v1/agents/one/runs", {"message": "Go.", "client_tools": tools})
        assert reply.status == 400, reply
        assert reply.problem == "BadRequest" or "tools are invalid" in reply.json["detail"]
        assert (await web.ask("GET", "/v1/runs")).json["items"] == []


async def test_result_of_an_unknown_call_and_of_a_run_without_tools(tmp_path: Path) -> None:
    async with serve_home(tmp_path, CALL, says("Done.")) as web:
        run = await begin(web)
        assert (await web.ask("POST", results(run, "call_9"), {"content": "x"})).status == 404
        plain = await web.begin()
        assert (await web.ask("POST", f"/v1/runs/{plain}/results/call_1", {"content": "x"})).status == 404


async def test_client_runs_functions_and_a_second_program_delivers_after_a_restart(tmp_path: Path) -> None:
    def weather(city: str) -> str:
        return f"sun in {city}"

    async with serve_home(tmp_path, CALL, says("Sunny."), CALL, says("Again.")) as web:
        async with treadle.AsyncClient(web.url, token=web.token) as client:
            result = await client.run("one", "Go.", client_tools=[weather])
            assert result.text == "Sunny."
            declared = treadle.ClientTool("weather", schema=WEATHER["schema"])
            waiting = await client.run("one", "Go.", client_tools=[declared])
            assert waiting.status == "waiting"

        def work() -> str:
            with treadle.Client(web.url, token=web.token) as second:
                [call] = second.list_client_calls(waiting.run_id)
                second.deliver_result(waiting.run_id, call.call_id, "sun")
                return second.wait(waiting.run_id).text

        assert await asyncio.to_thread(work) == "Again."
    sent = web.endpoint.requests[1].json["messages"][-1]
    assert (sent["role"], sent["content"]) == ("tool", "sun in Ulm")


async def test_run_survives_kill_9_between_call_and_result(tmp_path: Path) -> None:
    def answer(request: Request) -> Behaviour:  # asked twice if the second kill comes before the reply is journaled
        [result] = [part["content"] for part in request.json["messages"] if part["role"] == "tool"]
        assert result.endswith("sun")
        return says("Sunny.")

    async with FakeEndpoint(CALL, policy=answer) as endpoint:
        shell = Shell(tmp_path)
        write_home(shell.home, endpoint.url)
        server = Serving(shell)
        await asyncio.to_thread(server.start)
        declared = treadle.ClientTool("weather")
        async with treadle.AsyncClient(server.url, token=server.token) as client:
            waiting = await client.run("one", "Go.", client_tools=[declared])
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        async with treadle.AsyncClient(server.url, token=server.token) as client:
            await client.deliver_result(waiting.run_id, "call_1", "sun")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            result = await client.wait(waiting.run_id)
        await asyncio.to_thread(server.stop)
        assert (result.text, result.metrics.actions) == ("Sunny.", 1)
        assert 2 <= len(endpoint.requests) <= 2 + result.metrics.repeated_calls
