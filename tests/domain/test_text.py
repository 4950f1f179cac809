"""Normalization of texts for comparison."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.domain.text import fold_words, normalise_text


@pytest.mark.parametrize(
    ("one", "other"),
    [("The user likes tea.", "the user  likes TEA"), ("Cafe\u0301 at noon", "Café at noon!"), (" a\n b ", "A b")],
)
def test_spellings_of_one_text_are_equal_when_normalised(one: str, other: str) -> None:
    assert normalise_text(one) == normalise_text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("-5", "5"), ("C++", "C#"), ("C++", "C"), ("10²", "102"), ("a b", "b a"), ("x < y", "x > y"), ("up?", "up")],
)
def test_different_texts_stay_different_when_normalised(one: str, other: str) -> None:
    assert normalise_text(one) != normalise_text(other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ünïcödé_x", ("unicode", "x")),
        ("Goethestraße", ("goethestrasse",)),
        ("Αθήνα", ("αθηνα",)),
        ("The ﬁle", ("the", "file")),
        ("İstanbul", ("istanbul",)),
        ("أحمد", ("احمد",)),
        ("서울 사무실", ("서울", "사무실")),
        ("हिन्दी भाषा।", ("हिन्दी", "भाषा")),
        ("ガラス", ("ガラス",)),
        ("v2.3.1 user_id", ("v2", "3", "1", "user", "id")),
        ("!? \ud800", ()),
    ],
)
def test_a_text_is_split_into_normalised_words(text: str, words: tuple[str, ...]) -> None:
    assert fold_words(text) == words


@given(st.text())
def test_folded_words_do_not_depend_on_the_unicode_form(text: str) -> None:
    words = fold_words(text)
    assert fold_words(" ".join(words)) == words, "folding again changes nothing"
    assert all(word and not set(word) & set(' "\0*') for word in words)
    assert fold_words(unicodedata.normalize("NFD", text)) == fold_words(unicodedata.normalize("NFC", text))
