"""A hand-written loop on the official OpenAI SDK, streaming. Nothing is stored."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from openai import AsyncOpenAI

from bench.contest import INSTRUCTIONS, AgentFor, RunOnce, compete, lookup

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look up the value of a key.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[AgentFor, None]:
    async with AsyncOpenAI(base_url=url, api_key="x") as client:

        def agent_for(model: str) -> RunOnce:
            return lambda message: run(client, model, message)

        yield agent_for


async def run(client: AsyncOpenAI, model: str, message: str) -> str:
    messages: list[Any] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": message},
    ]
    while True:
        text, calls = await complete(client, model, messages)
        if not calls:
            return text
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        for call in calls:
            result = await lookup(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


async def complete(client: AsyncOpenAI, model: str, messages: list[Any]) -> tuple[str, list[Any]]:
    text: list[str] = []
    calls: dict[int, Any] = {}
    stream = await client.chat.completions.create(model=model, messages=messages, tools=[TOOL], stream=True)
    async for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.content:
                text.append(choice.delta.content)
            for fragment in choice.delta.tool_calls or ():
                assert fragment.function is not None
                call = calls.setdefault(
                    fragment.index,
                    {"id": fragment.id, "type": "function", "function": {"name": "", "arguments": ""}},
                )
                call["function"]["name"] += fragment.function.name or ""
                call["function"]["arguments"] += fragment.function.arguments or ""
    return "".join(text), list(calls.values())


if __name__ == "__main__":
    compete(version("openai"), opened)
