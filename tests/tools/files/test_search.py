"""glob and grep."""

import asyncio
import os
import sys
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS, LINEAR, growth
from tests.tools.files.calling import CANARY, TOOLS, Outside, call, context, refused
from treadle.tools.files import folder_walk
from treadle.tools.files.folder_walk import FolderWalk
from treadle.tools.files.globs import translate_glob
from treadle.tools.files.grep import run_search
from treadle.tools.files.line_matches import LineMatcher
from treadle.tools.files.regex import Expression
from treadle.tools.files.workspace import open_workspace

each = pytest.mark.parametrize


def write_files(workspace: Path, *paths: str, text: str = "x\n") -> None:
    for path in paths:
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text)


@each(
    ("pattern", "fits", "does_not"),
    [
        ("*.py", ["a.py", ".py"], ["a/b.py", "a.pyc"]),
        ("**/*.py", ["a.py", "a/b.py", "a/b/c.py"], ["a.pyc"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "a/src/b"]),
        ("src/**/t_?.{ts,tsx}", ["src/t_1.ts", "src/a/t_2.tsx"], ["src/t_12.ts", "src/t_1.js"]),
        ("[a-c]*[!0-9]", ["ax", "b\nx"], ["dx", "a1", "a/b"]),
        ("a[", ["a["], ["a"]),
        ("a{b", ["a{b"], ["ab"]),
        (r"a\*", ["a*"], ["ab"]),
        ("a.b+(c)|d", ["a.b+(c)|d"], ["axb"]),
        ("[]]", ["]"], ["["]),
        ("ü?", ["üä", "ü\udcff"], ["ü"]),
    ],
)
def test_glob_patterns_match_the_expected_names(pattern: str, fits: list[str], does_not: list[str]) -> None:
    expression = Expression(translate_glob(pattern))
    assert [name for name in [*fits, *does_not] if expression.matches(name)] == fits


def test_files_and_folders_are_listed_in_order(workspace: Path) -> None:
    write_files(workspace, "b.py", "a/z.py", "a/b/c.py", "a.py", ".hidden", "a/b/d.txt")
    assert call(workspace, "glob", pattern="*") == ".hidden\na.py\na/\nb.py"
    assert call(workspace, "glob", pattern="**/*.py") == "a.py\na/b/c.py\na/z.py\nb.py"
    assert call(workspace, "glob", pattern="*.py", path="a") == "a/z.py"
    assert call(workspace, "glob", pattern="*.rs", path="a") == "Nothing matches *.rs in a."
    assert "must be relative" in refused(workspace, "glob", pattern="/etc/*")
    assert "must be relative" in refused(workspace, "glob", pattern="../*")
    assert "is empty" in refused(workspace, "glob", pattern="")
    assert "is not there" in refused(workspace, "glob", pattern="*", path="no")


@each(
    ("rules", "left"),
    [
        ("*.log\n!keep.log\n", ["a.txt", "build", "keep.log", "sub/build/y", "sub/dist/x"]),
        ("build/\n", ["a.log", "a.txt", "build", "keep.log", "sub/dist/x"]),
        ("/build\n", ["a.log", "a.txt", "keep.log", "sub/build/y", "sub/dist/x"]),
        ("sub/*\n!sub/dist\n", ["a.log", "a.txt", "build", "keep.log", "sub/dist/x"]),
        ("# *\n\n**/dist/**\n*.log  \n", ["a.txt", "build", "sub/build/y"]),
        ("[z-a]\n", ["a.log", "a.txt", "build", "keep.log", "sub/build/y", "sub/dist/x"]),
        ("*\n!a.txt", ["a.txt"]),
    ],
)
def test_ignored_files_are_skipped(workspace: Path, rules: str, left: list[str]) -> None:
    write_files(workspace, "a.log", "keep.log", "a.txt", "build", "sub/build/y", "sub/dist/x")
    (workspace / ".gitignore").write_text(rules)
    found = [
        line for line in call(workspace, "grep", pattern="^x$", files_only=True).splitlines() if line[0] != "["
    ]
    assert found == left


