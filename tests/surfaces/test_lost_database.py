"""A database file that is deleted, moved, replaced, missing, damaged or of another program."""

import asyncio
import json
import sqlite3
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import treadle
from tests.fake_endpoint import FakeEndpoint, says
from tests.patience import HANG_SECONDS
from tests.remote.test_attached_commands import make_shell
from tests.surfaces.http.process import Serving
from tests.surfaces.shell import Shell
from treadle.domain.errors import StoreLost, StoreMissing
from treadle.testing.models import ScriptedModel, say

AGENT = treadle.Agent(name="hero", model="scripted/x", memory={"recall": 0, "remember": False})
READING = (
    ("runs", "list"),
    ("sessions", "list"),
    ("usage",),
    ("approvals", "list"),
    ("tokens", "list"),
    ("hooks", "list"),
)


def make_engine(home: Path, new: bool = False) -> treadle.Engine:
    engine = treadle.Engine(home=home, new=new)
    engine.add_model("scripted", ScriptedModel(*[say("Done.")] * 5))
    return engine


def ask(url: str, token: str, body: object = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with urlopen(Request(url, data, headers), timeout=HANG_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("what", ["deleted", "moved", "replaced", "-wal", "-shm", "folder"])
async def test_an_engine_accepts_nothing_when_its_database_is_gone(tmp_path: Path, what: str) -> None:
    home, database = tmp_path / "home", tmp_path / "home" / "treadle.db"

    async with make_engine(home) as engine:
        assert (await engine.run(AGENT, "Hello.")).text == "Done."
        match what:
            case "deleted":
                database.unlink()
            case "moved":
                database.rename(tmp_path / "elsewhere")
            case "replaced":
                (tmp_path / "other").write_bytes(database.read_bytes())
                (tmp_path / "other").replace(database)
            case "folder":
                home.rename(tmp_path / "elsewhere")
            case _:
                database.with_name(f"{database.name}{what}").unlink()
        for _ in range(2):
            with pytest.raises(StoreLost, match=r"was (deleted or moved|replaced) while this process used it"):
                await engine.submit(AGENT, "Gone.")


async def test_a_server_is_not_ready_and_refuses_runs_when_its_database_is_gone(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
        shell = make_shell(tmp_path, endpoint)
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        ready, runs = f"{serving.url}/readyz", f"{serving.url}/v1/agents/default/runs"
        assert (await asyncio.to_thread(ask, ready, serving.token))[0] == 200
        (shell.home / "treadle.db").unlink()
        body = {"message": "Go."}
        status, text = await asyncio.to_thread(ask, runs, serving.token, body)
        assert (status, "deleted or moved" in text) == (503, True)
        await asyncio.sleep(1.0)  # as long as a result is valid
        assert (await asyncio.to_thread(ask, ready, serving.token))[0] == 503
        await asyncio.to_thread(serving.kill)
        refused = await shell("run", "Go.")
        assert refused.code == 1
        assert "this home had one" in refused.complaint
        assert "--new" in (await shell("tokens", "create", "me")).complaint
        assert (await shell("run", "--new", "Go.")).out == "Done.\n"
        assert (await shell("run", "Go.")).out == "Done.\n"


async def test_a_program_does_not_replace_a_missing_database(tmp_path: Path) -> None:
    home = tmp_path / "home"

    async def run(new: bool) -> str:
        async with make_engine(home, new) as engine:
            return (await engine.run(AGENT, "Hello.")).text

    assert await run(False) == "Done."
    assert await run(False) == "Done."
    for content in (None, b""):
        for file in home.glob("treadle.db*"):
            file.unlink()
        if content is not None:
            (home / "treadle.db").write_bytes(content)
        with pytest.raises(StoreMissing, match=r"is missing or empty, but this home had one.*Engine\(new=True\)"):
            await run(False)
    assert await run(True) == "Done."
    assert await run(False) == "Done."
    home.rename(tmp_path / "moved")
    assert await run(False) == "Done.", "another folder has no marker"


@pytest.mark.parametrize("command", READING, ids=" ".join)
async def test_reading_the_file_of_another_program_says_so(shell: Shell, command: tuple[str, ...]) -> None:
    shell.configure()
    with sqlite3.connect(shell.home / "treadle.db") as other:
        other.execute("CREATE TABLE tracks (title TEXT)")
    other.close()
    done = await shell(*command)
    assert done.code == 1
    assert "is a SQLite database of another program. Nothing was changed." in done.complaint


async def test_reading_a_damaged_page_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"

    async with make_engine(home) as engine:
        await engine.run(AGENT, "Hello.")
    with sqlite3.connect(home / "treadle.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [(page, size)] = database.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master WHERE name = 'runs'"
        )
    database.close()
    with (home / "treadle.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xaa" * size)
    done = await Shell(home)("runs", "list")
    assert done.code == 1
    assert "is damaged" in done.complaint
    assert "treadle restore FILE --force" in done.complaint
