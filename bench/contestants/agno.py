"""Agno, with its event stream consumed. Nothing is stored, and telemetry is off."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

from agno.agent import Agent
from agno.models.openai.like import OpenAILike
from agno.run.agent import RunOutput

from bench.contest import INSTRUCTIONS, AgentFor, RunOnce, compete, lookup


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[AgentFor, None]:
    def agent_for(model: str) -> RunOnce:
        agent = Agent(
            model=OpenAILike(id=model, base_url=url, api_key="x"),
            instructions=INSTRUCTIONS,
            tools=[lookup],
            telemetry=False,
        )
        return lambda message: run(agent, message)

    yield agent_for


async def run(agent: Agent, message: str) -> str:
    """Return the text of the last model turn. A run's content is that of all its turns together."""
    text = ""
    async for event in agent.arun(message, stream=True, stream_events=True, yield_run_output=True):
        if isinstance(event, RunOutput):
            text = str((event.messages or [])[-1].content)
    return text


if __name__ == "__main__":
    compete(version("agno"), opened)
