"""The description of the API is exact: schemathesis, with all of its checks, finds no answer that it does not
foresee. What remains is in one list, with reasons. `make schemathesis` takes longer and tries more."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import write_home
from tests.surfaces.shell import Shell

FOR_EVER = ("/v1/events", "/v1/agents/{name}/events")
"""Streams without an end."""
SEVERAL_FIELDS = "A rule about several fields, which JSON Schema cannot say here."
CONTENT = "A rule about what a text says, which JSON Schema cannot say."
STATE = "It depends on what the home has at that moment."
NO_TOKEN = "Without a token, nothing is told about a path but whether it is public."
PARAMETERS_WITHOUT_EFFECT = "OpenAI has parameters that agents refuse."
STREAM = "schemathesis reads a stream as objects; OpenAPI 3.1 has it as a text with JSON in lines `data:`."
WRONG_EVENT = "SSE event violates schema"
VALID_REJECTED = "Schema-valid request rejected"
WRONG_METHOD = "Wrong response to undeclared method"
ACCEPTED = {
    (VALID_REJECTED, "GET /v1/memory"): SEVERAL_FIELDS,
    (VALID_REJECTED, "GET /v1/responses/{response}"): PARAMETERS_WITHOUT_EFFECT,
    (VALID_REJECTED, "GET /v1/sessions/{session_id}/transcript"): STATE,
    (VALID_REJECTED, "GET /v1/system/guards"): STATE,
    (VALID_REJECTED, "DELETE /v1/agents/{name}/labels/{label}"): CONTENT,
    (VALID_REJECTED, "GET /v1/agents/{name}/versions"): CONTENT,
    (VALID_REJECTED, "GET /v1/agents/{name}/versions/{version}"): CONTENT,
    (VALID_REJECTED, "GET /v1/agents/{name}/versions/{version}/diff"): CONTENT,
    (VALID_REJECTED, "GET /v1/evaluations"): STATE,
    (VALID_REJECTED, "GET /v1/feedback"): STATE,
    (VALID_REJECTED, "POST /v1/agents/{name}/versions/{version}/restore"): CONTENT,
    (VALID_REJECTED, "POST /v1/runs/{run_id}/results/{call_id}"): CONTENT,
    (VALID_REJECTED, "PUT /v1/agents/{name}/labels/{label}"): CONTENT,
    (VALID_REJECTED, "PUT /v1/sessions/{session_id}/mode"): STATE,
    (VALID_REJECTED, "POST /v1/runs/{run_id}/undo-files"): CONTENT,
    (VALID_REJECTED, "POST /v1/agents"): SEVERAL_FIELDS,
    (VALID_REJECTED, "POST /v1/agents/{name}/runs"): SEVERAL_FIELDS,
    (VALID_REJECTED, "POST /v1/chat/completions"): PARAMETERS_WITHOUT_EFFECT,
    (VALID_REJECTED, "POST /v1/hooks"): CONTENT,
    (VALID_REJECTED, "POST /v1/hooks/{hook_id}/rotate"): CONTENT,
    (VALID_REJECTED, "POST /v1/memory"): CONTENT,
    (VALID_REJECTED, "POST /v1/memory/assign"): SEVERAL_FIELDS,
    (VALID_REJECTED, "POST /v1/responses"): PARAMETERS_WITHOUT_EFFECT,
    (VALID_REJECTED, "POST /v1/schedules"): CONTENT,
    (VALID_REJECTED, "POST /v1/tokens"): SEVERAL_FIELDS,
    (VALID_REJECTED, "POST /v1/webhooks"): CONTENT,
    (VALID_REJECTED, "PUT /v1/agents/{name}"): SEVERAL_FIELDS,
    (VALID_REJECTED, "PUT /v1/sessions/{session_id}/model"): CONTENT,
    (VALID_REJECTED, "PUT /v1/vault/{name}"): CONTENT,
    (WRONG_EVENT, "POST /v1/agents/{name}/ag-ui"): STREAM,
    (WRONG_EVENT, "Stateful tests"): STREAM,
    (VALID_REJECTED, "POST /v1/agents/{name}/ag-ui"): CONTENT,
    ("Response violates schema", "Stateful tests"): "Without a name, /v1/models/{name} is the list /v1/models/.",
    (VALID_REJECTED, "Stateful tests"): "Those above: sequences of requests are not reported by operation.",
    (WRONG_METHOD, "TRACE /v1/channels/{channel}/webhook"): NO_TOKEN,
    (WRONG_METHOD, "TRACE /v1/dashboard/identity"): NO_TOKEN,
    (WRONG_METHOD, "TRACE /v1/dashboard/sign-in"): NO_TOKEN,
    (WRONG_METHOD, "TRACE /v1/dashboard/sign-ins"): NO_TOKEN,
    (WRONG_METHOD, "TRACE /v1/hooks/{hook_id}"): NO_TOKEN,
}
"""Failures that remain, and why."""
SEQUENCES = os.environ.get("SEQUENCES", "10")
"""How many sequences of requests are tried. `make schemathesis` tries more."""
SETTINGS = """
[auth.openapi.token]
bearer = "{token}"
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 406, 413, 422, 428, "5xx"]  # 413: a text that is too long
"""
HOOKS = """
from itertools import count
import schemathesis

NUMBERS = count()

@schemathesis.hook
def before_call(context, case, kwargs):
    # Another request with the same key would be refused, whatever else it says.
    for name in case.headers or ():
        if name.lower() == "idempotency-key" and 0 < len(case.headers[name]) <= 255:
            case.headers[name] = f"{case.headers[name][:200]}{next(NUMBERS)}"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving, None, None]:
    home = tmp_path_factory.mktemp("described") / "home"
    write_home(home, "http://127.0.0.1:9/v1")
    serving = Serving(Shell(home))
    serving.start()
    yield serving
    serving.stop()


@pytest.mark.timeout(900)
async def test_every_response_matches_the_description(server: Serving, tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    async with aiohttp.ClientSession(headers=headers) as http, http.get(f"{server.url}/v1/openapi.json") as reply:
        (tmp_path / "openapi.json").write_bytes(await reply.read())
    (tmp_path / "schemathesis.toml").write_text(SETTINGS.format(token=server.token))
    (tmp_path / "hooks.py").write_text(HOOKS)
    found = run_schemathesis(tmp_path, server.url)
    assert found["operations"]["tested"] > 90
    assert found["complete"], found["stop_reason"]
    assert found["errors"] == []
    failures = {(each["title"], operation) for each in found["failures"] for operation in each["operations"]}
    assert sorted(failures - ACCEPTED.keys()) == [], (tmp_path / "output.txt").read_text()[-30_000:]


def run_schemathesis(folder: Path, url: str) -> dict[str, Any]:
    """Run all checks on examples of every kind and on sequences of requests. Return the report."""
    streams = [option for path in FOR_EVER for option in ("--exclude-path", path)]
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"),
        *("run", "openapi.json", "--url", url, "--checks", "all", "--phases", "coverage,stateful", *streams),
        *("--continue-on-failure", "--max-examples", SEQUENCES, "--seed", "1"),
        *("--report", "json", "--report-json-path", "report.json"),
    ]
    with (folder / "output.txt").open("wb") as output:
        environment = {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(folder), "PATH": "", "NO_COLOR": "1"}
        subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=output, check=False)
    return json.loads((folder / "report.json").read_bytes())
