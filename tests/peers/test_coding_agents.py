"""Codex and opencode with an agent of Treadle as their model: they run the calls of their own tools. The server is
killed while a call runs, and started again."""

import json
import subprocess
from pathlib import Path

from tests.peers.interrupted_client import check_conversation, make_folder, run_client
from tests.peers.node import PEERS, skip_without
from tests.peers.served_agent import call_thrice, serve_agent

WORDS = ("one", "two", "three")
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


def make_repository(tmp_path: Path) -> Path:
    folder = make_folder(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@skip_without("@openai/codex")
def test_codex_runs_its_own_tools(tmp_path: Path) -> None:
    script = call_thrice(
        "exec_command", {"cmd": "echo one"}, {"cmd": WAITS, "yield_time_ms": 30_000}, {"cmd": "echo three"}
    )
    with serve_agent(tmp_path, script) as agent:
        folder = make_repository(tmp_path)
        settings = tmp_path / "codex"
        settings.mkdir()
        (settings / "config.toml").write_text(CODEX.replace("URL", agent.url))
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        words = [str(PEERS / ".bin" / "codex"), "exec", *options, "Count."]
        environment = {"CODEX_HOME": str(settings), "TREADLE_TOKEN": agent.token}
        assert "All done." in run_client(words, folder, environment, agent)
        check_conversation(agent, "exec_command", WORDS)


@skip_without("opencode-ai")
def test_opencode_runs_its_own_tools(tmp_path: Path) -> None:
    script = call_thrice(
        "bash",
        {"command": "echo one", "description": "one"},
        {"command": WAITS, "description": "two"},
        {"command": "echo three", "description": "three"},
    )
    with serve_agent(tmp_path, script) as agent:
        folder = make_repository(tmp_path)
        provider = {**OPENCODE, "options": {"baseURL": agent.url, "apiKey": agent.token}}
        (folder / "opencode.json").write_text(json.dumps({"provider": {"treadle": provider}}))
        words = [str(PEERS / ".bin" / "opencode"), "run", "--model", "treadle/default", "Count."]
        environment = {"OPENCODE_DISABLE_MODELS_FETCH": "1"}
        assert "All done." in run_client(words, folder, environment, agent)
        check_conversation(agent, "bash", WORDS)
