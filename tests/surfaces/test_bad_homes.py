"""A home that cannot be used is reported in one sentence with what to do, by every command that needs it."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fake_endpoint import FakeEndpoint
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import Terminal
from treadle.stores.baseline import LAST_COMMIT_BEFORE_BASELINE
from treadle.stores.sqlite.connection import BASELINE_VERSION, open_database

UNWRITABLE = Path("/proc/self/fdinfo")
"""A folder that exists, and in which not even root can create a file."""
GOOD = "{providers: {fake: {base_url: 'http://127.0.0.1:9/v1'}}, defaults: {model: fake/m}}"
FAILED, USAGE = 1, 2
NOWHERE = "http://127.0.0.1:9/v1"

READS = (("runs", "list"), ("sessions", "list"), ("usage",), ("approvals", "list"), ("schedules", "list"))
CHANGES = (
    ("run", "Hello."),
    ("memory", "add", "A fact."),
    ("tokens", "create", "laptop"),
    ("serve", "--port", "0"),
)
SETTINGS = (("run", "Hello."), ("models", "list"), ("memory", "list"), ("agents", "create", "b"), ("mcp", "list"))
FILES = (("vault", "list"), ("agents", "list"), ("skills", "list"), ("backup", "b.tar"))


def make_file(home: Path) -> None:
    home.write_text("I am a file.")


def have_a_database_of_version(home: Path, version: int) -> None:
    make_good(home)
    open_database(str(home / "treadle.db")).close()
    database = sqlite3.connect(home / "treadle.db")
    database.execute(f"PRAGMA user_version = {version}")
    database.close()


def have_a_newer_database(home: Path) -> None:
    have_a_database_of_version(home, 999)


def have_a_damaged_database(home: Path) -> None:
    make_good(home)
    (home / "treadle.db").write_bytes(b"broken" * 1000)


def have_a_folder_as_database(home: Path) -> None:
    make_good(home)
    (home / "treadle.db").mkdir()


def have_a_folder_as_settings(home: Path) -> None:
    (home / "config.yaml").mkdir(parents=True)


def have_settings_in_latin_1(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_bytes("# Grüße\n".encode("latin-1"))


def make_good(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(GOOD)


@pytest.mark.parametrize(
    ("spoil", "commands", "code", "says", "advises"),
    [
        (
            make_file,
            (*READS, *CHANGES, *SETTINGS, *FILES),
            USAGE,
            "is not a folder",
            "Set TREADLE_HOME to a folder",
        ),
        (
            have_a_newer_database,
            (*READS, *CHANGES),
            FAILED,
            "was written by a newer Treadle",
            "Install that version",
        ),
        (have_a_damaged_database, (*READS, *CHANGES), FAILED, "is damaged", "treadle restore FILE --force"),
        (have_a_folder_as_database, (*READS, *CHANGES), FAILED, "treadle.db is a folder", "Move it away"),
        (have_a_folder_as_settings, SETTINGS, USAGE, "config.yaml: it is a folder", "move it away"),
        (have_settings_in_latin_1, SETTINGS, USAGE, "config.yaml: byte 5 is not UTF-8", "save the file as UTF-8"),
    ],
)
async def test_a_bad_home_is_reported_with_what_to_do(
    shell: Shell,
    tmp_path: Path,
    spoil: Callable[[Path], None],
    commands: tuple[tuple[str, ...], ...],
    code: int,
    says: str,
    advises: str,
) -> None:
    spoil(shell.home)
    shell.cwd = tmp_path

    for words in commands:
        done = await shell(*words)
        assert done.code == code, (words, done)
        assert says in done.complaint, words
        assert advises in done.complaint, words


async def test_a_home_from_before_the_baseline_is_refused_and_left_as_it_is(shell: Shell, tmp_path: Path) -> None:
    shell.cwd = tmp_path

    assert (await shell("vault", "set", "KEY", stdin=b"swordfish-12345")).code == 0
    have_a_database_of_version(shell.home, BASELINE_VERSION - 1)
    before = {path: path.read_bytes() for path in shell.home.rglob("*") if path.is_file()}
    assert len(before) >= 3, "the database, the vault, its key and the settings"
    for words in (*READS, *CHANGES, ("run", "Hello."), ("backup", "b.tar")):
        done = await shell(*words)
        assert done.code == FAILED, (words, done)
        assert "treadle.db is from before the first release" in done.complaint, words
        assert f"Check out commit {LAST_COMMIT_BEFORE_BASELINE} of Treadle" in done.complaint, words
    report = (await shell("doctor", "--offline", "--json")).json
    [found] = [each for each in report if each.get("about") == "database"]
    assert found["state"] == "wrong"
    assert found["advice"].startswith("Export it with that commit")
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "b.tar").exists()


async def test_a_home_that_is_not_writable_can_be_read_and_not_changed(shell: Shell) -> None:
    shell.environment["TREADLE_HOME"] = str(UNWRITABLE)

    for words in READS:
        assert (await shell(*words)).code == 0, words
    for words in (("memory", "add", "A fact."), ("tokens", "create", "laptop"), ("serve", "--port", "0")):
        done = await shell(*words)
        assert done.code == FAILED, (words, done)
        assert f"The folder {UNWRITABLE} is not writable: " in done.complaint, words
        assert "set TREADLE_HOME to another folder" in done.complaint, words


NOT_CREATED = Path("/proc/self/fdinfo/home")
"""A folder that does not exist and cannot be created, not even by root."""
FIRST_STARTS = (
    ("init", "--base-url", "{url}", "--yes"),
    ("init", "--base-url", "{url}", "--key", "--yes"),
    ("init", "--local", "--yes"),
    ("run", "--base-url", "{url}", "-m", "m", "Hello."),
)


@pytest.mark.parametrize(
    ("home", "says"),
    [(UNWRITABLE, "is not writable: "), (NOT_CREATED, "cannot be created: ")],
    ids=["there", "new"],
)
async def test_a_first_start_with_a_read_only_home_says_what_to_do_before_anything_is_asked(
    shell: Shell, folder: Path, home: Path, says: str
) -> None:
    shell.environment |= {"TREADLE_HOME": str(home), "OLLAMA_HOST": "127.0.0.1:9", "TREADLE_INDEX_URL": NOWHERE}

    async with FakeEndpoint() as server:  # nothing is asked of it
        for words in FIRST_STARTS:
            done = await shell(*(word.format(url=server.url) for word in words), stdin=b"sk-right-key-123\n")
            assert done.code in (FAILED, USAGE), (words, done)
            assert f"The folder {home} {says}" in done.complaint, words
            assert "set TREADLE_HOME to another" in done.complaint, words
        assert not server.requests
    for words in (("init",), ("chat",), ("chat", "--inline")):
        async with Terminal(shell, *words, folder=folder, columns=200) as terminal:
            assert await terminal.ends() in (FAILED, USAGE)
            assert f"The folder {home} {says}" in terminal.screen
            assert "set TREADLE_HOME to another" in terminal.screen


async def test_the_self_check_reports_a_home_that_is_a_file(shell: Shell) -> None:
    make_file(shell.home)
    done = await shell("doctor", "--offline", "--json")
    assert done.code == FAILED
    [home] = [each for each in done.json if each.get("about") == "home"]
    assert (home["state"], home["advice"]) == ("wrong", "Set TREADLE_HOME to a folder.")
