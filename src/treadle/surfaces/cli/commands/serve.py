"""`treadle serve`, `treadle worker` and `treadle openapi`."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import structs

from treadle.config.database_url import is_postgres, mask_password
from treadle.config.home_config import MAX_PROCESSES
from treadle.domain.errors import UsageError
from treadle.domain.version import VERSION
from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.shared_options import New
from treadle.surfaces.home_access.connection import configured_home
from treadle.surfaces.server.messages import ServerOptions
from treadle.surfaces.terminal.output import note, print_json
from treadle.surfaces.terminal.process import Stop, tune_for_long_run

if TYPE_CHECKING:
    from treadle.config.home import Home

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
    processes: Annotated[
        int | None,
        Option(
            min=1,
            max=MAX_PROCESSES,
            metavar="N",
            help="Processes behind the port, such as one per core. More than one needs PostgreSQL. Default: 1.",
        ),
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

    The first start prints an access token. `treadle tokens create` creates more. With several processes, SIGHUP
    replaces them one by one without refusing a connection."""
    home = configured_home(new).with_live_config()
    settings = home.config().server
    options = ServerOptions(
        host=settings.host if host is None else host,
        port=settings.port if port is None else port,
        workers=0 if no_workers else workers,
        log_json=log_format == "json",
        new=new,
    )
    number = settings.processes if processes is None else processes
    _check_workers(home, options.workers)
    if number > 1:
        _check_processes(home, number, "server.processes:" if processes is None else "--processes")
        return await _serve_in_processes(home, options, number, open_page, json)
    return await _serve_alone(home, options, open_page, json)


async def _serve_alone(home: "Home", options: ServerOptions, open_page: bool, json: bool) -> int:
    """Serve in this process."""
    from treadle.api.engine import create_engine
    from treadle.bootstrap.stores import ALL, WorkerShare
    from treadle.surfaces.home_access.engine_startup import take_over_home
    from treadle.surfaces.http.engine_server import make_application
    from treadle.surfaces.http.unix_socket import accept_attachments
    from treadle.surfaces.server.first_token import create_first_token
    from treadle.surfaces.server.listener import listen
    from treadle.telemetry.settings import Telemetry

    settings = home.config().server
    telemetry = Telemetry.from_environment(os.environ, metrics=True, log_file=True, log_json=options.log_json)
    share = ALL if options.workers is None else WorkerShare(options.workers)
    engine = create_engine(home=home, telemetry=telemetry, share=share)
    engine.models.local.notice = note
    with Stop() as stop:
        async with AsyncExitStack() as opened:
            if not await take_over_home(engine, stop, opened):
                return 0
            token = await create_first_token(engine.context.access, options.host, engine.clock.now())
            app = make_application(engine)
            url = app.address = await listen(app, options.host, options.port, settings, opened)
            await opened.enter_async_context(accept_attachments(engine, home, app))
            await opened.enter_async_context(engine.context.automation().run_in_background())
            await opened.enter_async_context(home.watch_config(note))
            await opened.enter_async_context(engine.context.watch_definitions())
            await opened.enter_async_context(engine.context.channels().run_in_background())
            tune_for_long_run()
            _announce_server(url, token, home, json)
            if _wants_link(options.host, open_page, json):
                _show_dashboard(await engine.context.sign_ins.make_code(), options.host, url, open_page, json)
            await stop.asked.wait()
            if is_postgres(home.database_url):
                note(HANDING_OVER)
                await engine.drain(settings.drain_seconds)
            else:
                note("Stopping: runs in progress continue at the next start.")
    return 0


async def _serve_in_processes(
    home: "Home", options: ServerOptions, number: int, open_page: bool, json: bool
) -> int:
    """Serve in several processes behind one port. This process starts and replaces them."""
    from treadle.surfaces.server.listener import make_url
    from treadle.surfaces.server.process_group import ProcessGroup, handle_hangup

    options = structs.replace(options, wants_link=_wants_link(options.host, open_page, json))
    group = ProcessGroup(options, number, home.path, home.config().server.drain_seconds)
    with Stop() as stop, handle_hangup(group.restart, stop):
        stop.before_exit = group.kill
        try:
            starting = asyncio.create_task(group.start())
            stopping = asyncio.create_task(stop.asked.wait())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not stop.asked.is_set() and (ready := await starting) is not None:
                url = make_url(options.host, group.port)
                _announce_server(url, ready.token, home, json, number)
                if ready.code is not None:
                    _show_dashboard(ready.code, options.host, url, open_page, json)
                failing = asyncio.create_task(group.wait_for_failure())
                await asyncio.wait((failing, stopping), return_when=asyncio.FIRST_COMPLETED)
                if failing.done():
                    failing.result()
            note(HANDING_OVER)
            await group.end()
        finally:
            await group.close()
    return 0


def _check_processes(home: "Home", number: int, setting: str) -> None:
    """Raise UsageError if the database belongs to one process."""
    if not is_postgres(home.database_url):
        raise UsageError(
            f"{setting} {number} needs PostgreSQL: the database {home.database_url} is SQLite, which one process "
            "owns. Leave it out, or set TREADLE_DATABASE_URL=postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        )


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
                from treadle.surfaces.http.engine_server import make_application
                from treadle.surfaces.http.health import ROUTES
                from treadle.surfaces.server.listener import listen

                host = settings.host if host is None else host
                url = await listen(make_application(engine, ROUTES), host, port, settings, opened)
            await opened.enter_async_context(home.watch_config(note))
            await opened.enter_async_context(engine.context.watch_definitions())
            tune_for_long_run()
            _announce_worker(home, concurrency, url, json)
            await stop.asked.wait()
            note(HANDING_OVER)
            await engine.drain(settings.drain_seconds)
    return 0


def _check_workers(home: "Home", workers: int | None) -> None:
    """Raise UsageError if no process would execute runs: on SQLite no other one can."""
    if workers == 0 and not is_postgres(home.database_url):
        raise UsageError(
            f"--no-workers needs PostgreSQL: the database {home.database_url} is SQLite, which one process owns, "
            "so no process would execute runs. Leave it out, or set TREADLE_DATABASE_URL=postgresql://…"
        )


def _announce_server(url: str, token: str | None, home: "Home", json: bool, processes: int = 1) -> None:
    if json:
        print_json({"url": url, "token": token, "home": str(home.path), "processes": processes})
        sys.stdout.flush()
        return
    several = "" if processes == 1 else f" with {processes} processes"
    print(f"treadle {VERSION} serves {home.path} at {url}{several}")
    if token is not None:
        print(f"your token, shown only once: {token}")
        print(f"try it: curl -H 'Authorization: Bearer {token}' {url}/v1/agents")
    print("stop with Ctrl-C", flush=True)


def _wants_link(host: str, opens: bool, json: bool) -> bool:
    """Return whether to make a sign-in link: to open it, or to print it on a terminal of this machine."""
    return opens or _is_private(host, json)


def _is_private(host: str, json: bool) -> bool:
    from treadle.surfaces.server.listener import is_loopback

    return sys.stdout.isatty() and is_loopback(host) and not json


def _show_dashboard(code: str, host: str, url: str, opens: bool, json: bool) -> None:
    """Print a sign-in link, only to a terminal of this machine, and open it if the user wants that."""
    from treadle.surfaces.server.sign_in_link import make_url, open_browser

    link = make_url(url, code)
    if _is_private(host, json):
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
