"""The floor (see bench/floor.py), in the project's own environment."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from bench.contest import INSTRUCTIONS, AgentFor, RunOnce, compete, lookup
from bench.floor import Floor, Journal, encode

TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look up the value of a key.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[AgentFor, None]:
    with tempfile.TemporaryDirectory() as directory:
        headers = {"authorization": "Bearer x", "content-type": "application/json"}
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=None)
        async with aiohttp.ClientSession(
            headers=headers, connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            journal = Journal(f"{directory}/floor.db")
            endpoint = URL(f"{url}/chat/completions")

            def agent_for(model: str) -> RunOnce:
                system = {"role": "system", "content": INSTRUCTIONS}
                request = {"model": model, "stream": True, "tools": [TOOL], "messages": [system]}
                return Floor(session, journal, endpoint, encode(request).removesuffix(b"]}"), lookup).run

            yield agent_for


if __name__ == "__main__":
    compete("", opened)
