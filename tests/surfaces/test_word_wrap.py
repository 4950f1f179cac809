"""Notes and cells are broken between words, and commands to copy are not broken."""

from hypothesis import given
from hypothesis import strategies as st

from treadle.domain.graphemes import display_width
from treadle.surfaces.terminal.word_wrap import fold_note, wrap_words

words = st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12), min_size=1, max_size=20)


def test_a_note_that_fits_stays_as_it_is() -> None:
    assert fold_note("  two  spaces", 13) == ["  two  spaces"]
    assert fold_note("any width at all", None) == ["any width at all"]


def test_a_command_at_the_end_gets_its_own_line() -> None:
    note = "run_1 waits for an approval of `bash` (rm -r notes): treadle approvals approve apr_1 (or deny)"
    assert fold_note(note, 50) == [
        "run_1 waits for an approval of `bash` (rm -r",
        "notes):",
        "treadle approvals approve apr_1 (or deny)",
    ]


def test_a_command_in_backticks_is_not_broken() -> None:
    assert fold_note("See `treadle runs list --state failed`, then go on.", 30) == [
        "See",
        "`treadle runs list --state failed`,",
        "then go on.",
    ]


def test_spaces_between_words_are_kept_and_an_indent_is_repeated() -> None:
    assert fold_note("  one  two three", 10) == ["  one  two", "  three"]


@given(words, st.integers(min_value=1, max_value=40))
def test_wrapped_text_keeps_every_word_and_fits(parts: list[str], width: int) -> None:
    lines = wrap_words(" ".join(parts), width)
    assert "".join("".join(lines).split()) == "".join(parts)
    assert all(display_width(line) <= width or len(line) == 1 for line in lines)


@given(words, st.integers(min_value=1, max_value=40))
def test_a_note_is_broken_between_words_only(parts: list[str], width: int) -> None:
    assert " ".join(fold_note(" ".join(parts), width)).split() == parts
