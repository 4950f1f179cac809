"""Versions of files: what is recorded of calls, and what undoing restores."""

import os
import shutil
import stat
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import pytest

from treadle.domain.file_versions import MAX_STORED_BYTES, ChangingCall, NetChange, find_net_changes
from treadle.domain.ids import RunId
from treadle.file_versions.home_store import HomeFileVersions
from treadle.ports.file_versions import RestoredPath
from treadle.system.clock import SystemClock

RUN, OTHER = RunId("run_1"), RunId("run_2")


def make_store(tmp_path: Path) -> HomeFileVersions:
    return HomeFileVersions(tmp_path / "home" / "file_versions", (tmp_path / "home",), SystemClock())


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[HomeFileVersions]:
    opened = make_store(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def make_call(folder: Path, run: RunId = RUN, call_id: str = "call_1", root: RunId | None = None) -> ChangingCall:
    return ChangingCall(root or run, run, call_id, str(folder.resolve()), SystemClock().now())


async def run_command(
    store: HomeFileVersions, folder: Path, change: Callable[[], object], run: RunId = RUN, root: RunId | None = None
) -> None:
    async with store.watch(make_call(folder, run, root=root)):
        change()


async def list_net(store: HomeFileVersions, *runs: RunId) -> list[NetChange]:
    return find_net_changes((await store.read(runs or (RUN,))).changes)


async def undo(store: HomeFileVersions, *, overwrite: bool = False) -> dict[str, RestoredPath]:
    found = await store.restore(RUN, await list_net(store), lambda _path: overwrite)
    return {each.path: each for each in found}


def read_tree(folder: Path) -> dict[str, object]:
    """Return everything below a folder: contents, targets of links and permissions."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        kind = stat.S_IFMT(status.st_mode)
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        mode = 0 if path.is_symlink() else stat.S_IMODE(status.st_mode)
        found[str(path.relative_to(folder))] = (kind, mode, content)
    return found


async def test_a_command_is_undone_exactly(store: HomeFileVersions, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    (folder / "binary").write_bytes(b"\0\xff\x00")
    (folder / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "link").symlink_to("a.txt")
    (folder / "old" / "deep").mkdir(parents=True)
    (folder / "old" / "deep" / "file").write_text("kept\n")
    (folder / "node_modules").mkdir()
    before = read_tree(folder)

    def change() -> None:
        (folder / "a.txt").write_text("two\n")
        (folder / "binary").write_bytes(b"\0\xff\x01")
        (folder / "tool.sh").chmod(0o755)
        (folder / "link").unlink()
        (folder / "link").symlink_to("binary")
        (folder / "old").rename(folder / "new")
        (folder / "made" / "inside").mkdir(parents=True)
        (folder / "made" / "inside" / "x").write_text("new\n")

    await run_command(store, folder, change)
    changed = {each.path for each in await list_net(store)}
    assert changed == {
        *("a.txt", "binary", "tool.sh", "link", "old/", "old/deep/", "old/deep/file", "new/", "new/deep/"),
        *("new/deep/file", "made/", "made/inside/", "made/inside/x"),
    }
    restored = await undo(store)
    assert {each.state for each in restored.values()} == {"restored"}, restored
    assert read_tree(folder) == before
    assert {each.state for each in (await undo(store)).values()} == {"unchanged"}
    place = folder.parent / "home" / "file_versions"
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*") if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*") if path.is_file()} == {0o600}


async def test_what_is_ignored_from_now_on_counts_as_unchanged(store: HomeFileVersions, folder: Path) -> None:
    (folder / "build").mkdir()
    (folder / "build" / "kept").write_text("1")

    def ignore_folder() -> None:
        (folder / ".gitignore").write_text("build/\n")
        (folder / "new").write_text("1")

    await run_command(store, folder, ignore_folder)
    assert {each.path for each in await list_net(store)} == {".gitignore", "new"}
    await run_command(store, folder, lambda: shutil.rmtree(folder / "build"))
    assert (await undo(store))["build/kept"].state == "restored"
    assert [path.name for path in folder.iterdir()] == ["build"]


async def test_a_file_that_someone_else_changed_is_a_conflict(store: HomeFileVersions, folder: Path) -> None:
    for name in ("after", "between", "own"):
        (folder / name).write_text("0")
    await run_command(
        store, folder, lambda: [(folder / name).write_text("1") for name in ("after", "between", "own")]
    )
    (folder / "between").write_text("user")
    await run_command(store, folder, lambda: (folder / "between").write_text("2"))
    (folder / "after").write_text("user")
    found = await undo(store)
    assert {path: each.state for path, each in found.items()} == {
        "after": "conflict",
        "between": "conflict",
        "own": "restored",
    }
    assert (folder / "after").read_text() == "user"
    found = await undo(store, overwrite=True)
    assert (folder / "after").read_text() == (folder / "between").read_text() == "0"


async def test_a_command_is_not_blamed_for_what_the_user_changed(store: HomeFileVersions, folder: Path) -> None:
    (folder / "mine").write_text("0")
    await run_command(store, folder, lambda: None)
    (folder / "mine").write_text("1")
    await run_command(store, folder, lambda: (folder / "its").write_text("x"))
    assert [each.path for each in await list_net(store)] == ["its"]


async def test_two_commands_of_different_runs_share_what_changes(store: HomeFileVersions, folder: Path) -> None:
    async with store.watch(make_call(folder)):
        await run_command(store, folder, lambda: (folder / "x").write_text("1"), OTHER)
    assert [each.shared for each in await list_net(store)] == [True]
    assert (await undo(store))["x"].state == "conflict"
    assert (await list_net(store, OTHER))[0].shared


async def test_changes_of_a_child_run_count_for_the_root(store: HomeFileVersions, folder: Path) -> None:
    await run_command(store, folder, lambda: (folder / "x").write_text("1"), OTHER, root=RUN)
    assert [(each.path, each.run_id) for each in await list_net(store)] == [("x", OTHER)]


async def test_what_is_not_stored_is_named(store: HomeFileVersions, folder: Path) -> None:
    (folder / "large").write_bytes(b"x" * (MAX_STORED_BYTES + 1))
    (folder / ".env").write_text("TOKEN=1\n")

    def change() -> None:
        with (folder / "large").open("ab") as file:
            file.write(b"more")
        (folder / ".env").write_text("TOKEN=2\n")

    await run_command(store, folder, change)
    found = await undo(store)
    assert {path: each.state for path, each in found.items()} == {"large": "failed", ".env": "failed"}
    assert "larger than" in found["large"].reason
    stored = (folder.parent / "home" / "file_versions" / "contents").rglob("*")
    assert not any(b"TOKEN" in path.read_bytes() for path in stored if path.is_file())


async def test_a_file_tool_is_not_blamed_on_a_command(store: HomeFileVersions, folder: Path) -> None:
    (folder / "seen").write_text("0")
    await run_command(store, folder, lambda: None)
    async with store.watch(make_call(folder)):
        recorder = store.open_recorder(make_call(folder, OTHER))
        descriptor = os.open(folder / "seen", os.O_RDONLY)
        recorder.record_write("seen", descriptor, b"1", (folder / "seen").stat().st_mode)
        os.close(descriptor)
        (folder / "seen").write_text("1")
    assert await list_net(store) == []
    assert [each.path for each in await list_net(store, OTHER)] == ["seen"]


async def test_an_interrupted_command_is_found_by_the_next_process(tmp_path: Path, folder: Path) -> None:
    (folder / "x").write_text("0")
    first = make_store(tmp_path)
    await run_command(first, folder, lambda: None)
    watching = first.watch(make_call(folder))
    await watching.__aenter__()
    (folder / "x").write_text("1")
    first.abandon_commands()  # as if the process had died
    second = make_store(tmp_path)
    records = await second.read([RUN])
    assert [change.path for change in records.changes] == ["x"]
    assert len(records.gaps) == 1
    assert (await undo(second))["x"].state == "restored"
    assert (folder / "x").read_text() == "0"


async def test_contents_are_deleted_with_the_runs(store: HomeFileVersions, folder: Path, tmp_path: Path) -> None:
    (folder / "x").write_text("0")
    await run_command(store, folder, lambda: (folder / "x").write_text("1"))
    await run_command(store, folder, lambda: (folder / "y").write_text("2"), OTHER)

    async def exists(run: RunId) -> bool:
        return run == OTHER

    await store.sweep(exists)
    assert await list_net(store) == []
    assert list_contents(tmp_path) == [b"1", b"2"]  # the record of the folder needs them

    async def none_exists(run: RunId) -> bool:
        return False

    await store.sweep(none_exists)
    assert list_contents(tmp_path) == []
    await run_command(store, folder, lambda: (folder / "x").write_text("3"))
    assert [each.path for each in await list_net(store)] == ["x"]


def list_contents(tmp_path: Path) -> Sequence[bytes]:
    place = tmp_path / "home" / "file_versions" / "contents"
    return sorted(path.read_bytes() for path in place.rglob("*") if path.is_file())


async def test_a_link_on_the_way_is_not_followed(store: HomeFileVersions, folder: Path, tmp_path: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "x").write_text("0")
    await run_command(store, folder, lambda: (folder / "sub" / "x").write_text("1"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("1")
    (folder / "sub").rename(folder / "moved")
    (folder / "sub").symlink_to(outside)
    found = await undo(store, overwrite=True)
    assert found["sub/x"].state == "failed"
    assert (outside / "x").read_text() == "1"
