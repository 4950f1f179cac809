"""How the model reads results of tools."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.domain.observations import (
    extract_text,
    is_truncated,
    make_header,
    mark_truncated,
    says_all,
    split_header,
)

HEADER = make_header("failed", 3, 1).strip()


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (("Sunny.", 999, None, False), True),
        (("Sunny.", 1000, None, False), False),
        (("", 3, None, False), False),
        (("out", 3, 0, False), False),
        (("a … b", 3, None, True), False),
        ((HEADER, 3, None, False), False),
        ((f"{HEADER}\nmore", 3, None, False), False),
        (('{"status":"ok"}', 3, None, False), True),
    ],
)
def test_a_result_gets_a_header_only_if_it_says_more_than_that_it_succeeded(facts: Any, expected: bool) -> None:
    assert says_all(*facts) == expected


@given(
    text=st.one_of(st.text(), st.sampled_from((HEADER, f"{HEADER}\nmore"))),
    duration_ms=st.integers(0, 5000),
    exit_code=st.none() | st.integers(-255, 255),
    truncated=st.booleans(),
)
def test_a_text_is_read_back_whatever_it_begins_with(
    text: str, duration_ms: int, exit_code: int | None, truncated: bool
) -> None:
    is_plain = says_all(text, duration_ms, exit_code, truncated)
    result = text if is_plain else make_header("ok", duration_ms, exit_code, truncated) + text
    assert extract_text(result) == text
    assert is_truncated(result) == truncated
    head, _ = split_header(result)
    shortened = f"{mark_truncated(head)}{text}"
    assert is_truncated(shortened)
    assert extract_text(shortened) == text
