"""A JSON value that is read while it arrives."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.domain.limits import MAX_JSON_DEPTH
from treadle.domain.partial_json import PartialJson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def read(*pieces: str) -> Any:
    partial = PartialJson()
    for piece in pieces:
        partial.feed(piece)
    assert not partial.is_broken
    return partial.copy()


SHOWN: list[tuple[str, Any]] = [
    ("", None),
    ("  {", {}),
    ('{"a', {}),
    ('{"a"', {}),
    ('{"a":', {}),
    ('{"a": "', {"a": ""}),
    ('{"a": "x', {"a": "x"}),
    ('{"a": 1', {}),
    ('{"a": 1,', {"a": 1}),
    ('{"a": tru', {}),
    ('{"a": true}', {"a": True}),
    ('{"a": [', {"a": []}),
    ('{"a": [1, 2', {"a": [1]}),
    ('{"a": [{"b": null, "c": "d', {"a": [{"b": None, "c": "d"}]}),
    ('["x\\', ["x"]),
    ('["x\\u00e', ["x"]),
    ('["x\\u00e9', ["xé"]),
    ('["\\ud83c', [""]),
    ('["\\ud83c\\udf88', ["🎈"]),
    ('"half', "half"),
    ("[[], {}]", [[], {}]),
    ('{"a": 1, "a": "x', {"a": "x"}),
]


@pytest.mark.parametrize(("text", "value"), SHOWN)
def test_a_value_is_shown_as_far_as_it_goes(text: str, value: Any) -> None:
    assert read(text) == value
    assert read(*text) == value, "in single characters too"


@pytest.mark.parametrize(
    "text",
    [
        "```json",
        "Sure: {",
        "{]",
        "[}",
        '{"a" 1}',
        '{"a": 1 2}',
        "[1,,2]",
        "{,}",
        "{1: 2}",
        '["\\x"]',
        '["a\nb"]',
        "[nope, 1]",
        "[]]",
        "[" * (MAX_JSON_DEPTH + 1),
    ],
)
def test_text_that_is_not_json_adds_nothing(text: str) -> None:
    partial = PartialJson()
    partial.feed(text)
    assert partial.is_broken
    before = partial.copy()
    partial.feed('"more"')
    assert partial.copy() == before


@given(VALUES, st.booleans(), st.lists(st.integers(0, 60), max_size=6))
def test_the_last_value_is_the_whole_one_for_any_split(value: Any, ascii_only: bool, cuts: list[int]) -> None:
    text = json.dumps([value], ensure_ascii=ascii_only)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    partial, shown = PartialJson(), list[Any]()
    for start, end in pairwise(places):
        partial.feed(text[start:end])
        shown.append((json.dumps(partial.copy()), partial.copy()))
    assert not partial.is_broken
    assert json.loads(text) == [value] == partial.copy()
    assert all(before == json.dumps(kept) for before, kept in shown), "a value that was shown does not change"


def test_what_is_complete_is_shared_and_not_copied() -> None:
    partial = PartialJson()
    partial.feed('{"rows": [' + "[1, 2]," * 100)
    one = partial.copy()
    partial.feed("[3")
    two = partial.copy()
    assert one["rows"][0] is two["rows"][0]
    assert partial.cost == 100, "the rows; the open row and the object are empty so far"
