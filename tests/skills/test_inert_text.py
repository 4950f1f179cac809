"""Untrusted text in prompts: invisible characters are shown as codes, except those that scripts need."""

import sys
import unicodedata

import pytest

from treadle.domain.inert_text import has_hidden, make_inert, make_one_line, make_prose_inert

UNSEEN = (
    0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x180E, 0x200B, 0x200C, 0x200D, 0x2028, 0x2060, 0x2064, 0x206A,
    0x3164, 0xFE00, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF9, 0xFFFE, 0x1D173, 0xE0001, 0xE0041, 0xE0100,
)  # fmt: skip
FAMILY = "\U0001f468\u200d\U0001f469\U0001f3fd\u200d\U0001f467"
HEART_ON_FIRE = "\u2764\ufe0f\u200d\U0001f525"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
HINDI = "\u0915\u094d\u200d\u0937"


@pytest.mark.parametrize("code", UNSEEN, ids=hex)
def test_invisible_characters_are_shown_as_codes(code: int) -> None:
    for make in (make_inert, make_prose_inert, make_one_line):
        assert make(f"a{chr(code)}b") in (f"a<U+{code:04X}>b", "a b")
    assert has_hidden(chr(code))


def test_every_format_character_is_shown_unless_it_is_visible() -> None:
    left = {chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Cf"}
    left = {character for character in left if make_inert(character) == character}
    assert all(unicodedata.name(character).split()[0] in ("ARABIC", "SYRIAC", "KAITHI") for character in left)
    assert len(left) < 20
    assert not left & set("\u061c\u200b\ufeff")


@pytest.mark.parametrize("text", [FAMILY, HEART_ON_FIRE, PERSIAN, HINDI, "1\ufe0f\u20e3 \u26a0\ufe0f \u2139\ufe0f"])
def test_joiners_stay_only_where_a_script_needs_them(text: str) -> None:
    assert make_prose_inert(text) == text
    bare = "".join(character for character in text if character not in "\u200c\u200d\ufe0f")
    assert make_inert(text) == make_one_line(text) == bare


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ab\u200dcd", "ab<U+200D>cd"),
        ("=\u200d=", "=<U+200D>="),
        ("\u26a0\ufe0f\ufe0f", "\u26a0\ufe0f<U+FE0F>"),
        ("\u26a0\ufe01", "\u26a0<U+FE01>"),
        ("\u200d\u26a0\u200d", "<U+200D>\u26a0<U+200D>"),
        ("\u0645\u200c\u200c\u0645", "\u0645<U+200C><U+200C>\u0645"),
        ("1\ufe0f2", "1<U+FE0F>2"),
    ],
)
def test_joiners_without_characters_to_join_are_shown(text: str, shown: str) -> None:
    assert make_prose_inert(text) == shown


def test_lines_and_visible_text_stay() -> None:
    text = "a\tb\n\u00e9 \u4f60\u597d \U0001f600 \u0600 \u00a0"
    assert make_inert(text) == make_prose_inert(text) == text
    assert make_inert("a\r\nb\rc") == "a\nb\nc"
    assert has_hidden("a\nb")
    assert not has_hidden("caf\u00e9")
