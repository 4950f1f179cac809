"""`treadle.asgi`: the HTTP API over an engine that a program owns, for a server that the program runs."""

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from treadle.api.engine import Engine, EngineAccess, access_engine
from treadle.domain.access import SCOPES, make_program_user
from treadle.domain.access import Scope as AccessScope
from treadle.domain.errors import UsageError
from treadle.domain.users import LOCAL_USER, check_user
from treadle.operations.context import Context
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.application import Application
from treadle.surfaces.http.assets import DashboardFiles
from treadle.surfaces.http.auth import (
    LOOPBACK_HOSTS,
    Authentication,
    TokenAuthentication,
    get_state,
    send_problem,
)
from treadle.surfaces.http.cookies import secure_responses
from treadle.surfaces.http.open_streams import OpenStreams
from treadle.surfaces.http.openai.errors import is_openai_path
from treadle.surfaces.http.request_encoding import NormalisedPath
from treadle.surfaces.http.response_headers import SafeResponses

logger = logging.getLogger(__name__)

Authenticate = Callable[[Request], str | Awaitable[str | None] | None]
USER_SCOPES: tuple[AccessScope, ...] = ("read", "run", "approve")
AUTHENTICATED_SECONDS = 600.0
"""How long a stream lasts that its reader continues. The reader is authenticated again then."""
PROGRAM_SCOPE = "program_scope"
"""The key in the state of a request for its scope as the program sees it."""
_OWN_SITES = ("", "same-origin", "none")
_NOT_A_PERSON = re.compile(r"tok_.*|.*/.*", re.DOTALL)
"""Names of users that belong to tokens, and to users whom other clients serve."""


def asgi(
    engine: Engine,
    *,
    authenticate: Authenticate | None = None,
    agents: Collection[str] | None = None,
    scopes: Collection[AccessScope] = USER_SCOPES,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
) -> ASGIApp:
    """Return the HTTP API over an engine as an ASGI application, to mount in a server of your own:

        engine = treadle.Engine("sqlite:///helper.db")
        api = treadle.asgi(engine, authenticate=lambda request: request.session.get("user"))

    With FastAPI and Starlette: `app.mount("/agents", api)`. Open the engine in the lifespan of the program, with
    `async with engine`. As an application of its own, it opens and closes the engine itself, and has the dashboard.

    `authenticate` gets each request as a `starlette.requests.Request`, with its path, headers, cookies and session,
    and returns the name of the user, or None if no one has signed in, which is answered with 401. It may be
    asynchronous. Sessions, runs and memories belong to that user: what belongs to others is not found. Without
    `authenticate`, requests need access tokens of Treadle (`treadle tokens create`).

    `agents` are those that users can see, by default all that were added with `engine.add_agents`. `scopes` are
    what users may do: `read`, `run`, `approve`. `hosts` are the names of the server besides those of this machine;
    `["*"]` if the program or its proxy checks the `Host` header. Pages of these `origins` may send requests."""
    if "admin" in scopes or not set(scopes) <= set(SCOPES):
        raise UsageError(f"scopes={scopes!r}: accepted: read, run, approve. Administrators use access tokens.")
    return MountedApp(engine, authenticate, agents, frozenset(scopes), (*LOOPBACK_HOSTS, *hosts), origins)


class _BuiltApp(NamedTuple):
    """The application over an engine that is open."""

    context: Context
    with_pages: ASGIApp
    """With the dashboard, whose pages have absolute addresses: for the root of a server."""
    without_pages: ASGIApp


