"""Pydantic AI, its stream of events consumed; nothing is stored and instrumentation is off (its default)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

from openai import AsyncOpenAI
from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from bench.contest import INSTRUCTIONS, MAX_STEPS, AgentFor, RunOnce, compete, lookup


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[AgentFor, None]:
    async with AsyncOpenAI(base_url=url, api_key="x") as client:
        provider = OpenAIProvider(openai_client=client)

        def agent_for(model: str) -> RunOnce:
            agent = Agent(OpenAIChatModel(model, provider=provider), instructions=INSTRUCTIONS, tools=[lookup])
            return lambda message: run(agent, message)

        yield agent_for


async def run(agent: Agent[None, str], message: str) -> str:
    text = ""
    limits = UsageLimits(request_limit=MAX_STEPS)
    async with agent.run_stream_events(message, usage_limits=limits) as events:
        async for event in events:
            if isinstance(event, AgentRunResultEvent):
                text = event.result.output
    return text


if __name__ == "__main__":
    compete(version("pydantic-ai-slim"), opened)
