"""Markdown on a terminal: code is shown whole, tables obey their columns."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygments.lexers import get_all_lexers
from rich.segment import Segment

from treadle.surfaces.markdown.blocks import render_markdown
from treadle.surfaces.markdown.code import highlight
from treadle.surfaces.markdown.stream import MarkdownStream
from treadle.surfaces.markdown.themes import find_palette
from treadle.surfaces.markdown.wrapping import Line, clean

DARK = find_palette("dark")
LANGUAGES = sorted({names[0] for _, names, _, _ in get_all_lexers() if names})
SESSIONS = ("console", "irb", "psql", "sqlite3", "ps1con", "doscon", "pycon", "jlcon", "rconsole")
"""Languages of terminal sessions, in which prompts and output take turns."""
PIECES = (
    "$ ls", ">>> 1", "irb> 1 + 1", "=> 2", "db=# select 1;", " ?column?", "PS C:\\> dir", "", "  ", "\tx = 1", "'",
    '"""', "/* a", "# b", "<?php", "{% if %}", "```", "été 漢字 🎉", "\ufeffx", "a\x0cb", "\x1b[31mred", "a\rb",
)  # fmt: skip
PLAIN_WIDTH = 78


def read_text(lines: list[Line]) -> list[str]:
    return ["".join(segment.text for segment in line) for line in lines]


def read_highlighted(code: str, language: str) -> str:
    return "\n".join("".join(text for text, _ in line) for line in highlight(code, language, DARK))


def write_stream(source: str, cuts: list[int]) -> list[Line]:
    """Return the lines of a message that arrives in parts."""
    stream, begin = MarkdownStream(PLAIN_WIDTH, DARK), 0
    for end in [*sorted(cuts), len(source)]:
        stream.append(source[begin:end])
        stream.update()
        begin = max(begin, end)
    stream.finish()
    return stream.lines


def test_code_is_shown_whole_in_every_language() -> None:
    chance = Random(46)
    for language in LANGUAGES:
        code = "\n".join(chance.choices(PIECES, k=4))
        assert read_highlighted(code, language) == clean(code), language


@pytest.mark.parametrize("language", SESSIONS)
@settings(max_examples=20)
@given(code=st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=5).map("\n".join))
def test_sessions_of_a_terminal_are_shown_whole(language: str, code: str) -> None:
    assert read_highlighted(code, language) == clean(code)


@pytest.mark.parametrize("language", ["python", "json", "bash", "go"])
def test_the_last_line_of_a_code_block_has_colours(language: str) -> None:
    for source in ("x = 'a' # b\nx = 'a' # b", '{"a": 1}\n{"a": 1}', "if true; then\nif true; then"):
        first, last = highlight(source, language, DARK)
        assert first == last


LINES_OF_CODE = st.lists(st.text(alphabet="ab$`~ =1'\"", max_size=6), min_size=1, max_size=6)


@settings(max_examples=150)
@given(rows=LINES_OF_CODE, mark=st.sampled_from(["`````", "~~~~~~~"]), data=st.data())
def test_a_code_block_is_shown_whole_wherever_its_stream_is_cut(
    rows: list[str], mark: str, data: st.DataObject
) -> None:
    """The closing fence does not belong to the code, with or without a line after it."""
    source = f"{mark}console\n" + "\n".join(rows) + f"\n{mark}" + data.draw(st.sampled_from(["", "\n"]))
    cuts = data.draw(st.lists(st.integers(0, len(source)), max_size=6))
    assert [line.strip() for line in read_text(write_stream(source, cuts))] == [row.strip() for row in rows]


def test_the_beginning_of_a_closing_fence_is_not_shown() -> None:
    stream = MarkdownStream(PLAIN_WIDTH, DARK)
    for part in ("```console\n$ ls\n", "`", "``"):
        stream.append(part)
        stream.update()
        assert [line.strip() for line in read_text(stream.lines)] == ["$ ls"]


def test_columns_of_a_table_obey_their_alignment() -> None:
    rows = ("| left | right | middle | none |", "|:--|--:|:-:|---|", "| a | b | c | d |")
    source = "\n".join([*rows, "| long left | long right | long middle | x |"])
    head, _, short, long = read_text(render_markdown(source, PLAIN_WIDTH, DARK))
    assert head == "left            right    middle     none"
    assert short == "a                   b       c       d"
    assert long == "long left  long right  long middle  x"


def test_an_aligned_cell_is_wrapped_on_its_side() -> None:
    source = "| a | b |\n|---|--:|\n| x | some words that are long |\n"
    lines = read_text(render_markdown(source, 16, DARK))
    assert {len(line) for line in lines} == {16}
    assert Segment("─", DARK.rule) in render_markdown(source, 16, DARK)[1]
