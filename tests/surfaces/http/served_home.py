"""An engine served on a real socket in this process, with a scripted model endpoint."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.fake_endpoint import Behaviour, FakeEndpoint, Policy, calls, fragment, says
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.access import SCOPES, Scope, Visibility
from treadle.domain.limits import DEFAULT_STREAM_MEMORY_BYTES
from treadle.domain.quotas import Quotas
from treadle.operations.schemas import maybe
from treadle.ports.access import CreateToken
from treadle.ports.clock import Clock
from treadle.surfaces.http.application import Application
from treadle.surfaces.http.engine_server import make_application, serve_over_tcp
from treadle.surfaces.http.open_streams import OpenStreams
from treadle.surfaces.http.server import bind_socket
from treadle.telemetry.settings import Telemetry

SETTINGS = "retry: {attempts: 0}\nmemory: {recall: 0, remember: false}\n"
ASKING = f"{SETTINGS}tools: [write_file]\napprovals: {{default: ask, via: api}}\n"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """The kind of problem that was told, in the form that every problem has."""
        assert self.headers["content-type"] == "application/problem+json", self
        told = self.json
        assert told["status"] == self.status
        assert told["title"]
        assert told["detail"]
        return told["type"].removeprefix("urn:treadle:problem:")


class ServedHome:
    """A home with the agents `one` and `two`, behind HTTP."""

    def __init__(
        self,
        engine: HostedEngine,
        home: Home,
        endpoint: FakeEndpoint,
        app: Application,
        port: int,
        http: aiohttp.ClientSession,
        token: str,
        streams: OpenStreams,
    ) -> None:
        self.streams = streams
        self.engine = engine
        self.endpoint = endpoint
        self.home = home
        self.app = app
        self.port = port
        self.token = token
        """Of an administrator."""
        self._http = http

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> Reply:
        """Send one request as an administrator, or with another token. An empty token sends none."""
        token = self.token if token is None else token
        said = {"Authorization": f"Bearer {token}"} if token else {}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        if data is not None:
            said.setdefault("Content-Type", "application/json")
        sent = None if data is None else BytesIO(data)
        async with self._http.request(method, self.url + path, data=sent, headers=said) as response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, found, await response.read())

    async def mint(
        self,
        *scopes: Scope,
        agents: Sequence[str] | None = None,
        expires_at: float | None = None,
        quotas: Quotas | None = None,
        visibility: Visibility = "all",
    ) -> str:
        limited = None if agents is None else tuple(agents)
        wanted = CreateToken(
            name="someone",
            scopes=scopes or ("read", "run"),
            agents=limited,
            expires_at=maybe(expires_at),
            quotas=quotas,
            user=None,
            visibility=visibility,
        )
        return (await self.engine.context.access.create(wanted)).secret

    async def begin(self, agent: str = "one", **body: Any) -> str:
        """Start a run, and return its ID."""
        reply = await self.ask("POST", f"/v1/agents/{agent}/runs", {"message": "Go.", **body})
        assert reply.status == 202, reply
        return reply.json["run_id"]

    async def until(self, run_id: str, status: str) -> Any:
        """Wait until the run has this state, and return the run."""
        while True:
            found = (await self.ask("GET", f"/v1/runs/{run_id}")).json
            if found["status"] == status:
                return found
            assert found["outcome"] is None, found


@asynccontextmanager
async def serve_home(
    tmp_path: Path,
    *script: Behaviour,
    policy: Policy | None = None,
    database: str | None = None,
    streams_per_token: int | None = None,
    stream_memory: int = DEFAULT_STREAM_MEMORY_BYTES,
    clock: Clock | None = None,
    more: str = "",
) -> AsyncGenerator[ServedHome, None]:
    """Serve an engine whose home has `more` settings. Every message gets the answer `Done.`, unless a script or a
    policy says otherwise."""
    async with FakeEndpoint(*script, policy=policy or (lambda _: says("Done."))) as endpoint:
        home = Home(tmp_path / "home", database)
        home.ensure()
        write_home(home.path, endpoint.url, more)
        engine = create_engine(home=home, telemetry=Telemetry(metrics=True), clock=clock)
        async with engine, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            app, listener = make_application(engine), bind_socket("127.0.0.1", 0)
            admin = await engine.context.access.create(CreateToken("admin", SCOPES))
            origins = ("https://console.example",)
            async with serve_over_tcp(app, listener, (), origins, streams_per_token, stream_memory) as streams:
                port = listener.getsockname()[1]
                yield ServedHome(engine, home, endpoint, app, port, http, admin.secret, streams)


def write_home(home: Path, url: str, more: str = "") -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(f"providers: {{fake: {{base_url: '{url}', api_key: x}}}}\n{more}")
    for name, settings in (("one", SETTINGS), ("two", SETTINGS), ("asking", ASKING)):
        folder = home / "agents" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(f"name: {name}\nmodel: fake/m\n{settings}")


def wants_a_file() -> Behaviour:
    """Return a model answer that writes a file."""
    return calls(fragment(0, "call_1", "write_file", '{"path": "x.txt", "content": "hello"}'))
