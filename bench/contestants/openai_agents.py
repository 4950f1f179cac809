"""The OpenAI Agents SDK on chat completions, streaming; nothing is stored and tracing is off."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from bench.contest import INSTRUCTIONS, MAX_STEPS, AgentFor, RunOnce, compete, lookup


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[AgentFor, None]:
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=url, api_key="x") as client:

        def agent_for(model: str) -> RunOnce:
            agent = Agent(
                name="bench",
                instructions=INSTRUCTIONS,
                model=OpenAIChatCompletionsModel(model, openai_client=client),
                tools=[function_tool(lookup)],
            )
            return lambda message: run(agent, message)

        yield agent_for


async def run(agent: Agent[None], message: str) -> str:
    streamed = Runner.run_streamed(agent, message, max_turns=MAX_STEPS)
    async for _ in streamed.stream_events():
        pass
    return streamed.final_output_as(str)


if __name__ == "__main__":
    compete(version("openai-agents"), opened)
