"""Each entity has one schema: `--json` prints what the HTTP API returns for it."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.fake_endpoint import Answer, FakeEndpoint, calls, fragment, says
from tests.fake_endpoint import Request as ModelRequest
from tests.surfaces.http.process import Serving
from tests.surfaces.shell import Shell

LISTS = {
    "agents list": "/v1/agents",
    "approvals list": "/v1/approvals",
    "hooks list": "/v1/hooks",
    "mcp list": "/v1/mcp/servers",
    "memory list": "/v1/memory?agent=default",
    "runs list": "/v1/runs",
    "schedules list": "/v1/schedules",
    "sessions list --all": "/v1/sessions",
    "skills list": "/v1/skills",
    "tokens list": "/v1/tokens",
    "usage": "/v1/usage",
    "vault list": "/v1/vault",
    "webhooks list": "/v1/webhooks",
}
"""Commands that list entities, and the routes that list them."""
CREATED = (
    ("memory", "add", "The sky is blue."),
    ("schedules", "add", "0 9 * * *", "Report."),
    ("hooks", "add", "tracker"),
    ("webhooks", "add", "https://hooks.example.com/x"),
    ("tokens", "create", "reader"),
)


def policy(request: ModelRequest) -> Answer:
    messages = request.json["messages"]
    if messages[-1]["role"] == "user" and "Write" in str(messages[-1]["content"]):
        return calls(fragment(0, "call_1", "write_file", '{"path": "x.txt", "content": "hello"}'))
    return says("Done.")


async def test_json_output_of_commands_equals_the_answers_of_the_http_api(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=policy) as endpoint:
        shell = Shell(tmp_path / "home", endpoint.url).configure().configure_careful()
        config = shell.home / "config.yaml"
        config.write_text(config.read_text()[:-1] + ", mcp_servers: {files: {command: files-server}}}")
        shell.cwd = tmp_path
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        try:
            await compare(shell, serving)
        finally:
            await asyncio.to_thread(serving.stop)


async def compare(shell: Shell, serving: Serving) -> None:
    first = (await shell("run", "--json", "Go.")).json[0]
    await send(serving, "/v1/agents/default/runs", {"message": "Write it."})  # waits for an approval
    while not (await send(serving, "/v1/approvals"))["items"]:  # noqa: ASYNC110 -- nothing announces it
        await asyncio.sleep(0.02)
    for command in CREATED:
        assert (await shell(*command)).code == 0, command
    assert (await shell("vault", "set", "SOME_KEY", stdin=b"some value")).code == 0
    for command, route in LISTS.items():
        printed = (await shell(*command.split(), "--json")).json
        assert printed == (await send(serving, route))["items"], command
        assert printed, f"{command} has something to compare"
    reader = (await shell("tokens", "create", "viewer", "--json")).json[0]["token"]
    skills = (await send(serving, "/v1/skills", token=reader))["items"]
    assert {skill["path"] for skill in skills} == {""}, "only administrators see the paths of the server"
    checked = (await shell("doctor", "--offline", "--json")).json
    findings = (await send(serving, "/v1/system/doctor?offline=true"))["items"]
    assert [each for each in checked if "about" in each] == findings  # the command also tries the guards
    (approval,) = (await send(serving, "/v1/approvals"))["items"]
    shown = {
        f"runs show {first['run_id']}": f"/v1/runs/{first['run_id']}",
        f"runs steps {first['run_id']}": f"/v1/runs/{first['run_id']}/steps",
        f"runs tree {first['run_id']}": f"/v1/runs/{first['run_id']}/tree",
        "skills show summarise": "/v1/skills/summarise",
        f"sessions show {first['session_id']}": f"/v1/sessions/{first['session_id']}",
        "agents show default": "/v1/agents/default",
        f"approvals show {approval['approval_id']}": f"/v1/approvals/{approval['approval_id']}",
    }
    for command, route in shown.items():
        (printed,) = (await shell(*command.split(), "--json")).json
        assert printed == await send(serving, route), command


async def send(serving: Serving, route: str, body: Any = None, token: str = "") -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {token or serving.token}", "content-type": "application/json"}
    request = Request(serving.url + route, data, headers)

    def read() -> Any:
        with urlopen(request) as response:
            return json.load(response)

    return await asyncio.to_thread(read)
