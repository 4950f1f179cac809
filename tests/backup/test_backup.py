"""Backups: complete or not made, and checked when they are made and restored."""

import asyncio
import fcntl
import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.engine.running import agent
from treadle.api.engine import create_engine
from treadle.backup import archive as archives
from treadle.backup.home_backup import back_up, restore
from treadle.backup.restore import ReversibleMoves
from treadle.config.home import Home
from treadle.domain.errors import StoreDamaged, StoreError, StoreNewer, StoreOutdated, StoreOwned, UsageError
from treadle.ports.vault import VaultError
from treadle.stores.sqlite.backup import copy_database, read_facts
from treadle.stores.sqlite.connection import BASELINE_VERSION, current_version, open_database
from treadle.stores.sqlite.lock import DatabaseLock
from treadle.testing.models import FunctionModel, say
from treadle.vault.store import VaultStore

SECRET = "s3cr3t-canary-value"
MESSAGE = "Are you there?"


async def run_once(home: Home, count: int = 1) -> list[str]:
    engine = create_engine(home=home)
    engine.add_model("scripted", FunctionModel(lambda request: say("Yes.")))
    async with engine:
        return [(await engine.run(agent(), MESSAGE)).run_id for _ in range(count)]


async def fill_home(path: Path, database: str | None = None) -> Home:
    """Return a home with one entity of each kind."""
    home = Home(path, database)
    await run_once(home)
    for name, text in (
        ("config.yaml", "house_rules: Be kind.\n"),
        ("agents/bob/config.yaml", "name: bob\nmodel: scripted/x\n"),
        ("agents/bob/allowed.yaml", "allowed: []\n"),
        ("skills/approved.yaml", "approved: []\n"),
        ("skills/dance/SKILL.md", "# Dance\n"),
        ("skills/dance/step.sh", "echo step\n"),
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    (path / "skills/dance/step.sh").chmod(0o700)
    with closing(VaultStore(path, {})) as store:
        store.put("TOKEN", SECRET)
    return home


def runs_of(home: Home, database: Path | None = None) -> int:
    return read_facts(str(database or home.path / "treadle.db")).runs


def files_in(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


async def test_a_home_is_restored_unchanged(tmp_path: Path) -> None:
    home, file = await fill_home(tmp_path / "home"), tmp_path / "home.tar"
    made = back_up(home, file, replace=False)
    assert file.stat().st_mode & 0o777 == 0o600
    assert made.left_out == ()
    assert made.manifest.database is not None
    assert (made.manifest.database.runs, made.manifest.database.unfinished) == (1, 0)
    assert made.manifest.database.version == current_version()
    assert str(home.path / "vault.key") in str(made.manifest.vault_key)
    content = file.read_bytes()
    assert SECRET.encode() not in content
    assert (home.path / "vault.key").read_bytes().strip() not in content
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []

    other = Home(tmp_path / "other")
    restored = restore(other, file, replace=False)
    assert restored.moved_to == ()
    for name in ("config.yaml", "agents/bob/config.yaml", "agents/bob/allowed.yaml", "skills/dance/SKILL.md"):
        assert (other.path / name).read_text() == (home.path / name).read_text()
    assert os.access(other.path / "skills/dance/step.sh", os.X_OK)
    assert (other.path / "agents").stat().st_mode & 0o777 == 0o700
    assert (other.path / "treadle.db").stat().st_mode & 0o777 == 0o600
    assert not [entry for entry in other.path.iterdir() if entry.name.startswith(".")]
    with pytest.raises(VaultError, match=f"It was in the file {home.path / 'vault.key'}"):
        await run_once(other)
    shutil.copy(home.path / "vault.key", other.path)
    await run_once(other)
    assert runs_of(other) == 2
    with closing(VaultStore(other.path, {})) as store:
        assert store.read().values == {"TOKEN": SECRET}


async def test_a_database_outside_the_home_is_saved_and_restored_there(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    database = tmp_path / "far" / "t.db"
    home = await fill_home(tmp_path / "home", f"sqlite:///{database}")
    back_up(home, tmp_path / "b.tar", replace=False)
    await run_once(home)
    restored = restore(home, tmp_path / "b.tar", replace=True)
    assert runs_of(home, database) == 1
    aside = [Path(folder) for folder in restored.moved_to]
    assert len(aside) == 2
    assert {folder.parent for folder in aside} == {home.path, database.parent}
    [old] = [folder / "t.db" for folder in aside if (folder / "t.db").exists()]
    assert read_facts(str(old)).runs == 2
    assert not (home.path / "treadle.db").exists()


async def test_existing_files_stop_a_restore_or_are_moved_aside_and_never_deleted(tmp_path: Path) -> None:
    home = await fill_home(tmp_path / "home")
    back_up(home, tmp_path / "b.tar", replace=False)
    await run_once(home)
    (home.path / "agents/eve").mkdir()
    (home.path / "agents/eve/config.yaml").write_text("name: eve\nmodel: scripted/x\n")
    before = files_in(home.path)
    with pytest.raises(UsageError, match=r"is not empty .*config\.yaml.* --force.*Nothing was changed"):
        restore(home, tmp_path / "b.tar", replace=False)
    after = files_in(home.path)
    assert after == before
    restored = restore(home, tmp_path / "b.tar", replace=True)
    [aside] = restored.moved_to
    assert home.agents() == ["bob"]
    assert runs_of(home) == 1
    assert read_facts(f"{aside}/treadle.db").runs == 2
    moved = files_in(Path(aside))
    kept = ("databases.json", "treadle.db-wal", "treadle.db-shm", "treadle.db.lock", "vault.key")
    assert {name for name in before if name not in kept} <= set(moved)
    assert (home.path / "vault.key").exists(), "it belongs to no backup, and stays where it is"


async def test_files_moved_aside_survive_later_restores(tmp_path: Path) -> None:
    home = await fill_home(tmp_path / "home")
    back_up(home, tmp_path / "b.tar", replace=False)
    aside = [restore(home, tmp_path / "b.tar", replace=True).moved_to for _ in range(3)]  # in the same second
    assert [read_facts(f"{folder}/treadle.db").runs for (folder,) in aside] == [1, 1, 1]
    assert len(set(aside)) == 3


async def test_a_damaged_database_is_replaced(tmp_path: Path) -> None:
    home = await fill_home(tmp_path / "home")
    back_up(home, tmp_path / "b.tar", replace=False)
    (home.path / "treadle.db").write_bytes(b"broken" * 1000)
    with pytest.raises(StoreDamaged, match="treadle restore FILE --force"):
        open_database(str(home.path / "treadle.db"))
    restore(home, tmp_path / "b.tar", replace=True)
    assert runs_of(home) == 1


async def test_an_owned_home_is_backed_up_and_not_replaced(tmp_path: Path) -> None:
    home = await fill_home(tmp_path / "home")
    lock = DatabaseLock(str(home.path / "treadle.db"))
    try:
        back_up(home, tmp_path / "b.tar", replace=False)
        before = files_in(home.path)
        with pytest.raises(
            StoreOwned, match=r"Nothing was changed\. The database .* is open in this process already"
        ):
            restore(home, tmp_path / "b.tar", replace=True)
        assert files_in(home.path) == before
    finally:
        lock.release()


async def test_a_copy_is_consistent_while_the_owner_writes(tmp_path: Path) -> None:
    """Each transaction writes two rows; a copy that was torn would have one of them."""
    path = str(tmp_path / "t.db")

    with closing(open_database(path)) as owner:
        writing = True

        def write() -> None:
            number = 0
            with closing(open_database(path)) as writer:
                while writing:
                    number += 1
                    writer.execute("BEGIN IMMEDIATE")
                    for half in "ab":
                        name = f"{half}{number}"
                        writer.execute(
                            "INSERT INTO agents (agent_id, name) VALUES (?, ?)", (name, "x" * 900 + name)
                        )
                    writer.execute("COMMIT")

        task = asyncio.create_task(asyncio.to_thread(write))
        try:
            counts: list[int] = []
            for number in range(8):
                copy = str(tmp_path / f"copy{number}.db")
                await asyncio.to_thread(copy_database, path, copy)
                with closing(sqlite3.connect(copy)) as found:
                    halves = dict(found.execute("SELECT substr(agent_id, 1, 1), count(*) FROM agents GROUP BY 1"))
                    assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                assert halves.get("a") == halves.get("b")
                counts.append(halves.get("a", 0))
            assert counts[-1] > counts[0], "it was written to meanwhile"
        finally:
            writing = False
            await task
        assert owner.execute("SELECT count(*) FROM agents").fetchall()[0][0] >= 2 * counts[-1]


# ── Where a backup goes ──


async def test_a_backup_is_not_written_over_anything(tmp_path: Path) -> None:
    home, file = await fill_home(tmp_path / "home"), tmp_path / "b.tar"
    file.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        back_up(home, file, replace=False)
    assert file.read_text() == "mine"
    back_up(home, file, replace=True)
    archives.check_archive(file)
    with pytest.raises(UsageError, match="is a folder"):
        back_up(home, tmp_path, replace=True)
    with pytest.raises(UsageError, match="no folder"):
        back_up(home, tmp_path / "nowhere" / "b.tar", replace=True)
    for inside in ("agents/b.tar", "skills/dance/b.tar"):
        with pytest.raises(UsageError, match="would be part of the backup"):
            back_up(home, home.path / inside, replace=False)
    with pytest.raises(UsageError, match="nothing to back up"):
        back_up(Home(tmp_path / "empty"), tmp_path / "c.tar", replace=False)
    with pytest.raises(UsageError, match="Is TREADLE_DATABASE_URL right"):
        back_up(Home(home.path, f"sqlite:///{tmp_path}/none.db"), tmp_path / "c.tar", replace=False)
    with pytest.raises(UsageError, match="lost when this command ends"):
        back_up(Home(tmp_path, "sqlite:///:memory:"), tmp_path / "c.tar", replace=False)
    assert not (tmp_path / "c.tar").exists()


async def test_a_damaged_database_makes_no_backup(tmp_path: Path) -> None:
    home = await fill_home(tmp_path / "home")
    (home.path / "treadle.db").write_bytes(b"broken" * 1000)
    with pytest.raises(StoreDamaged):
        back_up(home, tmp_path / "b.tar", replace=False)
    assert not (tmp_path / "b.tar").exists()


async def test_links_are_left_out_and_named(tmp_path: Path) -> None:
    home = await fill_home(tmp_path / "home")
    (tmp_path / "private").mkdir()
    (tmp_path / "private/file").write_text(SECRET)
    (home.path / "skills/outside").symlink_to(tmp_path / "private")
    (home.path / "agents/link.yaml").symlink_to(tmp_path / "private/file")
    (home.path / "skills/odd\nname").write_text("x")
    made = back_up(home, tmp_path / "b.tar", replace=False)
    assert set(made.left_out) == {"skills/outside", "agents/link.yaml", "skills/odd\nname"}
    assert SECRET.encode() not in (tmp_path / "b.tar").read_bytes()


# ── Archives that are not what they should be ──


Members = list[tuple[tarfile.TarInfo, bytes]]
Change = Callable[[Members], None]


def changed(source: Path, target: Path, change: Change) -> None:
    """Write a copy of the archive with changed members."""
    with tarfile.open(source) as archive:
        members = [(member, (archive.extractfile(member) or io.BytesIO()).read()) for member in archive]
    change(members)
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in members:
            if member.isreg():
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def in_manifest(**values: Any) -> Change:
    def change(members: Members) -> None:
        member, content = members[0]
        members[0] = (member, json.dumps(json.loads(content) | values).encode())

    return change


def add_member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> Change:
    """One more member, which the manifest knows."""

    def change(members: Members) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        members.append((member, b""))
        manifest = json.loads(members[0][1])
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        manifest["parts"].append({"name": name, "size": 0, "sha256": empty})
        members[0] = (members[0][0], json.dumps(manifest).encode())

    return change


def with_content(name: str, make: Callable[[bytes], bytes], tell: bool = False) -> Change:
    """Another content of a member; where `tell`, with a manifest that agrees."""

    def change(members: Members) -> None:
        for place, (member, content) in enumerate(members):
            if member.name == name:
                made = make(content)
                members[place] = (member, made)
                if tell:
                    manifest = json.loads(members[0][1])
                    [part] = [part for part in manifest["parts"] if part["name"] == name]
                    part.update(size=len(made), sha256=hashlib.sha256(made).hexdigest())
                    members[0] = (members[0][0], json.dumps(manifest).encode())

    return change


def without_last(members: Members) -> None:
    members.pop()


def with_last_twice(members: Members) -> None:
    members.append(members[-1])


def without_manifest(members: Members) -> None:
    members.pop(0)


def without_any(members: Members) -> None:
    members.clear()


def in_database(tmp_path: Path, sql: str, name: str = "treadle.db") -> Change:
    """Return a change that edits the database of an archive and keeps the archive valid."""

    def make(content: bytes) -> bytes:
        file = tmp_path / "changed.db"
        file.write_bytes(content)
        with closing(sqlite3.connect(file)) as db:
            db.executescript(sql)
        return file.read_bytes()

    return with_content(name, make, tell=True)


async def refused(tmp_path: Path, change: Change, error: type[Exception], words: str) -> None:
    home = await fill_home(tmp_path / "home")
    back_up(home, tmp_path / "b.tar", replace=False)
    changed(tmp_path / "b.tar", tmp_path / "bad.tar", change)
    before, around = files_in(home.path), sorted(path.name for path in tmp_path.iterdir())
    for target in (home, Home(tmp_path / "other")):
        with pytest.raises(error, match=words):
            restore(target, tmp_path / "bad.tar", replace=True)
    assert files_in(home.path) == before
    left = [name for name in files_in(tmp_path / "other") if name != "treadle.db.lock"]
    assert left == [], "nothing of it is put anywhere"
    assert [path.name for path in sorted(tmp_path.iterdir()) if path.name not in ("other", "changed.db")] == [
        name for name in around if name not in ("other", "changed.db")
    ]


@pytest.mark.parametrize(
    "name",
    [
        "../escaped",
        "agents/../../escaped",
        "/tmp/escaped",
        "agents//x",
        "agents/./x",
        "agents",
        "vault.key",
        "logs/x",
        "agents/a\\b",
        "agents/a\nb",
        "agents/\x1b[31m",
    ],
)
async def test_paths_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    await refused(tmp_path, add_member(name), UsageError, "is not a Treadle backup")


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, b"Z"],
)
async def test_a_special_file_in_an_archive_is_refused(tmp_path: Path, kind: bytes) -> None:
    await refused(tmp_path, add_member("agents/x", kind, "/etc/passwd"), UsageError, "is not a Treadle backup")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            with_content("config.yaml", lambda _: b"house_rules: Be evil."),
            StoreDamaged,
            "is damaged: `config.yaml`",
        ),
        (with_content("config.yaml", lambda old: old[::-1]), StoreDamaged, "the content of `config.yaml`"),
        (without_last, StoreDamaged, "is missing"),
        (with_last_twice, StoreDamaged, "does not match the manifest"),
        (without_manifest, UsageError, "does not start with manifest"),
        (without_any, UsageError, "is not a Treadle backup"),
        (in_manifest(treadle_backup=2), StoreNewer, "newer Treadle"),
        (in_manifest(parts=5), UsageError, "is not a Treadle backup"),
        (in_manifest(database=None), StoreDamaged, "does not match its manifest"),
        (with_content("manifest.json", lambda _: b"{"), UsageError, "is not a Treadle backup"),
    ],
)
async def test_an_archive_that_does_not_match_its_manifest_is_refused(
    tmp_path: Path, change: Change, error: type[Exception], words: str
) -> None:
    await refused(tmp_path, change, error, words)


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("PRAGMA user_version = 999", StoreNewer, "newer Treadle"),
        (f"PRAGMA user_version = {BASELINE_VERSION - 1}", StoreOutdated, "from before the first release"),
        ("PRAGMA application_id = 5", StoreError, "is not a Treadle database"),
        (
            "DELETE FROM deliveries; DELETE FROM said; DELETE FROM events",
            StoreDamaged,
            "does not match its manifest",
        ),
        (
            "CREATE TRIGGER evil AFTER INSERT ON runs BEGIN DELETE FROM events; END",
            StoreDamaged,
            "does not have the tables",
        ),
        ("CREATE VIEW evil AS SELECT 1", StoreDamaged, "does not have the tables"),
    ],
)
async def test_a_foreign_newer_or_incomplete_database_is_refused(
    tmp_path: Path, sql: str, error: type[Exception], words: str
) -> None:
    await refused(tmp_path, in_database(tmp_path, sql), error, words)


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("PRAGMA user_version = 999", StoreNewer, "newer Treadle"),
        ("PRAGMA application_id = 5", UsageError, "its vault is invalid"),
    ],
)
async def test_a_foreign_or_newer_vault_is_refused(
    tmp_path: Path, sql: str, error: type[Exception], words: str
) -> None:
    await refused(tmp_path, in_database(tmp_path, sql, "vault.db"), error, words)


