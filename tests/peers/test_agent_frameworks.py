"""The official OpenAI clients, pydantic-ai, openai-agents, LangChain, llm, Inspect and the AI SDK with an agent of
Treadle as their model. They run three calls of their own tool, by chat completions and by responses, and the server
is killed while the second one runs."""

import json
from pathlib import Path

import pytest

from tests.fake_endpoint import Behaviour, Request, calls, fragment
from tests.peers.interrupted_client import call_weather_thrice, check_weather, make_folder, run_client
from tests.peers.node import NODE, PEERS, skip_without, write_modules
from tests.peers.served_agent import serve_agent

PYTHON = PEERS.parent / "frameworks" / "bin" / "python"
SCRIPT = Path(__file__).with_name("agent_frameworks.py")
NODE_WEATHER = """
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
export const weather = async ({ city }) => {
  appendFileSync("executed", `${city}\\n`);
  if (city === "Rome") {
    writeFileSync("waiting", "");
    while (!existsSync("restarted")) await setTimeout(50);
  }
  return `sun in ${city}`;
};
"""
AI_SDK = """
import { stepCountIs, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";
import { weather } from "./weather.mjs";
const provider = createOpenAI({ baseURL: process.env.TREADLE_URL, apiKey: process.env.TREADLE_TOKEN });
const model = provider[process.argv.at(-1)]("default");
const tools = { weather: tool({ inputSchema: z.object({ city: z.string() }), execute: weather }) };
const result = streamText({ model, prompt: "How is the weather?", tools, stopWhen: stepCountIs(9) });
let text = "";
for await (const piece of result.textStream) text += piece;
console.log(JSON.stringify(text));
"""
OPENAI = """
import OpenAI from "openai";
import { weather } from "./weather.mjs";
const client = new OpenAI({ baseURL: process.env.TREADLE_URL, apiKey: process.env.TREADLE_TOKEN });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const declared = { name: "weather", description: "Tell the weather.", parameters };
const question = "How is the weather?";

async function chat() {
  const tools = [{ type: "function", function: { ...declared, parse: JSON.parse, function: weather } }];
  const messages = [{ role: "user", content: question }];
  return client.chat.completions.runTools({ model: "default", messages, tools, stream: true }).finalContent();
}

async function responses() {
  const tools = [{ type: "function", strict: false, ...declared }];
  let input = question;
  let last = null;
  for (;;) {
    const stream = client.responses.stream({ model: "default", input, tools, previous_response_id: last?.id });
    last = await stream.finalResponse();
    const calls = last.output.filter(({ type }) => type === "function_call");
    if (calls.length === 0) return last.output_text;
    input = [];
    for (const { call_id, arguments: given } of calls) {
      input.push({ type: "function_call_output", call_id, output: await weather(JSON.parse(given)) });
    }
  }
}

console.log(JSON.stringify(await { chat, responses }[process.argv.at(-1)]()));
"""
ANSWER = "All done."
FRAMEWORKS = {"openai": ANSWER, "pydantic-ai": ANSWER, "langchain": ANSWER, "llm": ANSWER, "inspect": ["C", ANSWER]}
APIS = ("chat", "responses")
skip_without_frameworks = pytest.mark.skipif(
    not PYTHON.exists(), reason="the frameworks are not installed: make peers"
)


def hand_over(request: Request) -> Behaviour:
    """Hand the conversation over if that is offered, else ask for the weather."""
    offered = [tool["function"]["name"] for tool in request.json.get("tools", ())]
    if "transfer_to_forecasts" in offered:
        return calls(fragment(0, "model_handoff", "transfer_to_forecasts", "{}"))
    return call_weather_thrice()(request)


@skip_without_frameworks
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_client_for_python_runs_its_tools(tmp_path: Path, framework: str, api: str) -> None:
    with serve_agent(tmp_path, call_weather_thrice()) as agent:
        folder = make_folder(tmp_path)
        output = run_client([str(PYTHON), str(SCRIPT), framework, api], folder, agent.client_environment, agent)
        assert json.loads(output.splitlines()[-1]) == FRAMEWORKS[framework]
        check_weather(agent, folder)


@skip_without_frameworks
@pytest.mark.parametrize("api", APIS)
def test_agents_of_openai_agents_hand_over_and_run_their_tools(tmp_path: Path, api: str) -> None:
    with serve_agent(tmp_path, hand_over) as agent:
        folder = make_folder(tmp_path)
        words = [str(PYTHON), str(SCRIPT), "openai-agents", api]
        assert json.loads(run_client(words, folder, agent.client_environment, agent)) == ["forecasts", ANSWER]
        check_weather(agent, folder, others=1)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(OPENAI, id="openai", marks=skip_without("openai")),
        pytest.param(AI_SDK, id="ai-sdk", marks=skip_without("ai")),
    ],
)
def test_a_client_for_node_runs_its_tools(tmp_path: Path, script: str, api: str) -> None:
    with serve_agent(tmp_path, call_weather_thrice()) as agent:
        folder = make_folder(tmp_path)
        module = write_modules(folder.parent, {"weather": NODE_WEATHER, "client": script})
        output = run_client([str(NODE), str(module), api], folder, agent.client_environment, agent)
        assert json.loads(output) == ANSWER
        check_weather(agent, folder)
