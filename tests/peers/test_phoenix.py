"""Our traces in a third-party backend: Arize Phoenix, which tells agents, models and tools apart by the
names of the conventions.

`make phoenix` installs it and runs this; without it there is nothing to run against."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.engine.running import agent
from tests.telemetry.watched import look, watched
from treadle.domain.ids import RunId
from treadle.domain.runs import Usage
from treadle.telemetry.settings import Telemetry
from treadle.testing.models import ScriptedFailure, ScriptedModel, ask, call, say

OWN = Path(__file__).parents[2] / ".phoenix" / "bin" / "phoenix"
COMMAND = str(OWN) if OWN.exists() else shutil.which("phoenix")
STARTS_WITHIN = 90.0
"""Seconds."""

pytestmark = pytest.mark.skipif(COMMAND is None, reason="phoenix is not installed; `make phoenix` does that")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    """The address of a server that is ready."""
    assert COMMAND is not None
    folder = tmp_path_factory.mktemp("phoenix")
    port, grpc = free_port(), free_port()
    environment = os.environ | {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    with (folder / "output").open("w") as output:
        process = subprocess.Popen([COMMAND, "serve"], env=environment, stdout=output, stderr=output)
        try:
            wait_for(f"http://127.0.0.1:{port}/healthz", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < until:
        assert process.poll() is None, "phoenix has ended"
        try:
            with urlopen(url, timeout=2):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"phoenix did not answer at {url} within {STARTS_WITHIN:.0f} s")


def spans_of(server: str, run_id: RunId, expected: int) -> list[dict[str, Any]]:
    """What it shows of a run, once it has taken it in."""
    until = time.monotonic() + 30
    shown: list[dict[str, Any]] = []
    while len(shown) < expected and time.monotonic() < until:
        with urlopen(f"{server}/v1/projects/default/spans?limit=100", timeout=10) as answer:
            shown = [
                span for span in json.load(answer)["data"] if span["attributes"].get("treadle.run.id") == run_id
            ]
        time.sleep(0.2)
    return shown


async def test_a_run_is_shown_as_an_agent_its_model_calls_and_its_tools(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.telemetry.traces import compute_trace_id

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server)
    model = ScriptedModel(
        ask(call("look", "c1", place="hall"), usage=Usage(100, 10)),
        ScriptedFailure("overloaded", "busy", True, retry_after=0.0),
        say("It is empty.", usage=Usage(200, 20)),
    )

    wanted = Telemetry(traces=True, contents=True)
    async with watched(tmp_path, model, wanted) as engine:
        result = await engine.run(agent(tools=[look]), "what is in the hall?")
    shown = spans_of(server, result.run_id, 4)
    assert {span["context"]["trace_id"] for span in shown} == {f"{compute_trace_id(result.run_id):032x}"}
    assert sorted((span["span_kind"], span["name"]) for span in shown) == [
        ("AGENT", "invoke_agent hero"),
        ("LLM", "chat x"),
        ("LLM", "chat x"),
        ("TOOL", "execute_tool look"),
    ]
    [whole] = [span for span in shown if span["parent_id"] is None]
    assert {span["parent_id"] for span in shown if span is not whole} == {whole["context"]["span_id"]}
    assert {span["attributes"]["session.id"] for span in shown} == {result.session_id}
    counted = sum(span["attributes"].get("llm.token_count.prompt", 0) for span in shown)
    assert counted == result.metrics.input_tokens == 300
    [tool] = [span for span in shown if span["span_kind"] == "TOOL"]
    assert tool["attributes"]["output.value"] == "nothing in hall"
    failures = [event["attributes"].get("error.type") for span in shown for event in span["events"]]
    assert "overloaded" in failures
