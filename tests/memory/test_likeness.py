"""When two texts say the same."""

import pytest

from treadle.domain.likeness import MOST, normalised, says_the_same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The user likes tea.", "the user  likes TEA"),
        ("Cafe\u0301 at noon", "Café at noon!"),
        ("The user prefers short answers in the morning.", "User prefers short answers in the morning"),
        ("Deploys go out on Tuesday after the review", "Deploys go out on Tuesday, after the review."),
    ],
)
def test_the_same(one: str, other: str) -> None:
    assert says_the_same(one, other)
    assert says_the_same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The server listens on port 8080.", "The server listens on port 8081."),
        ("The user likes tea with milk and sugar.", "The user does not like tea with milk and sugar."),
        ("The user likes tea with milk and sugar.", "The user doesn't likes tea with milk and sugar."),
        ("Yesterday Anna paid Boris for the bicycle.", "Yesterday Boris paid Anna for the bicycle."),
        ("The column user_id is unique in orders", "The column account_id is unique in orders"),
        ("one thing", "another matter"),
        ("", "something"),
    ],
)
def test_not_the_same(one: str, other: str) -> None:
    assert not says_the_same(one, other)
    assert not says_the_same(one, other, MOST)


def test_what_is_close_in_meaning_needs_fewer_words_in_common() -> None:
    one, other = "The user prefers very short answers.", "The user prefers short answers, always."
    assert not says_the_same(one, other)
    assert says_the_same(one, other, MOST)


def test_normalised() -> None:
    assert normalised("  Straße\u00a0 NUMBER \uff11 . ") == "strasse number 1"
