"""Agents of pydantic-ai, openai-agents, LangChain and the AI SDK with an agent of Treadle as their model: they run
their own tools, by chat completions and by responses."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fake_endpoint import Behaviour, Request, calls, fragment
from tests.peers.node import NODE, PEERS, skip_without
from tests.peers.served_agent import ServedAgent, serve_agent
from tests.surfaces.http.test_openai_behaviours import answer, make_text

PYTHON = PEERS.parent / "frameworks" / "bin" / "python"
SCRIPT = Path(__file__).with_name("agent_frameworks.py")
AI_SDK = """
import { stepCountIs, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";
const provider = createOpenAI({ baseURL: process.env.TREADLE_URL, apiKey: process.env.TREADLE_TOKEN });
const weather = tool({ inputSchema: z.object({ city: z.string() }), execute: async () => "sun" });
const found = [];
for (const model of [provider.chat("default"), provider.responses("default")]) {
  const result = streamText({ model, prompt: "call weather", tools: { weather }, stopWhen: stepCountIs(4) });
  let text = "";
  for await (const piece of result.textStream) text += piece;
  found.push(text);
}
console.log(JSON.stringify(found));
"""
ANSWER = "It is sun."


def hand_over(request: Request) -> Behaviour:
    """Answer as `answer`, and hand a conversation over if the user asks for that."""
    body = request.json
    first = next(message for message in body["messages"] if message["role"] == "user")
    if "hand over" not in str(first["content"]):
        return answer(request)
    offered = [tool["function"]["name"] for tool in body.get("tools", ())]
    if "transfer_to_sales" in offered:
        return calls(fragment(0, "model_0", "transfer_to_sales", "{}"))
    return make_text("Sold.")


def run(words: list[str], agent: ServedAgent) -> str:
    done = subprocess.run(
        words,
        cwd=PEERS.parent,
        env={**os.environ, "TREADLE_URL": agent.url, "TREADLE_TOKEN": agent.token},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not PYTHON.exists(), reason="the frameworks are not installed: make peers")
def test_agents_of_python_frameworks_run_their_tools(tmp_path: Path) -> None:
    with serve_agent(tmp_path, hand_over) as agent:
        found = json.loads(run([str(PYTHON), str(SCRIPT)], agent))
    assert found == {
        "pydantic_ai": [ANSWER, ANSWER],
        "openai_agents": [ANSWER, ["sales", "Sold."], ANSWER, ["sales", "Sold."]],
        "langchain": [ANSWER, ANSWER],
    }


@skip_without("ai")
def test_the_ai_sdk_runs_its_tools(tmp_path: Path) -> None:
    with serve_agent(tmp_path, answer) as agent:
        assert json.loads(run([str(NODE), "--input-type=module", "--eval", AI_SDK], agent)) == [ANSWER, ANSWER]
