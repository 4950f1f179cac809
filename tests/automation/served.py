"""A real engine with a real server on loopback, and a client."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from standardwebhooks import Webhook

from tests.engine.running import opened
from treadle.api.engine import HostedEngine
from treadle.domain.access import SCOPES, Scope
from treadle.ports.access import CreateToken
from treadle.ports.clock import Clock
from treadle.ports.model import Model
from treadle.surfaces.http.engine_server import make_application, serve_over_tcp
from treadle.surfaces.http.server import bind_socket

AGENT = "name: hero\nmodel: scripted/x\nmemory: {recall: 0, remember: false}\n"


class Answer:
    def __init__(self, status: int, body: bytes, headers: Any) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Served:
    def __init__(self, engine: HostedEngine, url: str, session: aiohttp.ClientSession, token: str) -> None:
        self.engine = engine
        self.url = url
        self._session = session
        self._token = token

    async def ask(self, method: str, path: str, body: Any = None, token: str | None = "") -> Answer:
        """As the administrator; with another token, or, for None, without any."""
        secret = self._token if token == "" else token
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        data = None if body is None else msgspec.json.encode(body)
        return await self.send(method, path, data, headers)

    async def send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> Answer:
        headers = {"Content-Type": "application/json", **headers}
        content = None if data is None else BytesIO(data)
        async with self._session.request(method, self.url + path, data=content, headers=headers) as response:
            return Answer(response.status, await response.read(), response.headers)

    async def token(self, *scopes: Scope) -> str:
        return (await self.engine.context.access.create(CreateToken("another", scopes))).secret


@asynccontextmanager
async def served(folder: Path, model: Model, clock: Clock | None = None) -> AsyncGenerator[Served, None]:
    (agents := folder / "home" / "agents" / "hero").mkdir(parents=True, exist_ok=True)
    (agents / "config.yaml").write_text(AGENT)
    (folder / "home" / "config.yaml").write_text("webhooks: {allow_local: true}\n")
    async with opened(folder, model, clock=clock) as engine:
        with closing(bind_socket("127.0.0.1", 0)) as listener:
            token = (await engine.context.access.create(CreateToken("admin", SCOPES))).secret
            app = make_application(engine)
            async with serve_over_tcp(app, listener, (), ()), aiohttp.ClientSession() as session:
                yield Served(engine, f"http://127.0.0.1:{listener.getsockname()[1]}", session, token)


def signed(secret: str, message_id: str, body: bytes, at: float) -> dict[str, str]:
    """Return the headers that the library of Standard Webhooks makes."""
    moment = datetime.fromtimestamp(at, UTC)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at)),
        "webhook-signature": Webhook(secret).sign(message_id, moment, body.decode()),
    }
