"""The rules of ignore files. A test of `@` in the terminal UI compares them with git in a real folder."""

import time
from collections.abc import Mapping

import pytest

from treadle.domain.ignore_rules import IgnoreRules

HANG_SECONDS = 5.0


def list_ignored(files: Mapping[str, str], *paths: str) -> list[str]:
    rules = IgnoreRules()
    for under, text in files.items():
        rules = rules.with_file(text, under)
    return [path for path in paths if rules.covers(path)]


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("*\n!*/\n!*.py\n", ["b.txt", "src/b.txt"]),
        ("src/**\n!src/a.py\n", ["src/b.txt"]),
        ("src/*\n!src/a.py", ["src/b.txt"]),
        ("src\n", ["src/"]),
        ("src/\n!src/\n", []),
        ("/b.txt\n", ["b.txt"]),
        ("**/b.txt\r\n", ["b.txt", "src/b.txt"]),
        ("b.txt/\n#b.txt\n\\#\n \n/\n", []),
        ("[z-a].txt\n[\n!\nb\\\n{b,c}.txt\n", []),
        ("b\\.t?t   \n", ["b.txt", "src/b.txt"]),
    ],
)
def test_the_last_rule_that_matches_the_path_itself_decides(text: str, ignored: list[str]) -> None:
    assert list_ignored({"": text}, "b.txt", "src/", "src/a.py", "src/b.txt") == ignored


def test_the_file_of_a_deeper_folder_takes_precedence_and_is_relative_to_it() -> None:
    files = {"": "*.log\nout\n", "sub/": "!*.log\n/secret\n"}
    paths = ("sub/a.log", "sub/out", "sub/secret", "sub/more/secret")
    assert list_ignored(files, *paths) == ["sub/out", "sub/secret"]


def test_bytes_that_are_not_text_match_as_one_character_each() -> None:
    assert list_ignored({"": "raw?\n"}, "raw\udcff", "raw") == ["raw\udcff"]


def test_hostile_rules_cost_no_time() -> None:
    text = "*a" * 200 + "b\n" + "**/" * 50 + "x\n" + "[a-z]*" * 2000 + "c\n"
    began = time.process_time()
    assert list_ignored({"": text * 20}, "a" * 5000, "a/" * 2000) == []
    assert time.process_time() - began < HANG_SECONDS, "a rule that is tried in every way takes years"
