"""Whatever a path says and whatever the workspace contains, nothing outside is read or written."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.files.calling import CANARY, Outside, call, context, refused
from treadle.ports.tool import InvalidArguments, ToolError
from treadle.tools.files.read import read_file
from treadle.tools.files.write import write_file

each = pytest.mark.parametrize
FLIPS = 400


def attempts(workspace: Path, path: str) -> str:
    """What every tool gives for a path."""
    seen = ""
    for name, rest in [
        ("read_file", {}),
        ("write_file", {"content": "overwritten"}),
        ("edit_file", {"old": "CANARY", "new": "changed"}),
        ("glob", {"pattern": "**"}),
        ("grep", {"pattern": "."}),
    ]:  # fmt: skip
        keywords = {"path": path, **rest}
        with suppress(ToolError, InvalidArguments):
            seen += call(workspace, name, **keywords)
    return seen


@each("name", ["read_file", "glob", "grep", "write_file", "edit_file"])
@each(
    ("path", "words"),
    [
        ("../outside/secret.txt", "leads out of the workspace"),
        ("a/../../outside/secret.txt", "leads out of the workspace"),
        ("/etc/passwd", "leads out of the workspace"),
        ("/etc", "leads out of the workspace"),
        ("", "is empty"),
        ("a\0b", "NUL"),
        ("~/secret.txt", "`~` is not expanded"),
        ("~root", "`~` is not expanded"),
        ("x" * 5000, "at most 4096"),
        ("/".join(["a"] * 200), ""),
    ],
)
def test_paths_out_of_the_workspace_are_refused(
    workspace: Path, outside: Outside, name: str, path: str, words: str
) -> None:
    (workspace / "a").mkdir()
    more = {"write_file": {"content": "x"}, "edit_file": {"old": "a", "new": "b"}}
    pattern = {"glob": {"pattern": "*"}, "grep": {"pattern": "x"}}
    assert words in refused(workspace, name, path=path, **more.get(name, {}), **pattern.get(name, {}))
    assert outside.is_untouched()


@each("name", ["secret.txt", "."])
@each(
    "target",
    ["{outside}", "../outside", "../../workspace/../outside", "/proc/self/root{outside}", "/proc/self/cwd"],
)
def test_links_out_of_the_workspace_are_not_followed(
    workspace: Path, outside: Outside, target: str, name: str
) -> None:
    (workspace / "link").symlink_to(target.format(outside=outside.folder))
    assert CANARY not in attempts(workspace, f"link/{name}")
    assert outside.is_untouched()


def test_a_file_link_out_of_the_workspace_is_refused(workspace: Path, outside: Outside) -> None:
    (workspace / "notes.txt").symlink_to(outside.file)
    (workspace / ".gitignore").symlink_to(outside.file)
    assert "leads out" in refused(workspace, "read_file", path="notes.txt")
    assert "leads out" in refused(workspace, "write_file", path="notes.txt", content="x")
    assert "leads out" in refused(workspace, "edit_file", path="notes.txt", old="CANARY", new="x")
    assert "No line matches" in call(workspace, "grep", pattern="CANARY")
    (workspace / "dangling").symlink_to(outside.folder / "new.txt")
    assert "leads out" in refused(workspace, "write_file", path="dangling", content="x")
    assert outside.is_untouched()


def test_links_inside_are_followed(workspace: Path) -> None:
    (workspace / "deep" / "er").mkdir(parents=True)
    (workspace / "deep" / "file.txt").write_text("hello")
    (workspace / "up").symlink_to("deep/er/../file.txt")
    (workspace / "absolute").symlink_to(workspace / "deep")
    assert "hello" in call(workspace, "read_file", path="up")
    assert "hello" in call(workspace, "read_file", path="absolute/file.txt")
    assert "deep/file.txt replaced" in call(workspace, "write_file", path="up", content="new")
    assert (workspace / "up").is_symlink()
    assert (workspace / "deep" / "file.txt").read_text() == "new"


def test_links_in_a_circle_are_refused(workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    assert "in a circle" in refused(workspace, "read_file", path="a/x")
    assert "in a circle" in refused(workspace, "read_file", path="a")


def test_absolute_paths_inside_are_accepted(workspace: Path, tmp_path: Path) -> None:
    (workspace / "a.txt").write_text("hello")
    assert "hello" in call(workspace, "read_file", path=str(workspace / "a.txt"))
    (tmp_path / "alias").symlink_to(workspace)
    assert "hello" in call(tmp_path / "alias", "read_file", path=str(workspace / "a.txt"))
    assert "leads out" in refused(workspace, "read_file", path=f"{workspace}-2/a.txt")
    assert "leads out" in refused(workspace, "read_file", path=f"{workspace}/../outside/secret.txt")


def test_special_files_are_refused(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(workspace)
        try:
            server.bind("sock")
        finally:
            os.chdir(here)
    for name, kind in [("pipe", "a pipe"), ("sock", "a socket")]:
        assert kind in refused(workspace, "read_file", path=name)
        assert kind in refused(workspace, "write_file", path=name, content="x")
        assert "No line matches" in call(workspace, "grep", pattern="x", path=name)
    assert "is a folder" in refused(workspace, "read_file", path=".")
    assert "is a folder" in refused(workspace, "write_file", path=".", content="x")


def test_a_hard_link_to_a_file_outside_is_never_written_through(workspace: Path, outside: Outside) -> None:
    os.link(outside.file, workspace / "linked.txt")
    assert "keep the old text" in call(workspace, "edit_file", path="linked.txt", old="CANARY", new="changed")
    assert outside.is_untouched()
    os.link(outside.file, workspace / "second.txt")
    assert "keep the old text" in call(workspace, "write_file", path="second.txt", content="x")
    assert outside.is_untouched()


def test_a_missing_workspace_is_reported(tmp_path: Path) -> None:
    assert "cannot be opened" in refused(tmp_path / "no", "read_file", path="a")


@given(
    path=st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            ["..", ".", "", "a", "out", "loop", "secret.txt", "outside", "~", "\0", "a\n", "...", "\\..\\"]
        ),
        max_size=8,
    ).map("/".join)
)
@settings(max_examples=150, deadline=None)
def test_no_path_leads_out_of_the_workspace(path: str) -> None:
    with TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        (workspace / "a").mkdir(parents=True)
        outside = Outside(Path(folder) / "outside")
        (workspace / "out").symlink_to(outside.folder)
        (workspace / "loop").symlink_to("../workspace/a/..")
        assert CANARY not in attempts(workspace, path)
        assert outside.is_untouched()
        assert set(os.listdir(folder)) == {"workspace", "outside"}


def _flip(folder: Path, other: Path, over: threading.Event) -> None:
    """A folder that is a link to the outside every other moment."""
    spare = folder.with_name("spare")
    while not over.is_set():
        with suppress(OSError):
            folder.rename(spare)
            folder.symlink_to(other)
            folder.unlink()
            spare.rename(folder)


def test_a_folder_swapped_for_a_link_is_refused(workspace: Path, outside: Outside) -> None:
    folder = workspace / "flip"
    folder.mkdir()
    (folder / "secret.txt").write_text("inside")
    over = threading.Event()
    flipping = threading.Thread(target=_flip, args=(folder, outside.folder, over))
    flipping.start()
    read = written = 0
    try:
        for turn in range(FLIPS):
            with suppress(ToolError):
                if turn % 2:
                    assert CANARY not in read_file("flip/secret.txt", context(workspace))
                    read += 1
                else:
                    write_file("flip/secret.txt", f"inside {turn}", context(workspace))
                    written += 1
    finally:
        over.set()
        flipping.join()
    assert outside.is_untouched()
    assert read
    assert written


@each("tool", [("read_file", {}), ("write_file", {"content": "x"}), ("edit_file", {"old": "inside", "new": "x"})])
@each("swapped", ["flip", "flip/secret.txt"])
@each("moment", range(1, 13))
def test_a_folder_swapped_at_any_moment_gives_no_access(
    workspace: Path,
    outside: Outside,
    monkeypatch: pytest.MonkeyPatch,
    moment: int,
    swapped: str,
    tool: tuple[str, dict[str, str]],
) -> None:
    """Just before the nth time that the system is asked about a name, it becomes a link to the outside."""
    (workspace / "flip").mkdir()
    (workspace / "flip" / "secret.txt").write_text("inside")
    calls = 0

    def swapping(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(name: Any, *rest: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += name in ("flip", "secret.txt")
            if calls == moment:
                calls += 1
                (workspace / swapped).rename(workspace / "spare")
                (workspace / swapped).symlink_to(outside.folder / swapped.removeprefix("flip").strip("/"))
            return ask(name, *rest, **keywords)

        return asked

    name, arguments = tool
    with monkeypatch.context() as patched:
        for function in ("open", "stat", "readlink", "scandir"):
            patched.setattr(os, function, swapping(getattr(os, function)))
        try:
            came = call(workspace, name, path="flip/secret.txt", **arguments)
        except ToolError as refusal:
            came = str(refusal)
    assert CANARY not in came
    assert outside.is_untouched()