def test_ignored_folders_are_named_and_can_be_searched(workspace: Path) -> None:
    write_files(workspace, "node_modules/m/index.js", "src/a.js", "src/out/gen.js", "src/keep.js")
    (workspace / "src" / ".gitignore").write_text("out\n")
    came = call(workspace, "glob", pattern="**/*.js")
    assert came == (
        "src/a.js\nsrc/keep.js\n"
        "[ignored folders, not searched: node_modules/, src/out/; give one as path to search it]"
    )
    assert call(workspace, "glob", pattern="**/*.js", path="node_modules") == "node_modules/m/index.js"
    assert call(workspace, "glob", pattern="*.js", path="src/out") == "src/out/gen.js"


def test_names_that_would_break_a_line_are_escaped(workspace: Path) -> None:
    write_files(workspace, "a\nb.py", "\u202egnp.exe", "tab\there")
    os.close(os.open(os.fsencode(workspace) + b"/raw\xff", os.O_CREAT))
    came = call(workspace, "glob", pattern="*")
    assert came.splitlines() == [r'"a\nb.py"', r'"raw\xff"', r'"tab\there"', r'"\u202egnp.exe"']
    assert came.splitlines()[0] in call(workspace, "grep", pattern="x", files_only=True)


def test_links_are_never_followed(workspace: Path, outside: Outside) -> None:
    (workspace / "out").symlink_to(outside.folder)
    (workspace / "file").symlink_to(outside.file)
    (workspace / "loop").symlink_to(".")
    assert call(workspace, "glob", pattern="**") == "file\nloop\nout"
    assert call(workspace, "grep", pattern=CANARY) == "No line matches."
    assert "leads out" in refused(workspace, "grep", pattern=CANARY, path="out")


def test_matching_lines_are_shown_with_context(workspace: Path) -> None:
    write_files(workspace, "a.txt", text="".join(f"line {number}\n" for number in range(1, 21)))
    write_files(workspace, "b/c.txt", text="first\r\nLINE 3\r\n")
    assert call(workspace, "grep", pattern="line 3$") == "a.txt\n3:line 3\n[1 matching line in 1 file]"
    assert call(workspace, "grep", pattern="^line (3|5|20)$", context_lines=1) == (
        "a.txt\n2-line 2\n3:line 3\n4-line 4\n5:line 5\n6-line 6\n--\n19-line 19\n20:line 20\n"
        "[3 matching lines in 1 file]"
    )
    assert call(workspace, "grep", pattern="line 3$", ignore_case=True) == (
        "a.txt\n3:line 3\n\nb/c.txt\n2:LINE 3\n[2 matching lines in 2 files]"
    )
    assert (
        call(workspace, "grep", pattern="line 3", ignore_case=True, files_only=True) == "a.txt\nb/c.txt\n[2 files]"
    )
    assert call(workspace, "grep", pattern="first", path="b/c.txt").startswith("b/c.txt\n1:first")


@each(
    ("glob", "files"),
    [("*.py", ["a.py", "s/b.py"]), ("s/*.py", ["s/b.py"]), ("**/*.{py,md}", ["a.py", "s/b.py", "s/c.md"])],
)
def test_the_glob_limits_the_searched_files(workspace: Path, glob: str, files: list[str]) -> None:
    write_files(workspace, "a.py", "s/b.py", "s/c.md", "d.txt")
    assert call(workspace, "grep", pattern="x", glob=glob, files_only=True).splitlines()[:-1] == files


@each("pattern", [r"\Aab\z", "ab$", "^ab", r"a\w", "(?i)AB", r"a[^x]", r"b*\s*$", "^$|ab"])
def test_each_line_is_matched_on_its_own(workspace: Path, pattern: str) -> None:
    write_files(workspace, "f", text="ab\ncd\nab")
    assert "1:ab" in (came := call(workspace, "grep", pattern=pattern))
    assert "3:ab" in came


def test_an_empty_match_at_the_end_adds_no_line(workspace: Path) -> None:
    write_files(workspace, "f", text="a\n\nb\n")
    assert call(workspace, "grep", pattern="^$") == "f\n2:\n[1 matching line in 1 file]"


def test_bad_patterns_are_explained(workspace: Path) -> None:
    assert "missing )" in refused(workspace, "grep", pattern="f(")
    assert "look-around" in refused(workspace, "grep", pattern="(?=a)")
    assert "cannot be used" in refused(workspace, "grep", pattern="((a{1000}){1000}){1000}")
    assert "is empty" in refused(workspace, "grep", pattern="")


