"""Write the dump of this version's format: `python -m tests.stores.corpus.make`. Run it once for each format, when
its migration is new, and commit what it writes.

The database is that of an engine that was killed in the middle: a run that ended, one with a call in progress, one
after it in the same session, one that was interrupted and waits, and an event of an unknown type."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from treadle import Agent, tool
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.ports.model import ModelRequest
from treadle.stores.sqlite.connection import current_version
from treadle.testing.models import FunctionModel, ScriptStep, Silence, ask, call, say
from treadle.testing.time import CountingIds, FakeClock

FOLDER = Path(__file__).parent
HOME = Home(Path("/home/ada/.treadle"))
"""It is not created: the database is elsewhere, and no tool works in a folder."""
FUTURE = b'{"colour":  "blue", "when":[1.50, 1e3]}'
"""The data of an event that only a later version knows."""


@tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return f"There is a key in {place}."


@tool
async def post(text: str) -> str:
    """Post a letter. It never comes back in this version."""
    await asyncio.Event().wait()
    return text


def answer(request: ModelRequest) -> ScriptStep:
    last = request.conversation.messages[-1]
    if last.role == "tool":
        return say("The key is in the hall.")
    if "post" in last.text:
        return ask(call("post", text="hello"), text="I post it.")
    if "think" in last.text:
        return Silence("Let me think")
    return ask(call("look", place="the hall"))


AGENT = Agent(name="ada", model="fake/m-1", persona="Be brief.", tools=[look, post])


async def write(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}", home=HOME, clock=FakeClock(1_700_000_000.0), ids=CountingIds())
    engine.add_model("fake", FunctionModel(answer))
    async with engine:
        await engine.run(AGENT, "Where is the key?", session="ses_first", key="the first")
        posting = await engine.submit(AGENT, "Please post a letter.", session="ses_first")
        await engine.submit(AGENT, "And where is the key now?", session="ses_first")
        thinking = await engine.submit(AGENT, "Please think.", session="ses_second")
        await wait_for_type(engine, posting, "tool_call_start")
        await wait_for_type(engine, thinking, "llm_request")
        await engine.interrupt(thinking)
        await wait_for_type(engine, thinking, "run_waiting")
        await engine.steer(posting, "Use the red stamp.")
        (FOLDER / f"v{current_version()}.sql").write_text("\n".join(dump(str(path))) + "\n")


async def wait_for_type(engine: HostedEngine, run_id: str, type_: str) -> None:
    async for event in engine.events(run_id):
        if event.type == type_:
            return


def dump(path: str) -> Iterator[str]:
    """Yield the database as statements, without names of this machine."""
    database: Any = apsw.Connection(path)
    database.set_busy_timeout(5000)
    database.execute("BEGIN IMMEDIATE")
    database.execute("UPDATE runs SET worker = 'somewhere:1:00000000' WHERE worker IS NOT NULL")
    database.execute(
        "INSERT INTO events (run, sequence, event_id, timestamp, type, version, data) "
        "SELECT runs.id, max(sequence) + 1, 'evt_future', 1700000000.0, 'from_the_future', 9, ? "
        "FROM runs JOIN events ON run = runs.id WHERE outcome IS NULL GROUP BY runs.id",
        (FUTURE,),
    )
    yield from tables_of(database)
    database.execute("ROLLBACK")
    database.close()


def tables_of(database: Any) -> Iterator[str]:
    """Yield the statements that make a database like this one, with its rows."""
    yield "BEGIN;"
    made_by_sqlite = {row[1] for row in database.execute("PRAGMA table_list") if row[2] == "shadow"}
    for name, sql in database.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall():
        if name in made_by_sqlite or name.startswith("sqlite_"):
            continue
        yield f"{sql};"
        if sql.startswith("CREATE TABLE"):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
            quoted = " || ', ' || ".join(f"quote({column})" for column in columns)
            for (row,) in database.execute(f"SELECT {quoted} FROM {name}"):  # noqa: S608 -- names of our own tables
                yield f"INSERT INTO {name} VALUES ({row});"  # noqa: S608 -- quoted by SQLite
    yield "INSERT INTO memory_words (memory_words) VALUES ('rebuild');"
    for index in ("memory_words", "said_parts"):
        yield f"INSERT INTO {index} ({index}, rank) VALUES ('secure-delete', 1);"  # noqa: S608 -- names of our own tables
    for pragma in ("application_id", "user_version"):
        yield f"PRAGMA {pragma} = {database.execute(f'PRAGMA {pragma}').fetchall()[0][0]};"
    yield "COMMIT;"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write(Path(folder) / "corpus.db"))
