"""write_file and edit_file."""

import asyncio
import fcntl
import os
import stat
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.patience import LINEAR, growth
from tests.tools.files.calling import TOOLS, call, context, refused
from treadle.tools.files import atomic_write
from treadle.tools.files.similarity import explain_not_found

each = pytest.mark.parametrize


def test_files_are_created_and_replaced(workspace: Path) -> None:
    assert call(workspace, "write_file", path="a/b/c.txt", content="one\ntwo\n") == (
        "a/b/c.txt created: 2 lines, 8 bytes."
    )
    assert call(workspace, "write_file", path="a/b/c.txt", content="ü") == (
        "a/b/c.txt replaced (8 bytes before): 1 line, 2 bytes."
    )
    assert (workspace / "a/b/c.txt").read_text() == "ü"
    assert os.listdir(workspace / "a/b") == ["c.txt"]


def test_unwritable_targets_are_refused(workspace: Path) -> None:
    (workspace / "folder").mkdir()
    (workspace / "file").touch()
    assert "is a folder" in refused(workspace, "write_file", path="folder", content="")
    assert "names a folder" in refused(workspace, "write_file", path="new/", content="")
    assert "file is not a folder" in refused(workspace, "write_file", path="file/x", content="")
    assert "too long" in refused(workspace, "write_file", path="x" * 300, content="")


@each("mode", [0o755, 0o640, 0o600])
def test_permissions_are_preserved(workspace: Path, mode: int) -> None:
    path = workspace / "run.sh"
    path.write_text("a")
    path.chmod(mode)
    call(workspace, "write_file", path="run.sh", content="b")
    call(workspace, "edit_file", path="run.sh", old="b", new="c")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_an_edit_shows_its_diff(workspace: Path) -> None:
    (workspace / "f").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    assert call(workspace, "edit_file", path="f", old="line 5\n", new="five\nand a half\n") == (
        "f changed.\n@@ -2,7 +2,8 @@\n line 2\n line 3\n line 4\n-line 5\n+five\n+and a half\n"
        " line 6\n line 7\n line 8"
    )
    assert call(workspace, "edit_file", path="f", old="line 10", new="ten") == (
        "f changed.\n@@ -8,4 +8,4 @@\n line 7\n line 8\n line 9\n-line 10\n+ten"
    )
    assert call(workspace, "edit_file", path="f", old="line 1\n", new="") == (
        "f changed.\n@@ -1,4 +1,3 @@\n-line 1\n line 2\n line 3\n line 4"
    )
    assert (workspace / "f").read_text().startswith("line 2\nline 3\nline 4\nfive\nand a half\n")


