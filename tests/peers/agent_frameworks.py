"""Agents of other frameworks with an agent of Treadle as their model. Prints what each answers as JSON: by both
APIs, with a tool that the framework runs, and with a handoff.

It runs in an environment of its own, without Treadle."""

import asyncio
import json
import os
from typing import Any

URL, TOKEN = os.environ["TREADLE_URL"], os.environ["TREADLE_TOKEN"]
QUESTION = "call weather"


def weather(city: str) -> str:
    """Tell the weather."""
    return "sun"


async def ask_pydantic_ai() -> list[Any]:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=URL, api_key=TOKEN)
    models = [kind("default", provider=provider) for kind in (OpenAIChatModel, OpenAIResponsesModel)]
    return [(await Agent(model, tools=[weather]).run(QUESTION)).output for model in models]


async def ask_openai_agents() -> list[Any]:
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
    client, found = AsyncOpenAI(base_url=URL, api_key=TOKEN), list[Any]()
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        sales = Agent(name="sales", model=kind("default", client), tools=[function_tool(weather)])
        triage = Agent(name="triage", model=kind("default", client), handoffs=[sales])
        found.append((await Runner.run(sales, QUESTION)).final_output)
        handed = await Runner.run(triage, "hand over")
        found.append([handed.last_agent.name, handed.final_output])
    return found


async def ask_langchain() -> list[Any]:
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    found: list[Any] = []
    for by_responses in (False, True):
        model = ChatOpenAI(model="default", base_url=URL, api_key=TOKEN, use_responses_api=by_responses)
        state = await create_agent(model, tools=[tool(weather)]).ainvoke({"messages": [("user", QUESTION)]})
        found.append(state["messages"][-1].text)
    return found


async def main() -> None:
    asked = (ask_pydantic_ai, ask_openai_agents, ask_langchain)
    print(json.dumps({each.__name__.removeprefix("ask_"): await each() for each in asked}))


asyncio.run(main())
