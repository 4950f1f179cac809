"""`treadle worker`: work on the runs of a database that many processes share."""

import os
import sys
from contextlib import AsyncExitStack
from typing import Literal

from msgspec import Struct

from treadle import __version__
from treadle.api.engine import Engine, create_engine
from treadle.bootstrap.stores import WorkerShare
from treadle.config.database_url import is_postgres, mask_password
from treadle.config.home import Home, ServerSettings
from treadle.domain.errors import UsageError
from treadle.surfaces.cli.engine_startup import open_engine
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.process import Stop, settle
from treadle.surfaces.cli.terminal import print_json
from treadle.telemetry.settings import Telemetry


class Wanted(Struct, frozen=True):
    """What was asked for on the command line."""

    concurrency: int
    host: str | None = None
    """None: as config.yaml says."""
    port: int | None = None
    """Where to answer whoever keeps it running; None: nowhere."""
    log_format: Literal["text", "json"] = "text"
    json: bool = False


async def work(wanted: Wanted) -> int:
    home = Home.from_environment(os.environ)
    if not is_postgres(home.database_url):
        raise UsageError(
            f"The database {home.database_url} is SQLite's, and has one owner at a time, which does all the work: "
            "`treadle serve` is one. For workers beside it, keep runs on PostgreSQL: set "
            "TREADLE_DATABASE_URL=postgresql://USER:PASSWORD@HOST:PORT/DATABASE for all of them."
        )
    if wanted.host is not None and wanted.port is None:
        raise UsageError(f"Nothing listens on {wanted.host} without a port: add --port PORT, or leave out --host.")
    settings = home.config().server
    telemetry = Telemetry.from_environment(
        os.environ, metrics=wanted.port is not None, log_json=wanted.log_format == "json"
    )
    engine = create_engine(home=home, telemetry=telemetry, share=WorkerShare(wanted.concurrency))
    engine.models.local.notice = note
    with Stop() as stop:
        async with AsyncExitStack() as opened:
            if not await open_engine(engine, stop, opened):
                return 0
            url = await _listen(engine, home, wanted, settings, opened)
            settle()
            _announce(home, wanted, url)
            await stop.asked.wait()
            note("stopping: what is under way is let go of at the next safe point, and goes on elsewhere")
            await engine.drain(settings.drain_seconds)
    return 0


async def _listen(
    engine: Engine, home: Home, wanted: Wanted, settings: ServerSettings, opened: AsyncExitStack
) -> str | None:
    """Answer whoever keeps it running, where a port was given; the URL."""
    if wanted.port is None:
        return None
    from treadle.surfaces.cli.local_listener import listen  # who does not listen need not wait for the server
    from treadle.surfaces.http.engine_server import make_application
    from treadle.surfaces.http.health import ROUTES

    host = settings.host if wanted.host is None else wanted.host
    return await listen(make_application(engine, ROUTES), host, wanted.port, settings, opened)


def _announce(home: Home, wanted: Wanted, url: str | None) -> None:
    where, most = mask_password(home.database_url), wanted.concurrency
    if wanted.json:
        told = {"database": where, "concurrency": most, "url": url, "home": str(home.path), "pid": os.getpid()}
        print_json(told)
        sys.stdout.flush()
        return
    print(f"treadle {__version__} works on the runs of {where}, at most {most} at once")
    if url is not None:
        print(f"how it is: {url}/readyz; what it does: {url}/metrics, with a token")
    print("stop with Ctrl-C", flush=True)