async def test_a_damaged_page_is_found_although_the_hashes_agree(tmp_path: Path) -> None:
    def tear(content: bytes) -> bytes:
        return content[:8192] + b"\xff" * 4096 + content[12288:]

    await refused(tmp_path, with_content("treadle.db", tear, tell=True), StoreError, "damaged|malformed|failed")


@pytest.mark.parametrize("size", [0, 100, 512, 3000, 20_000, -1])
async def test_a_truncated_archive_is_refused(tmp_path: Path, size: int) -> None:
    home, other = await fill_home(tmp_path / "home"), Home(tmp_path / "other")
    back_up(home, tmp_path / "b.tar", replace=False)
    content = (tmp_path / "b.tar").read_bytes()
    last = content.rstrip(b"\0")
    (tmp_path / "cut.tar").write_bytes(last[:size])
    with pytest.raises((UsageError, StoreDamaged)):
        restore(other, tmp_path / "cut.tar", replace=False)
    assert not other.path.exists()


def test_a_file_that_is_not_an_archive_is_refused(tmp_path: Path) -> None:
    for content in (b"hello", b"\0" * 10_000, bytes(range(256)) * 100, b"PK\x03\x04" + b"x" * 600):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(UsageError, match="not a Treadle backup"):
            restore(Home(tmp_path / "other"), tmp_path / "x", replace=False)
    for wrong in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError, match="cannot be read"):
            restore(Home(tmp_path / "other"), wrong, replace=False)
    assert not (tmp_path / "other").exists()


