"""OpenAI's official client, connected to an agent with a scripted model endpoint."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import openai

from tests.fake_endpoint import Behaviour, FakeEndpoint, Policy
from tests.surfaces.http.served_home import ServedHome, serve_home
from treadle.api.engine import HostedEngine

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Talking(NamedTuple):
    server: ServedHome
    client: Any
    """An `openai.AsyncOpenAI`, unchecked: much that is sent here is none of its types. It has a token that may run
    agents, and no patience for failures."""
    endpoint: FakeEndpoint
    engine: HostedEngine

    @property
    def sent(self) -> list[Any]:
        """What the model was sent, without the system prompt."""
        return [one for one in self.endpoint.requests[-1].json["messages"] if one["role"] != "system"]

    @property
    def system(self) -> str:
        return "".join(
            one["content"] for one in self.endpoint.requests[-1].json["messages"] if one["role"] == "system"
        )

    def another(self, token: str) -> Any:
        """The client with this token."""
        return self.client.with_options(api_key=token)


@asynccontextmanager
async def talking(
    tmp_path: Path,
    *script: Behaviour,
    policy: Policy | None = None,
    more: str = "",
    home: str = "",
    database: str | None = None,
) -> AsyncGenerator[Talking, None]:
    """Serve the agent `one` with a persona and these settings, in a home with more settings, and yield the
    clients."""
    async with serve_home(tmp_path, *script, policy=policy, more=home, database=database) as server:
        file = server.home.agent_file("one")
        file.write_text(f"{file.read_text()}persona: You are one.\n{more}")
        token = await server.mint("run")
        http = openai.DefaultAsyncHttpxClient(verify=False)  # to read all certificates takes long
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(api_key=token, base_url=url, max_retries=0, http_client=http) as client:
            yield Talking(server, client, server.endpoint, server.engine)