@each(
    ("data", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\nc\n", "b\nc", "d", b"a\r\nd\n"),
        (b"a\r\nb\nc\n", "a\nb", "d\ne", b"d\r\ne\nc\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        ("grün".encode("latin-1"), "grün", "blau ä", "blau ä".encode("latin-1")),
        (b"\xff\xfea\0b\0", "a", "ü", b"\xff\xfe\xfc\0b\0"),
    ],
)
def test_newlines_byte_order_marks_and_encodings_are_preserved(
    workspace: Path, data: bytes, old: str, new: str, after: bytes
) -> None:
    (workspace / "f").write_bytes(data)
    call(workspace, "edit_file", path="f", old=old, new=new)
    assert (workspace / "f").read_bytes() == after


@each(
    ("arguments", "words"),
    [
        ({"old": "x = 1", "new": "x = 2"}, "occurs 2 times, at lines 2, 4. Include more"),
        ({"old": "a", "new": "a"}, "are the same"),
        ({"old": "", "new": "a"}, "`old` is empty"),
        ({"old": "     1\tdef f():", "new": "a"}, "line numbers of read_file"),
        (
            {"old": "def f():\n    x  =  1\n", "new": "a"},
            "other spaces is at line 1:\n     1\tdef f():",
        ),
        ({"old": "def ff():", "new": "a"}, "nearest text is at line 1:\n     1\tdef f():"),
        ({"old": "def h():", "new": "def g():"}, "is in the file already, at line 3"),
        ({"old": "qqqqqqqqqq", "new": "a"}, "Nothing like it"),
    ],
)
def test_an_ambiguous_edit_is_refused(workspace: Path, arguments: dict[str, str], words: str) -> None:
    text = "def f():\n    x = 1\ndef g():\n    x = 1\n"
    (workspace / "f.py").write_text(text)
    assert words in refused(workspace, "edit_file", path="f.py", **arguments)
    assert (workspace / "f.py").read_text() == text


def test_an_edit_can_change_all_places_at_once(workspace: Path) -> None:
    (workspace / "f").write_text("a b a\n" * 10)
    came = call(workspace, "edit_file", path="f", old="a", new="aa", all=True)
    assert came.startswith("f changed in 20 places.\n")
    assert came.endswith("[… and 15 more places]")
    assert (workspace / "f").read_text() == "aa b aa\n" * 10


def test_an_edit_of_a_missing_file_creates_nothing(workspace: Path) -> None:
    assert "is not there" in refused(workspace, "edit_file", path="a/b", old="x", new="y")
    assert "is not there" in refused(workspace, "edit_file", path="c", old="x", new="y")
    assert os.listdir(workspace) == []


def test_a_character_that_the_encoding_lacks_is_refused(workspace: Path) -> None:
    (workspace / "f").write_bytes(b"gr\xfcn")
    assert "latin-1, which cannot represent €" in refused(workspace, "edit_file", path="f", old="gr", new="€")
    assert (workspace / "f").read_bytes() == b"gr\xfcn"


def test_a_hostile_file_does_not_slow_down_the_suggestion(workspace: Path) -> None:
    (workspace / "f").write_text(("ab" * 100 + "\n") * 20_000)
    assert "not found" in refused(workspace, "edit_file", path="f", old="ba" * 90 + "c", new="y")


def test_the_suggestion_is_the_same_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much is compared is a count, not a time."""
    text = "".join(f"value_{number} = {number}\n" for number in range(300)) + "def f():\n"
    guessed = explain_not_found(text, "def ff():", "x")
    hours = count(step=3600.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(hours))
    assert explain_not_found(text, "def ff():", "x") == guessed
    assert "nearest text is at line 301:" in guessed


def test_the_search_for_text_with_other_spaces_takes_linear_time() -> None:
    def look(lines: int) -> None:
        assert "The nearest text" in explain_not_found(" a\n" * lines, "a\n" * (lines // 2) + "qqqqqqqq", "x")

    assert growth(look, 2000) < LINEAR


def test_a_file_that_another_program_keeps_changing_is_retried_a_few_times(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "f").write_text("a")
    tries = list[float]()
    monkeypatch.setattr(atomic_write, "time", SimpleNamespace(sleep=tries.append))
    with (workspace / "f").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "is being written by another program" in refused(workspace, "write_file", path="f", content="b")
    assert len(tries) == 1000
    call(workspace, "write_file", path="f", content="b")
    assert (workspace / "f").read_text() == "b"


async def test_no_update_is_lost_with_hard_links(workspace: Path) -> None:
    count = 40
    (workspace / "f").write_text("".join(f"<{number}>\n" for number in range(count)))
    (workspace / "folder").mkdir()
    (workspace / "one").symlink_to("f")
    (workspace / "folder" / "two").symlink_to("../f")
    names = ["f", "one", "folder/two", "folder/../f", str(workspace / "f")]

    async def edit(number: int) -> None:
        tool = TOOLS["edit_file"]
        path = names[number % len(names)]
        arguments = tool.parse(f'{{"path": "{path}", "old": "<{number}>", "new": "[{number}]"}}')
        await tool.run(arguments, context(workspace))

    await asyncio.gather(*[edit(number) for number in range(count)])
    assert (workspace / "f").read_text() == "".join(f"[{number}]\n" for number in range(count))
    assert (workspace / "one").is_symlink()
