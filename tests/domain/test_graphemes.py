"""Lines are truncated between the characters that readers see."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import split_graphemes as split_by_rich

from treadle.domain.graphemes import (
    MAX_CODE_POINTS,
    count_columns,
    display_width,
    make_printable_line,
    split_graphemes,
    truncate,
)
from treadle.ports.journal import summarize_message
from treadle.ports.sessions import TITLE_LIMIT, make_title
from treadle.surfaces.terminal.text import cut, pad

FAMILY, FLAG, ACCENTS, KEYCAP = "👩‍👩‍👧‍👦", "🇫🇷", "e\u0301\u0323", "1️⃣"
TONE, TAGGED, JAMO, HEART = "👍🏽", "🏴\U000e0067\U000e0062\U000e007f", "\u1112\u1161\u11ab", "❤️‍🔥"
SEEN = (FAMILY, FLAG, ACCENTS, KEYCAP, TONE, TAGGED, JAMO, HEART, "a", " ", "漢", "각", "é", "नी", "…")
texts = st.lists(st.sampled_from(SEEN), max_size=30).map("".join) | st.text(max_size=60)


@pytest.mark.parametrize("seen", SEEN)
def test_a_combined_character_is_one_grapheme(seen: str) -> None:
    assert list(split_graphemes(f"x{seen}x{seen}")) == ["x", seen, "x", seen]


def test_flags_are_pairs_and_letters_stay_apart() -> None:
    assert list(split_graphemes("🇫🇷🇩🇪🇫")) == ["🇫🇷", "🇩🇪", "🇫"]
    assert list(split_graphemes("a\u200db")) == ["a\u200d", "b"]
    assert list(split_graphemes("\u200b\u0301")) == ["\u200b", "\u0301"]


@given(st.lists(st.sampled_from([FAMILY, ACCENTS, TONE, HEART, "漢", "é", "a", " "])).map("".join))
def test_rich_finds_the_same_graphemes_and_widths(text: str) -> None:
    spans, width = split_by_rich(text)  # it does not know flags
    assert list(split_graphemes(text)) == [text[begin:end] for begin, end, _ in spans]
    assert display_width(text) == width


@given(texts)
def test_graphemes_cover_the_whole_text_in_parts_of_bounded_size(text: str) -> None:
    parts = list(split_graphemes(text))
    assert "".join(parts) == text
    assert all(0 < len(part) <= MAX_CODE_POINTS for part in parts)


@given(texts, st.integers(min_value=0, max_value=70))
def test_a_truncated_line_fits_and_ends_between_graphemes(text: str, width: int) -> None:
    for measure in (len, count_columns):
        shown = truncate(text, width, measure)
        assert sum(map(measure, split_graphemes(shown))) <= width
        if shown != text:
            kept = shown.removesuffix("…")
            boundaries = ["".join(list(split_graphemes(text))[:count]).rstrip() for count in range(len(text) + 1)]
            assert kept in boundaries
            assert shown.endswith("…") or width == 0
    assert sum(map(count_columns, split_graphemes(text))) > width or truncate(text, width, count_columns) == text
    assert truncate(text, width) == truncate(text, width, lambda grapheme: len(grapheme))  # its shortcut is exact


@given(texts, st.integers(min_value=1, max_value=40))
def test_a_cell_of_a_table_has_the_width_of_its_column(text: str, width: int) -> None:
    line = make_printable_line(text)
    assert display_width(pad(cut(line, width), width)) == width


def test_a_line_that_is_too_long_keeps_whole_graphemes() -> None:
    assert truncate(f"{FAMILY}{FLAG}x", 4, count_columns) == f"{FAMILY}…"
    assert truncate(f"a{ACCENTS}b", 3) == "a…"
    assert truncate("word word", 6) == "word…"
    assert truncate("anything", 0) == ""
    assert truncate("", 0) == ""


def test_a_thousand_accents_do_not_make_one_grapheme() -> None:
    assert len(list(split_graphemes("e" + "\u0301" * 1000))) > 30


def test_titles_and_messages_do_not_split_emoji() -> None:
    assert make_title(f"The\n{FAMILY}\x07 works") == f"The {FAMILY} works"
    long = FAMILY * 40
    for shown, limit in ((make_title(long), TITLE_LIMIT), (summarize_message(long), 200)):
        assert len(shown) <= limit
        assert set(split_graphemes(shown)) == {FAMILY, "…"}
