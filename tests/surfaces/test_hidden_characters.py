"""Zero-width and tag characters never reach a terminal raw."""

import json

import pytest

from treadle.surfaces.terminal.text import inert, inert_json, one_line, reveal_line

HIDDEN = (
    "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u180e", "\u2063", "\ufe0f",
    "\U000e0001", "\U000e0041", "\U000e007f", "\U000e0100", "\u3164", "\U0001d173",
)  # fmt: skip


@pytest.mark.parametrize("character", HIDDEN)
@pytest.mark.parametrize("show", [inert, one_line, reveal_line])
def test_a_character_without_width_is_shown_by_its_number(show: object, character: str) -> None:
    assert callable(show)
    assert show(f"pass{character}word") == f"pass<U+{ord(character):04X}>word"


@pytest.mark.parametrize("character", HIDDEN)
def test_json_escapes_them_and_decodes_to_the_same_text(character: str) -> None:
    line = json.dumps(f"pass{character}word", ensure_ascii=False).encode()
    assert inert_json(line).isascii()
    assert json.loads(inert_json(line)) == f"pass{character}word"


@pytest.mark.parametrize(
    "text", ["👩\u200d👩\u200d👧", "❤\ufe0f", "1\ufe0f\u20e3", "क्\u200dष", "\u0645\u06cc\u200c\u062e"]
)
def test_what_emoji_and_scripts_need_stays(text: str) -> None:
    assert inert(text) == text


def test_a_message_spelled_in_tags_is_visible_even_after_a_flag() -> None:
    tags = "".join(chr(0xE0000 + ord(letter)) for letter in "ls")
    assert inert(f"🏴{tags}") == "🏴<U+E006C><U+E0073>"
