"""`treadle serve`, `treadle worker` and `treadle openapi`."""

import os
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal

from treadle.config.database_url import is_postgres, mask_password
from treadle.domain.errors import UsageError
from treadle.domain.version import VERSION
from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.shared_options import New
from treadle.surfaces.home_access.connection import configured_home
from treadle.surfaces.terminal.output import note, print_json
from treadle.surfaces.terminal.process import Stop, tune_for_long_run

if TYPE_CHECKING:
    from treadle.bootstrap.stores import WorkerShare
    from treadle.config.home import Home
    from treadle.domain.ids import Instant
    from treadle.operations.sign_in_service import SignInService
    from treadle.operations.token_service import TokenService

FIRST_TOKEN = "first start"
HANDING_OVER = "Stopping: runs in progress are released at the next safe point, and other workers continue them."
LogFormat = Annotated[Literal["text", "json"], Option(help="Format of the log on standard error.")]
group = Group()


def _fast_loop() -> Any:
    import uvloop

    return uvloop.new_event_loop()


@group.command("serve", loop=_fast_loop)
async def serve(
    host: Annotated[
        str | None, Option(metavar="HOST", help="The address to listen on. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, Option(min=0, max=65535, metavar="PORT", help="The port. 0: any free port.")
    ] = None,
    workers: Annotated[
        int | None,
        Option(min=0, metavar="N", help="Maximum runs that execute at a time. Default: no limit."),
    ] = None,
    no_workers: Annotated[
        bool, Option("--no-workers", help="Execute no runs. On PostgreSQL `treadle worker` executes them.")
    ] = False,
    log_format: LogFormat = "text",
    new: New = False,
    open_page: Annotated[bool, Option("--open", help="Open the dashboard in a browser, signed in.")] = False,
    json: Annotated[bool, Option("--json", help="Print the address as JSON.")] = False,
) -> int:
    """Serve the agents of the home over HTTP until Ctrl-C. Other commands connect to the server.

    The first start prints an access token. `treadle tokens create` creates more."""
    from treadle.api.engine import create_engine
    from treadle.surfaces.cli.local_listener import listen
    from treadle.surfaces.home_access.engine_startup import take_over_home
    from treadle.surfaces.http.engine_server import make_application
    from treadle.surfaces.http.unix_socket import accept_attachments
    from treadle.telemetry.settings import Telemetry

    home = configured_home(new).with_live_config()
    settings = home.config().server
    host = settings.host if host is None else host
    port = settings.port if port is None else port
    telemetry = Telemetry.from_environment(os.environ, metrics=True, log_file=True, log_json=log_format == "json")
    engine = create_engine(home=home, telemetry=telemetry, share=_share(home, 0 if no_workers else workers))
    engine.models.local.notice = note
    with Stop() as stop:
        async with AsyncExitStack() as opened:
            if not await take_over_home(engine, stop, opened):
                return 0
            token = await _first_token(engine.context.access, host, engine.clock.now())
            app = make_application(engine)
            url = app.address = await listen(app, host, port, settings, opened)
            await opened.enter_async_context(accept_attachments(engine, home, app))
            await opened.enter_async_context(engine.context.automation().run_in_background())
            await opened.enter_async_context(home.watch_config(note))
            await opened.enter_async_context(engine.context.channels().run_in_background())
            tune_for_long_run()
            _announce_server(url, token, home, json)
            await _show_dashboard(engine.context.sign_ins, host, url, open_page, json)
            await stop.asked.wait()
            if is_postgres(home.database_url):
                note(HANDING_OVER)
                await engine.drain(settings.drain_seconds)
            else:
                note("Stopping: runs in progress continue at the next start.")
    return 0


@group.command("openapi")
def openapi() -> None:
    """Print the OpenAPI description of the HTTP API. No server is needed."""
    import msgspec

    from treadle.surfaces.http.api_description import build_description

    print(msgspec.json.format(msgspec.json.encode(build_description()), indent=1).decode())


@group.command("worker", loop=_fast_loop)
async def worker(
    concurrency: Annotated[int, Option(min=1, metavar="N", help="Maximum runs that execute at a time.")] = 100,
    host: Annotated[str | None, Option(metavar="HOST", help="The address for --port. Default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None,
        Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Serve /healthz, /readyz and /metrics on this port. 0: any free port. Default: no port.",
        ),
    ] = None,
    log_format: LogFormat = "text",
    json: Annotated[bool, Option("--json", help="Print the database and the concurrency as JSON.")] = False,
) -> int:
    """Start a worker for a PostgreSQL database. It runs until Ctrl-C.

    When it is stopped, it finishes the steps in progress and releases its runs to other workers."""
    home = configured_home().with_live_config()
    if not is_postgres(home.database_url):
        raise UsageError(
            f"Workers need PostgreSQL: the database {home.database_url} is SQLite, which one process owns. Set "
            "TREADLE_DATABASE_URL=postgresql://USER:PASSWORD@HOST:PORT/DATABASE for the server and all workers, or "
            "start `treadle serve` alone."
        )
    if host is not None and port is None:
        raise UsageError(f"--host {host} needs a port: add --port PORT, or leave out --host.")
    from treadle.api.engine import create_engine
    from treadle.bootstrap.stores import WorkerShare
    from treadle.surfaces.home_access.engine_startup import open_engine
    from treadle.telemetry.settings import Telemetry

    settings = home.config().server
    telemetry = Telemetry.from_environment(os.environ, metrics=port is not None, log_json=log_format == "json")
    engine = create_engine(home=home, telemetry=telemetry, share=WorkerShare(concurrency))
    engine.models.local.notice = note
    with Stop() as stop:
        async with AsyncExitStack() as opened:
            if not await open_engine(engine, stop, opened):
                return 0
            url = None
            if port is not None:
                from treadle.surfaces.cli.local_listener import listen
                from treadle.surfaces.http.engine_server import make_application
                from treadle.surfaces.http.health import ROUTES

                host = settings.host if host is None else host
                url = await listen(make_application(engine, ROUTES), host, port, settings, opened)
            await opened.enter_async_context(home.watch_config(note))
            tune_for_long_run()
            _announce_worker(home, concurrency, url, json)
            await stop.asked.wait()
            note(HANDING_OVER)
            await engine.drain(settings.drain_seconds)
    return 0


def _share(home: "Home", workers: int | None) -> "WorkerShare":
    """Return how many runs the server executes itself. On SQLite no other process can execute them."""
    from treadle.bootstrap.stores import ALL, WorkerShare

    if workers == 0 and not is_postgres(home.database_url):
        raise UsageError(
            f"--no-workers needs PostgreSQL: the database {home.database_url} is SQLite, which one process owns, "
            "so no process would execute runs. Leave it out, or set TREADLE_DATABASE_URL=postgresql://…"
        )
    return ALL if workers is None else WorkerShare(workers)


async def _first_token(access: "TokenService", host: str, now: "Instant") -> str | None:
    """Create a token at the first start. Raises UsageError if other machines could connect before one exists."""
    from treadle.domain.access import SCOPES
    from treadle.ports.access import CreateToken
    from treadle.surfaces.cli.local_listener import is_loopback

    known = await access.list()
    if not is_loopback(host) and not any(record.is_valid(now) for record in known):
        raise UsageError(
            f"There is no valid access token, and other machines can reach {host}. Create one first: treadle "
            "tokens create NAME --scope admin"
        )
    return None if known else (await access.create(CreateToken(FIRST_TOKEN, SCOPES))).secret


def _announce_server(url: str, token: str | None, home: "Home", json: bool) -> None:
    if json:
        print_json({"url": url, "token": token, "home": str(home.path)})
        sys.stdout.flush()
        return
    print(f"treadle {VERSION} serves {home.path} at {url}")
    if token is not None:
        print(f"your token, shown only once: {token}")
        print(f"try it: curl -H 'Authorization: Bearer {token}' {url}/v1/agents")
    print("stop with Ctrl-C", flush=True)


async def _show_dashboard(sign_ins: "SignInService", host: str, url: str, opens: bool, json: bool) -> None:
    """Print a sign-in link, only to a terminal of this machine, and open it if the user wants that."""
    from treadle.surfaces.cli.local_listener import is_loopback
    from treadle.surfaces.cli.sign_in_link import make_url, open_browser

    is_private = sys.stdout.isatty() and is_loopback(host) and not json
    if not is_private and not opens:
        return
    link = make_url(url, await sign_ins.make_code())
    if is_private:
        print(f"dashboard, for one sign-in within 5 minutes: {link}", flush=True)
    if opens:
        open_browser(link)


def _announce_worker(home: "Home", concurrency: int, url: str | None, json: bool) -> None:
    database = mask_password(home.database_url)
    if json:
        facts = {"database": database, "concurrency": concurrency, "url": url, "home": str(home.path)}
        print_json({**facts, "pid": os.getpid()})
        sys.stdout.flush()
        return
    print(f"treadle {VERSION} executes runs of {database}, at most {concurrency} at a time")
    if url is not None:
        print(f"health: {url}/readyz; metrics, with a token: {url}/metrics")
    print("stop with Ctrl-C", flush=True)
