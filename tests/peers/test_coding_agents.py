"""Codex and opencode with an agent of Treadle as their model: they run the calls of their own tools. The server is
killed while a call runs, and started again."""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers.node import PEERS, skip_without
from tests.peers.served_agent import ServedAgent, call_thrice, serve_agent

SECONDS = 240
CODEX = """\
model = "default"
model_provider = "treadle"
[model_providers.treadle]
name = "treadle"
base_url = "URL"
env_key = "TREADLE_TOKEN"
wire_api = "responses"
"""
OPENCODE = {
    "npm": "@ai-sdk/openai-compatible",
    "name": "Treadle",
    "models": {"default": {"name": "default", "tool_call": True, "limit": {"context": 100_000, "output": 4000}}},
}
WAITS = "touch waiting; while [ ! -e restarted ]; do sleep 0.05; done; echo two"


def run_client(words: Sequence[str], folder: Path, environment: Mapping[str, str], agent: ServedAgent) -> str:
    """Run a client that calls its tools. Kill the server and start it again while its second call runs."""
    with subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, "HOME": str(folder.parent), "PWD": str(folder), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as client:
        try:
            deadline = time.monotonic() + SECONDS
            while not (folder / "waiting").exists():
                assert client.poll() is None, client.stdout and client.stdout.read()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            agent.kill()
            agent.start()
            (folder / "restarted").touch()
            output, _ = client.communicate(timeout=SECONDS)
        finally:
            client.kill()
    assert client.returncode == 0, output
    return output


def check_conversation(agent: ServedAgent, tool: str) -> None:
    """Check that the model was told each result once, in one run."""
    asked = [request.json for request in agent.endpoint.requests]
    turns = [
        body["messages"]
        for body in asked
        if any(each["function"]["name"] == tool for each in body.get("tools", []))
    ]
    assert len(turns) == 4, "each step was asked once"
    results = [message["content"] for message in turns[-1] if message["role"] == "tool"]
    assert len(results) == 3
    for result, word in zip(results, ("one", "two", "three"), strict=True):
        assert word in result


def make_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "client" / "work"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@skip_without("@openai/codex")
def test_codex_runs_its_own_tools(tmp_path: Path) -> None:
    script = call_thrice(
        "exec_command", {"cmd": "echo one"}, {"cmd": WAITS, "yield_time_ms": 30_000}, {"cmd": "echo three"}
    )
    with serve_agent(tmp_path, script) as agent:
        folder = make_folder(tmp_path)
        settings = tmp_path / "codex"
        settings.mkdir()
        (settings / "config.toml").write_text(CODEX.replace("URL", agent.url))
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        words = [str(PEERS / ".bin" / "codex"), "exec", *options, "Count."]
        environment = {"CODEX_HOME": str(settings), "TREADLE_TOKEN": agent.token}
        assert "All done." in run_client(words, folder, environment, agent)
        check_conversation(agent, "exec_command")


@skip_without("opencode-ai")
def test_opencode_runs_its_own_tools(tmp_path: Path) -> None:
    script = call_thrice(
        "bash",
        {"command": "echo one", "description": "one"},
        {"command": WAITS, "description": "two"},
        {"command": "echo three", "description": "three"},
    )
    with serve_agent(tmp_path, script) as agent:
        folder = make_folder(tmp_path)
        provider = {**OPENCODE, "options": {"baseURL": agent.url, "apiKey": agent.token}}
        (folder / "opencode.json").write_text(json.dumps({"provider": {"treadle": provider}}))
        words = [str(PEERS / ".bin" / "opencode"), "run", "--model", "treadle/default", "Count."]
        environment = {"OPENCODE_DISABLE_MODELS_FETCH": "1"}
        assert "All done." in run_client(words, folder, environment, agent)
        check_conversation(agent, "bash")
