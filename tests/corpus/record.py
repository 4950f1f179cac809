"""Record the golden corpus from the code as it is: `python -m tests.corpus.record`.

The committed files were recorded once, with the baseline of the formats. A change that makes an old journal project
another request is a fault, not a reason to record again."""

import asyncio
import shutil
import tempfile
from pathlib import Path

from tests.corpus.databases import (
    DATA,
    database_of,
    dump_postgres,
    dump_sqlite,
    load_postgres,
    load_sqlite,
    projection_of,
    save,
)
from tests.corpus.projection import project
from tests.corpus.stories import PRICES, begin, open_engine, tell
from tests.stores.postgres.servers import shared
from treadle.config.home import Home
from treadle.system.clock import SystemClock
from treadle.testing.time import CountingIds, FakeClock

EPOCH = 1_700_000_000.0


async def record(store: str, first: str, url: str, folder: Path) -> None:
    """Bring engines into every state of the corpus, copy their database, and project its requests.

    The first engine is left as if it had been killed: the second one works on a copy of its database."""
    block, ids = asyncio.Event(), CountingIds()
    clock = FakeClock(EPOCH) if store == "sqlite" else SystemClock()  # PostgreSQL goes by the clock of its server
    async with open_engine(first, Home(folder), block, clock=clock, ids=ids) as engine:
        await begin(engine)
        lines = await dump(first)
    if isinstance(clock, FakeClock):
        load_sqlite(Path(url.removeprefix("sqlite:///")), lines)
        clock.pass_time(60)
    else:
        await load_postgres(url, lines)
    async with open_engine(url, Home(folder), block, clock=clock, ids=ids) as engine:
        await tell(engine, block)
        save(database_of(store), "\n".join(await dump(url)).encode())
        save(projection_of(store), await project(engine.service))


def make_home(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.yaml").write_text(PRICES)
    return folder


async def dump(url: str) -> list[str]:
    """Return the lines of a database that is in use."""
    path = url.removeprefix("sqlite:///")
    return list(dump_sqlite(path)) if path != url else await dump_postgres(url)


def main() -> None:
    DATA.mkdir(exist_ok=True)
    folder = (
        Path(tempfile.gettempdir()) / "treadle-corpus"
    )  # workspaces are recorded, so it has the same name each time
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    sqlite = (f"sqlite:///{folder}/first.db", f"sqlite:///{folder}/corpus.db")
    asyncio.run(record("sqlite", *sqlite, make_home(folder / "sqlite")))
    databases = shared("corpus")
    with databases.one() as first, databases.one("template1") as url:
        asyncio.run(record("postgres", first, url, make_home(folder / "postgres")))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
