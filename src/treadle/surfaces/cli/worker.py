"""`treadle worker`: work on the runs of a database that many processes share."""

import os
import sys
from contextlib import AsyncExitStack
from typing import Literal

import msgspec

from treadle import __version__
from treadle.app import Engine
from treadle.database_url import is_postgres, shown
from treadle.domain.errors import UsageError
from treadle.home import Home
from treadle.stores_assembly import Share
from treadle.surfaces.cli.opening import open_engine
from treadle.surfaces.cli.printing import note
from treadle.surfaces.cli.process import Stop, settle
from treadle.telemetry_assembly import Telemetry


async def work(concurrency: int, log_format: Literal["text", "json"], json: bool) -> int:
    home = Home.from_environment(os.environ)
    if not is_postgres(home.database_url):
        raise UsageError(
            f"The database {home.database_url} is SQLite's, and has one owner at a time, which does all the work: "
            "`treadle serve` is one. For workers beside it, keep runs on PostgreSQL: set "
            "TREADLE_DATABASE_URL=postgresql://USER:PASSWORD@HOST:PORT/DATABASE for all of them."
        )
    drain_seconds = home.config().server.drain_seconds
    telemetry = Telemetry.from_environment(os.environ, log_json=log_format == "json")
    engine = Engine(home=home, telemetry=telemetry, share=Share(concurrency))
    engine.models.local.notice = note
    with Stop() as stop:
        async with AsyncExitStack() as opened:
            if not await open_engine(engine, stop, opened):
                return 0
            settle()
            _announce(home, concurrency, json)
            await stop.asked.wait()
            note("stopping: what is under way is let go of at the next safe point, and goes on elsewhere")
            await engine.drain(drain_seconds)
    return 0


def _announce(home: Home, concurrency: int, json: bool) -> None:
    where = shown(home.database_url)
    if json:
        told = {"database": where, "concurrency": concurrency, "home": str(home.path), "pid": os.getpid()}
        sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
        sys.stdout.flush()
        return
    print(f"treadle {__version__} works on the runs of {where}, at most {concurrency} at once")
    print("stop with Ctrl-C", flush=True)
