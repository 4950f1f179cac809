"""LangGraph's agent with its SQLite checkpointer, streaming; LangSmith tracing is off."""

import itertools
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import SecretStr

from bench.contest import INSTRUCTIONS, MAX_STEPS, AgentFor, RunOnce, compete, lookup

threads = itertools.count(1)


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[AgentFor, None]:
    os.environ["LANGSMITH_TRACING"] = "false"
    with tempfile.TemporaryDirectory() as directory:
        async with AsyncSqliteSaver.from_conn_string(f"{directory}/langgraph.db") as saver:

            def agent_for(model: str) -> RunOnce:
                chat = ChatOpenAI(model=model, base_url=url, api_key=SecretStr("x"), streaming=True)
                agent = create_agent(chat, [lookup], system_prompt=INSTRUCTIONS, checkpointer=saver)
                return lambda message: run(agent, message)

            yield agent_for


async def run(agent: Any, message: str) -> str:
    """Return the text of the last model turn: what was streamed since the last tool result."""
    text: list[str] = []
    config = {"configurable": {"thread_id": str(next(threads))}, "recursion_limit": 3 * MAX_STEPS}
    messages = {"messages": [{"role": "user", "content": message}]}
    async for part, _ in agent.astream(messages, config, stream_mode="messages"):
        if isinstance(part, AIMessageChunk):
            text.append(str(part.content))
        else:
            text.clear()
    return "".join(text)


if __name__ == "__main__":
    compete(version("langgraph"), opened)
