"""Treadle on a PostgreSQL server of its own. The server's cost is not in the table, because it is another
process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import treadle
from bench.contest import AgentFor, compete
from bench.contestants.treadle import agents
from bench.pgserver import open_database


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[AgentFor, None]:
    with open_database() as kept:
        async with treadle.Engine(database=kept) as engine:
            yield agents(engine, url, "chat_completions")


if __name__ == "__main__":
    compete(treadle.__version__, opened)
