"""`treadle serve`: the agents of the home behind an API."""

import os
import sys
from contextlib import AsyncExitStack
from typing import Literal

from msgspec import Struct

from treadle import __version__
from treadle.api.engine import create_engine
from treadle.bootstrap.stores import ALL, WorkerShare
from treadle.config.database_url import is_postgres
from treadle.config.home import Home
from treadle.domain.access import SCOPES
from treadle.domain.errors import UsageError
from treadle.domain.ids import Instant
from treadle.operations.token_service import NewToken, TokenService
from treadle.surfaces.cli.engine_startup import take_over_home
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.local_listener import is_loopback, listen
from treadle.surfaces.cli.process import Stop, settle
from treadle.surfaces.cli.terminal import print_json
from treadle.surfaces.http.engine_server import make_application
from treadle.surfaces.http.unix_socket import accept_attachments
from treadle.telemetry.settings import Telemetry

FIRST_TOKEN = "first start"
LogFormat = Literal["text", "json"]


class Wanted(Struct, frozen=True):
    """What was asked for on the command line; None: as config.yaml says."""

    host: str | None = None
    port: int | None = None
    log_format: LogFormat = "text"
    json: bool = False
    workers: int | None = None
    """Runs that are worked on at once; None: as many as come."""


async def serve(wanted: Wanted) -> int:
    home = Home.from_environment(os.environ)
    settings = home.config().server
    host = settings.host if wanted.host is None else wanted.host
    port = settings.port if wanted.port is None else wanted.port
    telemetry = Telemetry.from_environment(
        os.environ, metrics=True, log_file=True, log_json=wanted.log_format == "json"
    )
    engine = create_engine(home=home, telemetry=telemetry, share=_share(home, wanted.workers))
    engine.models.local.notice = note
    with Stop() as stop:
        async with AsyncExitStack() as opened:
            if not await take_over_home(engine, stop, opened):
                return 0
            token = await _first_token(engine.context.access, host, engine.clock.now())
            app = make_application(engine)
            url = await listen(app, host, port, settings, opened)
            await opened.enter_async_context(accept_attachments(engine, home, app))
            await opened.enter_async_context(engine.context.automation().at_work())
            settle()
            _announce(url, token, home, wanted.json)
            await stop.asked.wait()
            if is_postgres(home.database_url):
                note("stopping: what is under way is let go of at the next safe point, and goes on elsewhere")
                await engine.drain(settings.drain_seconds)
            else:
                note("stopping: what is under way goes on at the next start")
    return 0


def _share(home: Home, workers: int | None) -> WorkerShare:
    """What the server works on itself. Where nobody else can work, it must."""
    if workers == 0 and not is_postgres(home.database_url):
        raise UsageError(
            f"The database {home.database_url} is SQLite's, and has one owner: if this process does no work, "
            "nobody does. Leave --no-workers out, or keep runs on PostgreSQL: TREADLE_DATABASE_URL=postgresql://…"
        )
    return ALL if workers is None else WorkerShare(workers)


async def _first_token(access: TokenService, host: str, now: Instant) -> str | None:
    """A token for whoever starts the server for the first time; where a stranger might be first, UsageError."""
    known = await access.list()
    if not is_loopback(host) and not any(record.is_valid(now) for record in known):
        raise UsageError(
            f"There is no access token that is valid, and {host} can be reached from other machines. Make one "
            "first: treadle tokens create NAME --scope admin"
        )
    return None if known else (await access.create(NewToken(FIRST_TOKEN, SCOPES))).secret


def _announce(url: str, token: str | None, home: Home, json: bool) -> None:
    if json:
        print_json({"url": url, "token": token, "home": str(home.path)})
        sys.stdout.flush()
        return
    print(f"treadle {__version__} serves {home.path} at {url}")
    if token is not None:
        print(f"your token, shown this once: {token}")
        print(f"try it: curl -H 'Authorization: Bearer {token}' {url}/v1/agents")
    print("stop with Ctrl-C", flush=True)
