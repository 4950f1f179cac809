"""Owners on SQLite: queries for one user use an index, and older data belongs to the local user."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.stores.corpus import make
from treadle import Agent
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.errors import UnknownSession, UsageError
from treadle.domain.ids import RunId
from treadle.stores.sqlite.connection import SQL, connect, open_database
from treadle.testing.models import FunctionModel, say

STATEMENTS = (
    "basics_of_session",
    "owner_of_session",
    "latest_runs_of_sessions_of_owner",
    "latest_runs_of_sessions_in_workspace",
    "sessions",
    "memories_of_owner",
    "memories_of_agent_owner",
    "latest_notes_of_owner",
    "same_memory",
    "any_memory_of_owner",
    "any_memory_above_of_owner",
    "memories_above_of_owner",
    "memory_space",
    "spaces_of_memory",
)


@pytest.mark.parametrize("name", STATEMENTS)
def test_queries_use_an_index(name: str) -> None:
    """No table of runs or memories is read from end to end."""
    with closing(open_database(":memory:")) as db:
        values = [None] * max(SQL[name].count("?"), 12)
        used = values[: SQL[name].count("?")] if "?1" not in SQL[name] else values[: _parameters(SQL[name])]
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", used)]
    read = [step for step in plan if step.startswith("SCAN") and ("runs" in step or "memories" in step)]
    assert read == [], plan


def _parameters(statement: str) -> int:
    return max(number for number in range(1, 13) if f"?{number}" in statement)


@pytest.mark.parametrize("dump", sorted(make.FOLDER.glob("v*.sql")), ids=lambda dump: dump.stem)
def test_data_of_earlier_versions_belongs_to_the_local_user(dump: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "treadle.db")
    with closing(connect(path)) as old:
        old.execute(dump.read_text())
        tables = {row[0] for row in old.execute("SELECT name FROM sqlite_schema")}
        if "tokens" in tables and dump.stem != "v7":
            old.execute(
                "INSERT INTO tokens (token_id, name, digest, scopes, created_at) VALUES (?, 'x', x'00', ?, 1)",
                ("tok_1", '["run"]'),
            )
    with closing(open_database(path)) as db:
        assert {row[0] for row in db.execute("SELECT owner FROM runs")} == {"local"}
        assert list(db.execute("SELECT owner, visibility FROM tokens")) in ([], [(None, "all")])


def engine_on(folder: Path) -> HostedEngine:
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder))
    engine.add_model("fake", FunctionModel(lambda request: say("done")))
    return engine


async def test_a_program_names_the_user_of_a_run(tmp_path: Path) -> None:
    """Sessions of others do not exist for that user. Without a user, the owner of the session owns the run."""

    agent = Agent(name="ada", model="fake/m", memory={"embedder": "none"})
    async with engine_on(tmp_path) as engine:
        alice = await engine.run(agent, "Hello.", user="alice", key="k")
        local = await engine.run(agent, "Hello.")
        again = await engine.run(agent, "And now?", session=alice.session_id)
        owners = [(await engine.service.run(RunId(run.run_id))).owner for run in (alice, local, again)]
        assert owners == ["alice", "local", "alice"]
        with pytest.raises(UnknownSession):
            await engine.run(agent, "Hello.", session=alice.session_id, user="bob")
        with pytest.raises(UnknownSession):
            await engine.run(agent, "Hello.", session=local.session_id, user="bob")
        with pytest.raises(UsageError, match="in use already"):
            await engine.run(agent, "Hello.", user="bob", key="k")
        with pytest.raises(UsageError, match="could be mistaken for the local user"):
            await engine.run(agent, "Hello.", user="Local")
        assert len(await engine.service.runs()) == 3
