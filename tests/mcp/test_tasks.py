"""Long runs as tasks of the protocol, with the official SDK's client as the oracle."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from tests.fake_endpoint import DONE, PAUSE, Answer, Behaviour, Silence, calls, delta, fragment, says, usage
from tests.surfaces.http.served_home import SETTINGS, ServedHome, serve_home
from tests.surfaces.http.test_access import in_time
from treadle.surfaces.mcp import server as mcp_server
from treadle.surfaces.mcp.tasks import EXTENSION

MODERN = "2026-07-28"


class TaskResult(types.Result):
    """A task, as a call returns it and as `tasks/get` does."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class AnyResult(types.Result):
    model_config = ConfigDict(extra="allow")


class TaskRequest(types.Request[dict[str, Any], str]):
    name_param = "taskId"


class Tasks(ClientExtension):
    """Hands a task to the test instead of polling it."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.made: list[TaskResult] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def resolve(task: TaskResult, context: ClaimContext) -> types.CallToolResult:
            self.made.append(task)
            shown = {"run_id": task.task_id, "session_id": "", "status": task.status, "text": ""}
            return types.CallToolResult(content=[], structured_content=shown)

        return [ResultClaim(result_type="task", model=TaskResult, resolve=resolve)]


class TaskClient:
    """A client that knows tasks."""

    def __init__(self, client: Client, tasks: Tasks) -> None:
        self._client, self._tasks = client, tasks

    async def start(self, agent: str) -> str:
        """Call an agent and return the id of the task that the call became."""
        await self._client.call_tool(agent, {"message": "Go."})
        [task] = self._tasks.made
        assert task.status == "working"
        return task.task_id

    async def send(self, method: str, task: str, **params: Any) -> dict[str, Any]:
        request = TaskRequest(method=method, params={"taskId": task, **params})
        answer = await self._client.session.send_request(request, AnyResult)
        return answer.model_extra or {}

    async def wait_for(self, task: str, status: str) -> dict[str, Any]:
        while (found := await self.send("tasks/get", task))["status"] != status:
            assert found["status"] == "working"
            assert found["ttlMs"] is None
        return found


async def refuse_question(context: Any, params: Any) -> types.ElicitResult:
    raise AssertionError("questions of a task come with its state")


@asynccontextmanager
async def connect(server: ServedHome, token: str) -> AsyncGenerator[TaskClient]:
    http, tasks = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False), Tasks()
    transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
    client = Client(transport, mode=MODERN, extensions=[tasks], elicitation_callback=refuse_question)
    async with http, client:
        yield TaskClient(client, tasks)


def make_paused_reply(text: str) -> Answer:
    """A reply that ends when the test says so."""
    return Answer([delta(role="assistant", content=text), PAUSE, delta(finish="stop"), usage(1, 1), DONE])


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every call a task whose run has not ended at once."""
    monkeypatch.setattr(mcp_server, "ANSWER_SECONDS", 0.0)


@pytest.mark.usefixtures("short_intervals")
def test_a_long_run_is_a_task_that_any_connection_can_ask_for(tmp_path: Path) -> None:
    async def perform() -> None:
        async with serve_home(tmp_path, make_paused_reply("Done at last.")) as server:
            async with connect(server, server.token) as client:
                task = await client.start("one")
                assert (await client.send("tasks/get", task))["status"] == "working"
            server.endpoint.go_on.set()
            async with connect(server, server.token) as client:
                result = (await client.wait_for(task, "completed"))["result"]
                assert result["content"] == [{"type": "text", "text": "Done at last."}]
                assert result["structuredContent"]["run_id"] == task
                await client.send("tasks/cancel", task)
                assert (await client.send("tasks/get", task))["status"] == "completed"

    in_time(perform())


@pytest.mark.usefixtures("short_intervals")
def test_a_task_is_cancelled(tmp_path: Path) -> None:
    async def perform() -> None:
        async with serve_home(tmp_path, Silence()) as server, connect(server, server.token) as client:
            task = await client.start("one")
            await server.endpoint.asked.wait()
            await client.send("tasks/cancel", task)
            assert "result" not in await client.wait_for(task, "cancelled")

    in_time(perform())