class MountedApp:
    """ASGI application over an engine, which may be opened later, and more than once."""

    def __init__(
        self,
        engine: Engine,
        authenticate: Authenticate | None,
        agents: Collection[str] | None,
        scopes: Collection[AccessScope],
        hosts: Collection[str],
        origins: Collection[str],
    ) -> None:
        self._engine = engine
        self._authenticate = authenticate
        self._agents = agents
        self._scopes = scopes
        self._hosts = hosts
        self._origins = origins
        self._built: _BuiltApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._respond(scope, receive, send)
            case "lifespan":
                await self._live(receive, send)
            case _:
                await send({"type": "websocket.close", "code": 1003})

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = enter_mount(scope)
        try:
            built = self._find_app()
        except UsageError as error:
            logger.error("a request was refused: %s", error)
            await send_problem(Refusal(503, "EngineClosed", str(error)), inner, send)
        else:
            has_prefix = bool(scope.get("root_path"))
            await (built.without_pages if has_prefix else built.with_pages)(inner, receive, send)

    def _find_app(self) -> "_BuiltApp":
        """Return the application over the engine as it is open now. Raise UsageError if it is not."""
        access = access_engine(self._engine)
        if self._built is None or self._built.context is not access.context:
            self._built = self._build(access)
        return self._built

    def _build(self, access: EngineAccess) -> "_BuiltApp":
        app, streams = Application(access.context, access.clock, has_mcp=False), OpenStreams()
        if self._authenticate is None:
            authenticated = TokenAuthentication(
                app.asgi, streams, app.access, app.sign_ins, self._hosts, self._origins
            )
        else:
            agents = access.agents if self._agents is None else self._agents
            authenticated = ProgramAuthentication(
                app.asgi, streams, self._hosts, self._origins, self._authenticate, self._scopes, agents
            )
        return _BuiltApp(
            access.context,
            NormalisedPath(SafeResponses(DashboardFiles(authenticated, authenticated.knows_host))),
            NormalisedPath(SafeResponses(authenticated)),
        )

    async def _live(self, receive: Receive, send: Send) -> None:
        """Open the engine for as long as the server runs, unless the program has opened it."""
        await receive()
        try:
            access_engine(self._engine)
        except UsageError:
            try:
                await self._engine.__aenter__()
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            closing = self._engine.__aexit__
        else:
            closing = None
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if closing is not None:
            await closing(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})


def enter_mount(scope: Scope) -> Scope:
    """Return the scope of a request as the API sees it: its path below the mount, and a state of its own, so that
    what the program notes there is not taken for ours."""
    root, path = scope.get("root_path", ""), scope["path"]
    inner = path[len(root) :] if root and (path == root or path.startswith(f"{root}/")) else path
    state = {PROGRAM_SCOPE: scope}
    return {**scope, "path": inner or "/", "raw_path": scope.get("raw_path") or path.encode(), "state": state}


class ProgramAuthentication(Authentication):
    """Authenticates requests by a function of the program. Every path needs a user."""

    hosts_setting = "`hosts` of treadle.asgi"
    origins_setting = "`origins` of treadle.asgi"

    def __init__(
        self,
        app: ASGIApp,
        streams: OpenStreams,
        hosts: Collection[str],
        origins: Collection[str],
        authenticate: Authenticate,
        scopes: Collection[AccessScope],
        agents: Collection[str],
    ) -> None:
        super().__init__(app, streams, hosts, origins)
        self._authenticate = authenticate
        self._scopes = scopes
        self._agents = agents

    async def identify(self, scope: Scope, headers: dict[bytes, str], host: str) -> None:
        self._check_site(headers)
        state = get_state(scope)
        name = await self._find_user(Request(state[PROGRAM_SCOPE]))
        state["principal"] = make_program_user(name, self._scopes, self._agents)
        state["hold"] = partial(_hold, not is_openai_path(scope["path"]))

    def secure(self, scope: Scope, send: Send) -> Send:
        return secure_responses(send)

    def _check_site(self, headers: dict[bytes, str]) -> None:
        """Raise Refusal for a request that a page of another site sends with the cookies of the program."""
        if headers[b"sec-fetch-site"] not in _OWN_SITES and not self.allows_origin(headers[b"origin"]):
            raise Refusal(
                403,
                "ForeignOrigin",
                f"The request comes from another site. Add its origin to {self.origins_setting} to accept it.",
            )

    async def _find_user(self, request: Request) -> str:
        """Return the user whom the program names. Raise Refusal if there is none."""
        try:
            found = self._authenticate(request)
            name = await found if inspect.isawaitable(found) else found
        except HTTPException as error:
            raise Refusal(error.status_code, "Unauthorized", str(error.detail)) from None
        if name is None or name == "":
            raise Refusal(401, "Unauthorized", "You are not signed in. Sign in, then repeat the request.")
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- programs are not checked
            raise TypeError(f"`authenticate` returned {type(name).__name__}: return the name of the user as a str.")
        try:
            check_user(name)
            if name == LOCAL_USER or _NOT_A_PERSON.fullmatch(name):
                raise ValueError("it belongs to someone else")
        except ValueError as error:
            logger.warning("a request was refused: the user %.100r cannot have this name: %s", name, error)
            raise Refusal(403, "WrongUser", f"Your name cannot be used here: {error}.") from None
        return name


@contextmanager
def _end_later(cut: Callable[[], None]) -> Generator[None]:
    timer = asyncio.get_running_loop().call_later(AUTHENTICATED_SECONDS, cut)
    try:
        yield
    finally:
        timer.cancel()


def _hold(reconnects: bool, cut: Callable[[], None]) -> AbstractContextManager[None]:
    """Hold a stream open until its reader has to be authenticated again, if the reader can continue it."""
    return _end_later(cut) if reconnects else nullcontext()