# ── Putting things in their place ──


def test_moves_are_undone_when_one_fails(tmp_path: Path) -> None:
    for name in ("a", "b", "there"):
        (tmp_path / name).write_text(name)

    def move() -> None:
        with ReversibleMoves() as moves:
            moves.move(tmp_path / "a", tmp_path / "new" / "a")
            moves.move(tmp_path / "b", tmp_path / "a")
            moves.move(tmp_path / "a", tmp_path / "there")

    with pytest.raises(FileExistsError):
        move()
    assert {name: (tmp_path / name).read_text() for name in ("a", "b", "there")} == {
        "a": "a",
        "b": "b",
        "there": "there",
    }


async def test_a_restore_that_fails_at_its_end_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = await fill_home(tmp_path / "home")
    back_up(home, tmp_path / "b.tar", replace=False)
    before = files_in(home.path)
    move = ReversibleMoves.move

    def failing(moves: ReversibleMoves, source: Path, target: Path) -> None:
        if target == home.path / "treadle.db":
            raise OSError(28, "No space left on device", str(target))
        move(moves, source, target)

    monkeypatch.setattr(ReversibleMoves, "move", failing)
    with pytest.raises(UsageError, match=r"No space left on device\. Nothing was changed"):
        restore(home, tmp_path / "b.tar", replace=True)
    assert files_in(home.path) == before


def test_the_leftovers_of_a_killed_backup_are_removed_by_the_next_one(tmp_path: Path) -> None:
    home, target = Home(tmp_path / "home"), tmp_path / "backups"
    target.mkdir()
    home.ensure()
    home.config_file.write_text("{}")
    killed, running = target / ".treadle-backup-killed", target / ".treadle-backup-running"
    for folder in (killed, running):
        (folder / "parts").mkdir(parents=True)
        (folder / "parts" / "treadle.db").write_bytes(b"half of it")
    lock = os.open(running, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    back_up(home, target / "one.tar", replace=False)
    assert sorted(path.name for path in target.iterdir()) == [".treadle-backup-running", "one.tar"]
    os.close(lock)
    back_up(home, target / "two.tar", replace=False)
    assert sorted(path.name for path in target.iterdir()) == ["one.tar", "two.tar"]
