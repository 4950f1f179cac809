"""`treadle prune --archive` writes the events to a file before it deletes them, on SQLite and PostgreSQL."""

import asyncio
import gzip
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import run

import pytest

import treadle
from tests.patience import HANG_SECONDS
from tests.surfaces.shell import Shell
from treadle.api.engine import create_engine
from treadle.backup.event_export import EventExportFile
from treadle.backup.home_backup import open_archiving_retention
from treadle.bootstrap.callers import open_owning_caller, open_persistent_readonly_caller
from treadle.bootstrap.databases import open_stores_readonly
from treadle.config.home import Home
from treadle.domain.envelope import from_json, to_json
from treadle.domain.errors import UsageError
from treadle.domain.ids import SessionId
from treadle.operations.retention import Pruned
from treadle.operations.sessions import RENAME, RenameSession
from treadle.testing.models import ScriptedModel, say

KILLED_BETWEEN = """
import asyncio, os, signal, sys
from pathlib import Path
from treadle.config.home import Home
from treadle.backup.event_export import EventExportFile
from treadle.operations.archive import SessionArchiver
from treadle.operations.retention import RetentionService
from treadle.bootstrap.databases import open_stores_exclusively
from treadle.system.clock import SystemClock

async def main():
    async with open_stores_exclusively(Home.from_environment(os.environ), "Nothing was deleted.") as stores:
        archiving = SessionArchiver(stores.sessions, stores.journal, EventExportFile(Path(sys.argv[1])))

        async def keep_and_die(session_ids):
            await archiving.keep(session_ids)
            os.kill(os.getpid(), signal.SIGKILL)

        await RetentionService(stores.deletions, SystemClock(), keep_and_die).prune(0.001, None, "test")

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Return a home with two ended sessions of three runs."""
    kept = f"sqlite:///{tmp_path}/t.db" if request.param == "sqlite" else request.getfixturevalue("url")
    made = Home(tmp_path / "home", kept)
    asyncio.run(_talk(made))
    return made


async def _talk(home: Home) -> None:
    engine = create_engine(home=home)
    engine.add_model("scripted", ScriptedModel(say("One."), say("Two. \u2028"), say("Three.")))
    agent = treadle.Agent(name="a", model="scripted/m", memory={"recall": 0, "remember": False})
    async with engine:
        for session in ("ses_1", "ses_1", "ses_2"):
            await engine.run(agent, "Count.", session=session)


async def journal(home: Home) -> list[bytes]:
    """Return all events of all sessions, as they are shown."""
    async with open_stores_readonly(home.database_url) as stores:
        found = await stores.sessions.newest(10, None)
        runs = [run for record in reversed(found) for run in await stores.sessions.runs(record.session_id)]
        return [to_json(event) for each in runs for event in await stores.journal.read(each.origin.run_id)]


async def prune_to_file(home: Home, file: Path, older_than: float = 0.001) -> Pruned:
    async with open_archiving_retention(home, EventExportFile(file)) as house:
        return await house.prune(older_than, None, "test")


def lines(file: Path) -> Sequence[bytes]:
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).split(b"\n")[:-1]


@pytest.mark.parametrize("name", ["past.jsonl", "past.jsonl.gz"])
async def test_all_events_are_in_the_file_in_their_order(home: Home, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    before = await journal(home)
    done = await prune_to_file(home, file)
    assert (done.sessions, done.runs, done.events) == (2, 3, len(before))
    assert lines(file) == before
    assert [from_json(line).type for line in before].count("run_end") == 3
    assert file.stat().st_mode & 0o777 == 0o600
    assert await journal(home) == []


def prune_until_killed(home: Home, file: Path) -> None:
    environment = os.environ | {"TREADLE_HOME": str(home.path), "TREADLE_DATABASE_URL": home.database_url}
    script = [sys.executable, "-c", KILLED_BETWEEN, str(file)]
    assert run(script, env=environment, timeout=HANG_SECONDS).returncode == -9


async def test_a_process_killed_before_deletion_leaves_the_archive_and_the_events(
    home: Home, tmp_path: Path
) -> None:
    before = await journal(home)
    prune_until_killed(home, tmp_path / "past.jsonl.gz")
    assert lines(tmp_path / "past.jsonl.gz") == before
    assert await journal(home) == before
    await prune_to_file(home, tmp_path / "again.jsonl.gz")
    assert lines(tmp_path / "again.jsonl.gz") == before
    assert await journal(home) == []


async def test_an_archive_is_never_written_over_an_existing_file(home: Home, tmp_path: Path) -> None:
    shell, file = Shell(home.path), str(tmp_path / "past.jsonl")
    await prune_to_file(home, Path(file), older_than=86400)
    assert not Path(file).exists()
    Path(file).write_bytes(b"mine")
    shell.environment["TREADLE_DATABASE_URL"] = home.database_url

    before = await journal(home)
    refused = await shell("prune", "--older-than", "1ms", "--archive", file, "--yes")
    assert (refused.code, "already exists" in refused.complaint) == (2, True)
    assert await journal(home) == before
    told = await shell("prune", "--older-than", "1ms", "--archive", f"{file}.gz", "--yes")
    assert told.err.startswith(f"Wrote their events to {file}.gz first.\nDeleted 2 sessions (3 runs")
    assert [json.loads(line)["session_id"] for line in lines(Path(f"{file}.gz"))][-1] == "ses_2"
    async with open_persistent_readonly_caller(home) as caller:
        house = caller.context.retention
        assert await house.idle(0.001) == []
    assert Path(file).read_bytes() == b"mine"


async def test_no_event_is_deleted_if_the_archive_cannot_be_written(home: Home, tmp_path: Path) -> None:
    before = await journal(home)

    with pytest.raises(UsageError, match="cannot be written: File name too long"):
        await prune_to_file(home, tmp_path / f"{'x' * 300}.jsonl")
    assert await journal(home) == before


@pytest.mark.parametrize("name", ["past.txt", "no/past.jsonl"])
def test_an_invalid_archive_name_is_refused_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        EventExportFile(tmp_path / name)


async def test_a_session_title_is_exported(home: Home, tmp_path: Path) -> None:
    async with open_stores_readonly(home.database_url) as stores:
        shown = await stores.sessions.find(SessionId("ses_1"))
        assert shown is not None
        assert shown.title == "Count."
    async with open_owning_caller(home) as caller:
        await caller.call(RENAME, RenameSession(SessionId("ses_1"), "Numbers"))
    await prune_to_file(home, file := tmp_path / "past.jsonl")
    titles = [each for line in lines(file) if (each := json.loads(line))["type"] == "session_title"]
    assert titles == [{"type": "session_title", "session_id": "ses_1", "title": "Numbers"}]