def test_binary_files_are_skipped_and_long_lines_truncated(workspace: Path) -> None:
    (workspace / "bin").write_bytes(b"needle\0needle")
    write_files(workspace, "long", text="y" * 5000 + "needle" + "z" * 5000)
    came = call(workspace, "grep", pattern="needle")
    assert "bin" not in came
    assert "1:[…]" in came
    assert "needle" in came
    assert len(came) < 600


def test_results_are_bounded(workspace: Path) -> None:
    write_files(workspace, "many", text="hit\n" * 3000)
    write_files(workspace, *[f"d/{number:04}" for number in range(1100)])
    came = call(workspace, "grep", pattern="hit")
    assert came.count("hit") == 500
    assert came.endswith("[cut: 500 lines are shown. There may be more: narrow the search]")
    assert "[cut: there are more than 1,000." in call(workspace, "glob", pattern="d/*")


def test_a_hostile_pattern_costs_no_time(workspace: Path) -> None:
    write_files(workspace, "f", text="a" * 200_000 + "b\n")
    (workspace / ".gitignore").write_text("*a" * 200 + "b\n")
    write_files(workspace, "a" * 200)
    began = time.process_time()
    assert "No line matches" in call(workspace, "grep", pattern="(a+)+$", path="f")
    call(workspace, "glob", pattern="*a" * 50 + "b")
    assert time.process_time() - began < HANG_SECONDS, "a pattern that is tried in every way takes years"


def test_line_numbers_are_correct_in_files_of_several_blocks(workspace: Path) -> None:
    write_files(workspace, "f", text="some text in a line\n" * 300_000 + "needle\n")
    assert call(workspace, "grep", pattern="needle").startswith("f\n300001:needle")


def test_a_search_is_limited_by_files_and_not_by_time(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine finds the same as a quiet one."""
    write_files(workspace, "a", "b", "c")
    monkeypatch.setattr(folder_walk, "_MAX_ENTRIES", 2)
    hours = count(step=3600.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(hours))
    walk = FolderWalk(threading.Event())
    with open_workspace(workspace) as root, walk.start(root, ".") as (_, entries):
        assert [entry.place.path for entry in entries] == ["a", "b"]
    assert "there are more than 2 files and folders" in walk.notes("more")[0]


def test_a_search_stops_when_its_caller_is_cancelled(workspace: Path) -> None:
    write_files(workspace, "a", "b")
    stopped = threading.Event()
    walk = FolderWalk(stopped)
    with open_workspace(workspace) as root, walk.start(root, ".") as (_, entries):
        assert next(entries).place.path == "a"
        stopped.set()
        assert list(entries) == []


def test_a_search_is_limited_by_the_bytes_it_reads(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that takes more steps for each byte may read less of them."""
    write_files(workspace, "f", text="no such line\n" * 30)
    monkeypatch.setattr(sys.modules[run_search.__module__], "_MAX_BYTES", 1000)
    assert call(workspace, "grep", pattern="needle") == "No line matches."
    assert "more than 250 bytes were searched" in call(workspace, "grep", pattern="needle" * 110)
    write_files(workspace, "f", text="\n" * 100)  # a line that is looked at costs more than its byte
    assert "more than 1,000 bytes were searched" in call(workspace, "grep", pattern="\\Aneedle")


def test_a_pattern_that_crosses_lines_takes_linear_time() -> None:
    matcher = LineMatcher(r"a[\s\S]*z", ignore_case=False)

    def search(lines: int) -> None:
        assert not list(matcher.find_lines(b"a\n" * lines + b"z", 1, lambda: False))

    assert growth(search, 10_000) < LINEAR


def test_cancelling_stops_the_thread(workspace: Path) -> None:
    write_files(workspace, *[f"{number}/f" for number in range(300)])
    before = threading.active_count()

    async def start_and_cancel() -> None:
        tool = TOOLS["grep"]
        task = asyncio.ensure_future(tool.run(tool.parse('{"pattern": "x"}'), context(workspace)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(start_and_cancel())  # waits for its threads
    assert threading.active_count() <= before


def test_a_tree_that_is_too_deep_is_cut(workspace: Path) -> None:
    write_files(workspace, "/".join(["d"] * 80) + "/f")
    assert "folders deep" in call(workspace, "glob", pattern="**/f")
