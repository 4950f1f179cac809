"""read_file."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.tools.files.calling import TOOLS, call, refused

each = pytest.mark.parametrize


def test_lines_are_numbered_and_the_rest_is_offered(workspace: Path) -> None:
    (workspace / "a.py").write_text("one\n  two\n\nfour\n")
    assert call(workspace, "read_file", path="a.py") == (
        "     1\tone\n     2\t  two\n     3\t\n     4\tfour\n[lines 1-4 of 4]"
    )
    assert call(workspace, "read_file", path="a.py", start_line=2, lines=1) == (
        "     2\t  two\n[lines 2-2 of 4; start_line=3 reads on]"
    )
    assert "has 4 lines, so there is no line 5" in refused(workspace, "read_file", path="a.py", start_line=5)


@each(
    ("data", "line", "note"),
    [
        (b"a\r\nb\r\n", "1\ta\n", "line ends: CRLF"),
        (b"a\r\nb\n", "1\ta\n", "line ends: mixed"),
        (b"\xef\xbb\xbfa\n", "1\ta\n", "byte order mark"),
        ("grün\n".encode("utf-16"), "1\tgrün\n", "UTF-16"),
        ("grün\n".encode("latin-1"), "1\tgrün\n", "not UTF-8"),
        (b"a\nb", "2\tb\n", "no newline at the end"),
        (b"x" * 3000 + b"\n", "x [… 1000 more characters in this line]", "lines 1-1 of 1"),
        (b"a\x0cb\xe2\x80\xa8c\n", "1\ta\x0cb\u2028c\n", "lines 1-1 of 1"),
    ],
)
def test_unusual_encodings_and_newlines_are_reported(workspace: Path, data: bytes, line: str, note: str) -> None:
    (workspace / "f").write_bytes(data)
    came = call(workspace, "read_file", path="f")
    assert line in came
    assert note in came.splitlines()[-1]


def test_an_empty_file_is_reported(workspace: Path) -> None:
    (workspace / "f").touch()
    assert call(workspace, "read_file", path="f") == "[the file is empty]"


@each(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n0000", "a PNG image (12 bytes)"),
        (b"RIFF0000WEBPVP8", "a WebP image"),
        (b"%PDF-1.7", "a PDF document"),
        (b"abc\0def", "binary data (7 bytes)"),
    ],
)
def test_a_binary_file_is_named_by_its_kind(workspace: Path, data: bytes, kind: str) -> None:
    (workspace / "f").write_bytes(data)
    assert kind in refused(workspace, "read_file", path="f")


def test_a_missing_file_suggests_similar_names(workspace: Path) -> None:
    (workspace / "README.md").touch()
    assert "Similar names in that folder: README.md." in refused(workspace, "read_file", path="REDME.md")
    assert "glob finds" in refused(workspace, "read_file", path="nothing/like.it")
    (workspace / "b\nad").touch()
    assert r'"b\nad"' in refused(workspace, "read_file", path="bad")


def test_a_huge_file_is_refused_and_a_long_one_read_in_parts(workspace: Path) -> None:
    with (workspace / "huge").open("wb") as stream:
        stream.write(b"text\n" * 2000)
        stream.truncate(40_000_000)
    assert "at most 32,000,000" in refused(workspace, "read_file", path="huge")
    (workspace / "long").write_text(("x" * 999 + "\n") * 500)
    came = call(workspace, "read_file", path="long")
    assert came.endswith("[lines 1-100 of 500; start_line=101 reads on]")


def test_read_file_declares_its_effect_and_parameters() -> None:
    spec = TOOLS["read_file"].spec
    assert (spec.effect, spec.repeatable, spec.paths, spec.needs) == ("read", True, ("path",), ("workspace",))
    assert spec.schema["required"] == ["path"]


def test_rules_see_the_normalised_path() -> None:
    tool = TOOLS["write_file"]
    judged = tool.subjects(tool.parse('{"path": "docs/.././.env", "content": "x"}'))
    assert (judged.texts, judged.opaque) == ((".env",), None)
    assert tool.subjects(tool.parse('{"path": "/w/.env", "content": "x"}')).opaque is not None


def test_the_suggested_pattern_matches_the_path() -> None:
    tool = TOOLS["read_file"]
    judged = tool.subjects(tool.parse('{"path": "a[1]*.txt"}'))
    assert judged.pattern is not None
    assert fnmatchcase("a[1]*.txt", judged.pattern)
    assert not fnmatchcase("a1b.txt", judged.pattern)
