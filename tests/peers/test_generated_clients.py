"""Clients that others' tools generate from the description of the API: each starts a run and follows it. `make
peers` installs the tools; without them the tests are skipped."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.peers.node import NODE, PEERS, skip_without
from tests.surfaces.http.served_home import ServedHome, serve_home

PYTHON = PEERS.parent / "openapi" / "bin" / "python"
PROGRAM_IN_PYTHON = """
import sys
from described import AuthenticatedClient
from described.api.events import events_of_run
from described.api.runs import runs_start, runs_show
from described.models import Accepted, NewRun, RunDetail

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], raise_on_unexpected_status=True)
started = runs_start.sync("one", client=client, body=NewRun(message="Go."))
assert isinstance(started, Accepted), started
followed = events_of_run.sync(started.run_id, client=client)
assert isinstance(followed, str), followed
types = [line.removeprefix("event: ") for line in followed.splitlines() if line.startswith("event: ")]
assert types[0] == "run_queued" and types[-1] == "run_end", types
shown = runs_show.sync(started.run_id, client=client)
assert isinstance(shown, RunDetail) and shown.result is not None, shown
print(shown.outcome, shown.result.text)
"""
PROGRAM_IN_TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { components, paths } from "./described.ts";

const [baseUrl, token] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const started = await client.POST("/v1/agents/{name}/runs", {
  params: { path: { name: "one" } },
  body: { message: "Go." },
});
if (started.data === undefined) throw new Error(JSON.stringify(started.error));
const run_id: string = started.data.run_id;
const { data } = await client.GET("/v1/runs/{run_id}/events", { params: { path: { run_id } }, parseAs: "stream" });
const reader = data!.pipeThrough(new TextDecoderStream()).getReader();
let text = "";
for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
const events = text
  .split("\\n")
  .filter((line) => line.startsWith("data: "))
  .map((line) => JSON.parse(line.slice(6)) as components["schemas"]["Event"]);
const last = events.at(-1)!;
if (last.type !== "run_end") throw new Error(last.type);
console.log(last.data.outcome, last.data.text);
"""


@asynccontextmanager
async def describe_server(tmp_path: Path) -> AsyncGenerator[tuple[ServedHome, Path]]:
    """Serve a home. Yield it with the file of its description."""
    async with serve_home(tmp_path) as server:
        described = tmp_path / "openapi.json"
        described.write_bytes((await server.ask("GET", "/v1/openapi.json")).body)
        yield server, described


async def run_program(*command: str | Path, cwd: Path) -> str:
    """Run a program that must succeed. Return what it prints."""
    started = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    printed, _ = await started.communicate()
    assert started.returncode == 0, printed.decode()
    return printed.decode()


@pytest.mark.skipif(not PYTHON.exists(), reason="openapi-python-client is not installed: make peers")
async def test_a_client_in_python_starts_and_follows_a_run(tmp_path: Path) -> None:
    async with describe_server(tmp_path) as (server, described):
        options = ("--meta", "none", "--output-path", "described", "--fail-on-warning", "--config", "config.yaml")
        (tmp_path / "config.yaml").write_text("post_hooks: []\n")
        tool = PYTHON.with_name("openapi-python-client")
        await run_program(tool, "generate", "--path", described, *options, cwd=tmp_path)
        (tmp_path / "program.py").write_text(PROGRAM_IN_PYTHON)
        printed = await run_program(PYTHON, "program.py", server.url, server.token, cwd=tmp_path)
        assert printed == "completed Done.\n"


@skip_without("openapi-typescript")
async def test_a_client_in_typescript_starts_and_follows_a_run(tmp_path: Path) -> None:
    async with describe_server(tmp_path) as (server, described):
        (tmp_path / "node_modules").symlink_to(PEERS)
        (tmp_path / "package.json").write_text(json.dumps({"type": "module"}))
        tool = PEERS / "openapi-typescript" / "bin" / "cli.js"
        options = ("--default-non-nullable", "false", "-o", "described.ts")
        await run_program(NODE, tool, described, *options, cwd=tmp_path)
        (tmp_path / "program.ts").write_text(PROGRAM_IN_TYPESCRIPT)
        strict = ("--strict", "--noEmit", "--target", "esnext", "--module", "nodenext", "--skipLibCheck")
        strict = (*strict, "--allowImportingTsExtensions", "--types", "node")
        await run_program(NODE, PEERS / "typescript" / "bin" / "tsc", *strict, "program.ts", cwd=tmp_path)
        command = (NODE, "--experimental-strip-types", "--no-warnings", "program.ts", server.url, server.token)
        assert await run_program(*command, cwd=tmp_path) == "completed Done.\n"


@skip_without("@redocly/cli")
async def test_redocly_finds_nothing_wrong_with_the_description(tmp_path: Path) -> None:
    from treadle.surfaces.http.api_description import build_description

    (tmp_path / "openapi.json").write_text(json.dumps(build_description()))
    tool = PEERS / "@redocly" / "cli" / "bin" / "cli.js"
    printed = await run_program(NODE, tool, "lint", "openapi.json", "--format", "stylish", cwd=tmp_path)
    assert "warning" not in printed.lower().replace("deprecation warning", ""), printed
