"""A framework or client with an agent of Treadle as its model: `agent_frameworks.py FRAMEWORK API`, where the API
is `chat` or `responses`. Prints the answer as JSON. The framework runs the tool `weather`; with openai-agents, a
second agent has it, to which the first one hands over.

It runs in an environment of its own, without Treadle."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

URL, TOKEN = os.environ["TREADLE_URL"], os.environ["TREADLE_TOKEN"]
QUESTION = "How is the weather?"
WAITS_IN = "Rome"


def weather(city: str) -> str:
    """Tell the weather."""
    with Path("executed").open("a") as executed:
        executed.write(f"{city}\n")
    if city == WAITS_IN:
        Path("waiting").touch()
        while not Path("restarted").exists():
            time.sleep(0.05)
    return f"sun in {city}"


async def ask_openai(api: str) -> Any:
    from openai import OpenAI

    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    function: Any = {"name": "weather", "description": "Tell the weather.", "parameters": parameters}
    client = OpenAI(base_url=URL, api_key=TOKEN)
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    while api == "chat":
        tools: Any = [{"type": "function", "function": function}]
        with client.chat.completions.stream(model="default", messages=messages, tools=tools) as stream:
            message = stream.get_final_completion().choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.to_dict())
        for call in message.tool_calls:
            result = weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    tools = [{"type": "function", "strict": False, **function}]
    response = client.responses.create(model="default", input=QUESTION, tools=tools)
    while called := [item for item in response.output if item.type == "function_call"]:
        outputs: list[Any] = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": weather(**json.loads(call.arguments)),
            }
            for call in called
        ]
        response = client.responses.create(
            model="default", input=outputs, tools=tools, previous_response_id=response.id
        )
    return response.output_text


async def ask_pydantic_ai(api: str) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    model = kind("default", provider=OpenAIProvider(base_url=URL, api_key=TOKEN))
    return (await Agent(model, tools=[weather]).run(QUESTION)).output


async def ask_openai_agents(api: str) -> Any:
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(disabled=True)
    kind = OpenAIChatCompletionsModel if api == "chat" else OpenAIResponsesModel
    model = kind("default", AsyncOpenAI(base_url=URL, api_key=TOKEN))
    forecasts = Agent(name="forecasts", model=model, tools=[function_tool(weather)])
    triage = Agent(name="triage", model=model, handoffs=[forecasts])
    result = await Runner.run(triage, QUESTION)
    return [result.last_agent.name, result.final_output]


async def ask_langchain(api: str) -> Any:
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    by_responses = api == "responses"
    model = ChatOpenAI(model="default", base_url=URL, api_key=TOKEN, use_responses_api=by_responses)
    state = await create_agent(model, tools=[tool(weather)]).ainvoke({"messages": [("user", QUESTION)]})
    return state["messages"][-1].text


async def ask_llm(api: str) -> Any:
    import llm

    extra = {
        "model_id": "treadle",
        "model_name": "default",
        "api_base": URL,
        "api_key_name": "treadle",
        "supports_tools": True,
        "responses": api == "responses",
    }
    (llm.user_dir() / "extra-openai-models.yaml").write_text(json.dumps([extra]))
    return llm.get_model("treadle").chain(QUESTION, tools=[weather], key=TOKEN).text()


async def ask_inspect(api: str) -> Any:
    from inspect_ai import Task, eval_async
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import Tool, tool

    @tool(name="weather")
    def make_weather() -> Tool:
        async def execute(city: str) -> str:
            """Tell the weather.

            Args:
                city: Where.
            """
            return await asyncio.to_thread(weather, city)

        return execute

    model = get_model("openai-api/treadle/default", base_url=URL, api_key=TOKEN, responses_api=api == "responses")
    task = Task(
        dataset=[Sample(QUESTION, target="All done.")],
        solver=[use_tools(make_weather()), generate()],
        scorer=includes(),
    )
    [log] = await eval_async(task, model=model, log_dir="logs")
    assert log.status == "success", log.error
    assert log.samples is not None
    [sample] = log.samples
    assert sample.scores is not None
    return [sample.scores["includes"].value, sample.output.completion]


ASKED = {
    "openai": ask_openai,
    "pydantic-ai": ask_pydantic_ai,
    "openai-agents": ask_openai_agents,
    "langchain": ask_langchain,
    "llm": ask_llm,
    "inspect": ask_inspect,
}

if __name__ == "__main__":
    framework, chosen = sys.argv[1:]
    print(json.dumps(asyncio.run(ASKED[framework](chosen))))
