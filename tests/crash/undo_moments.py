"""Kills a process before each of its operations on files, while it records changes, makes them and undoes them.

After each kill, another process must restore exactly what was there. For all moments, run:
python -m tests.crash.undo_moments"""

import asyncio
import os
import shutil
import signal
import stat
import sys
import tempfile
from pathlib import Path

from treadle.domain.file_versions import ChangingCall, find_net_changes
from treadle.domain.ids import RunId, SessionId
from treadle.file_versions.home_store import HomeFileVersions
from treadle.ports.tool import ToolContext
from treadle.system.clock import SystemClock
from treadle.tools.files.edit import edit_file
from treadle.tools.files.write import write_file

RUN = RunId("run_1")
WATCHED = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.chmod"})


def fill(folder: Path) -> None:
    (folder / "package").mkdir(parents=True)
    (folder / "edited.py").write_text("one\ntwo\n")
    (folder / "replaced").write_bytes(b"\0\1\2")
    (folder / "package" / "removed.py").write_text("needed\n")
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "link").symlink_to("tool")


def read_tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything below a folder."""
    found: dict[str, tuple[int, int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else b""
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
        mode = 0 if path.is_symlink() else stat.S_IMODE(status.st_mode)
        found[str(path.relative_to(folder))] = (stat.S_IFMT(status.st_mode), mode, content)
    return found


def open_store(home: Path) -> HomeFileVersions:
    return HomeFileVersions(home / "file_versions", (home,), SystemClock())


def make_call(folder: Path, call_id: str) -> ChangingCall:
    return ChangingCall(RUN, RUN, call_id, str(folder.resolve()), SystemClock().now())


async def work(folder: Path, home: Path) -> None:
    """Change files by tools and by a command, and undo all of it."""
    store = open_store(home)
    context = ToolContext(
        run_id=RUN,
        session_id=SessionId("ses_1"),
        call_id="call_1",
        idempotency_key="1",
        progress=lambda text: None,
        workspace=folder,
        recorder=store.open_recorder(make_call(folder, "call_1")),
    )
    edit_file("edited.py", context, old="two", new="2")
    write_file("made/by/tool.py", "made\n", context)
    async with store.watch(make_call(folder, "call_2")):
        (folder / "replaced").write_bytes(b"\0\1\3")
        (folder / "package").rename(folder / "renamed")
        (folder / "edited.py").write_text("three\n")
        (folder / "tool").chmod(0o755)
        (folder / "link").unlink()
        (folder / "link").symlink_to("replaced")
        (folder / "new").write_text("new\n")
    await undo(store)
    await store.close()


async def undo(store: HomeFileVersions) -> None:
    changes = find_net_changes((await store.read([RUN])).changes)
    await store.restore(RUN, changes, lambda _path: True)


def run_until(moment: int, folder: Path, home: Path) -> bool:
    """Do the work in a child process that is killed at a moment. Return whether it ended before that."""
    child = os.fork()
    if child == 0:
        count = 0

        def count_down(event: str, arguments: object) -> None:
            nonlocal count
            if event in WATCHED:
                count += 1
                if count == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count_down)
        code = 1
        try:
            asyncio.run(work(folder, home))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work failed"
    return not os.WIFSIGNALED(status)


async def restore(home: Path) -> None:
    store = open_store(home)
    await undo(store)
    await store.close()


def main(every: int) -> int:
    """Kill at each moment, or at every n-th. Return the number of kills."""
    moment = kills = 0
    while True:
        moment += every
        place = Path(tempfile.mkdtemp(prefix="treadle-undo-"))
        folder, home = place / "project", place / "home"
        try:
            fill(folder)
            before = read_tree(folder)
            if run_until(moment, folder, home):
                assert read_tree(folder) == before, "the undo was not complete"
                return kills
            kills += 1
            for left in folder.rglob(".*.tmp"):  # of a write that was killed
                left.unlink()
            asyncio.run(restore(home))
            after = read_tree(folder)
            assert after == before, f"moment {moment}: {set(after.items()) ^ set(before.items())}"
        finally:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    print(f"killed at {main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)} moments; everything was restored")
