"""Treadle with the features that can be compared: journal with fsync, events, guards. Memory is off."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import treadle
from bench.contest import INSTRUCTIONS, MAX_STEPS, AgentFor, RunOnce, compete, lookup
from treadle.domain.events import Token
from treadle.domain.providers import ApiMode

NOT_COMPARED = {"recall": 0, "remember": False}
"""None of the peers has a memory. `python -m bench.recall cost` measures its cost."""
ENDLESS = 10_000_000
"""A window in tokens that is never filled: the endpoint counts no tokens, and nothing is summarised."""
tool = treadle.tool(effect="read", repeatable=True)(lookup)


@asynccontextmanager
async def opened(url: str, api_mode: ApiMode = "chat_completions") -> AsyncGenerator[AgentFor, None]:
    with tempfile.TemporaryDirectory() as directory:
        async with treadle.Engine(database=f"sqlite:///{directory}/treadle.db") as engine:
            yield agents(engine, url, api_mode)


def agents(engine: treadle.Engine, url: str, api_mode: ApiMode) -> AgentFor:
    """Return the agents of the contest, on any store."""
    engine.add_provider("fake", base_url=url, api_mode=api_mode, api_key="x")

    def agent_for(model: str) -> RunOnce:
        agent = treadle.Agent(
            name=model,
            model=f"fake/{model}",
            persona=INSTRUCTIONS,
            tools=[tool],
            limits={"max_steps": MAX_STEPS, "context_window": ENDLESS},
            memory=NOT_COMPARED,
        )
        listens = model.startswith("tokens-")
        return lambda message: (listen if listens else run)(engine, agent, message)

    return agent_for


async def run(engine: treadle.Engine, agent: treadle.Agent, message: str) -> str:
    return (await engine.run(agent, message)).text


async def listen(engine: treadle.Engine, agent: treadle.Agent, message: str) -> str:
    """Consume every token as it arrives, so that the cost of a token includes its delivery."""
    texts = [event.data.text async for event in engine.stream(agent, message) if isinstance(event.data, Token)]
    return "".join(texts)


if __name__ == "__main__":
    compete(treadle.__version__, opened)