@pytest.mark.usefixtures("short_intervals")
def test_a_question_is_a_request_for_input(tmp_path: Path) -> None:
    script = ask_for_a_colour("call_1"), ask_for_a_colour("call_2"), says("Green it is.")

    async def perform() -> None:
        async with serve_home(tmp_path, *script) as server:
            write_curious_agent(server)
            async with connect(server, await server.mint("read", "run", "approve")) as client:
                task = await client.start("curious")
                found = await client.wait_for(task, "input_required")
                [(first, asked)] = found["inputRequests"].items()
                assert asked["method"] == "elicitation/create"
                assert asked["params"]["message"] == "Which colour?"
                assert asked["params"]["requestedSchema"]["properties"]["answer"]["enum"] == ["red", "green"]
                wrong = {"never-asked": {"action": "accept", "content": {"answer": "blue"}}}
                await client.send("tasks/update", task, inputResponses=wrong)
                assert (await client.send("tasks/get", task))["inputRequests"] == found["inputRequests"]
                accepted = {"action": "accept", "content": {"answer": "green"}}
                await client.send("tasks/update", task, inputResponses={first: accepted})
                found = await client.wait_for(task, "input_required")
                [second] = found["inputRequests"]
                assert second != first
                await client.send("tasks/update", task, inputResponses={second: {"action": "decline"}})
                assert (await client.wait_for(task, "completed"))["result"]["content"][0]["text"] == "Green it is."
            sent = server.endpoint.requests[-1].json["messages"]
            assert next(each["content"] for each in sent if each["role"] == "tool").endswith("green")

    in_time(perform())


def ask_for_a_colour(call_id: str = "call_1") -> Behaviour:
    arguments = '{"question": "Which colour?", "options": ["red", "green"]}'
    return calls(fragment(0, call_id, "clarify", arguments))


def write_curious_agent(server: ServedHome) -> None:
    folder = server.home.path / "agents" / "curious"
    folder.mkdir()
    settings = f"name: curious\nmodel: fake/m\n{SETTINGS}tools: [clarify]\napprovals: {{via: api}}\n"
    (folder / "config.yaml").write_text(settings)


@pytest.mark.usefixtures("short_intervals")
def test_a_task_outside_a_tokens_scope_does_not_exist_for_it(tmp_path: Path) -> None:
    async def perform() -> None:
        async with serve_home(tmp_path, ask_for_a_colour()) as server:
            write_curious_agent(server)
            async with connect(server, server.token) as client:
                task = await client.start("curious")
                await client.wait_for(task, "input_required")
            async with connect(server, await server.mint("read", "run", agents=("one",))) as client:
                for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                    for run_id in (task, "run_0", "../x"):
                        with pytest.raises(MCPError, match="Task not found") as error:
                            await client.send(method, run_id, inputResponses={})
                        assert error.value.error.code == types.INVALID_PARAMS
            async with connect(server, await server.mint("read", "run")) as client:  # may not answer
                found = await client.send("tasks/get", task)
                assert found["status"] == "working"
                assert "answer" in found["statusMessage"]
                assert "inputRequests" not in found

    in_time(perform())


@pytest.mark.usefixtures("short_intervals")
def test_a_client_without_task_support_gets_no_task(tmp_path: Path) -> None:
    async def perform() -> None:
        async with serve_home(tmp_path) as server:
            http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.token}"}, trust_env=False)
            transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with http, Client(transport, mode=MODERN) as client:
                found = await client.session.send_discover(MODERN)
                assert found["capabilities"]["extensions"] == {EXTENSION: {}}
                done = await client.call_tool("one", {"message": "Go."})
                assert done.structured_content["outcome"] == "completed"
                request = TaskRequest(method="tasks/get", params={"taskId": done.structured_content["run_id"]})
                with pytest.raises(MCPError) as error:
                    await client.session.send_request(request, types.Result)
                assert error.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY

    in_time(perform())
