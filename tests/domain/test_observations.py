"""How the model reads results of tools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.domain.observations import (
    extract_text,
    format_result,
    has_exit_code,
    is_truncated,
    mark_truncated,
    split_header,
)

LIKE_A_HEADER = ('{"status":"ok"}', '{"status":"failed","exit_code":1}\nmore', '{"status":"ok","truncated":true}')


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (format_result("Sunny.", "ok"), "Sunny."),
        (format_result("Sunny.", "ok", 999), "Sunny."),
        (format_result("Sunny.", "ok", 1000), '{"status":"ok","duration_ms":1000}\nSunny.'),
        (format_result("", "ok", 3), '{"status":"ok"}\n'),
        (format_result("out", "ok", 3, 0), '{"status":"ok","exit_code":0}\nout'),
        (format_result("out", "failed", 3, 2), '{"status":"failed","exit_code":2}\nout'),
        (format_result("No.", "blocked"), '{"status":"blocked"}\nNo.'),
        (format_result("a … b", "ok", truncated=True), '{"status":"ok","truncated":true}\na … b'),
        (format_result('{"status":"ok"}', "ok"), '{"status":"ok"}\n{"status":"ok"}'),
    ],
)
def test_a_header_says_only_what_the_model_needs(result: str, expected: str) -> None:
    assert result == expected


@given(
    text=st.one_of(st.text(), st.sampled_from(LIKE_A_HEADER)),
    status=st.sampled_from(("ok", "failed", "interrupted")),
    duration_ms=st.integers(0, 5000),
    exit_code=st.none() | st.integers(-255, 255),
    truncated=st.booleans(),
)
def test_a_text_is_read_back_whatever_it_begins_with(
    text: str, status: str, duration_ms: int, exit_code: int | None, truncated: bool
) -> None:
    result = format_result(text, status, duration_ms, exit_code, truncated)
    assert extract_text(result) == text
    assert has_exit_code(result) == (exit_code is not None)
    assert is_truncated(result) == truncated
    head, _ = split_header(result)
    assert is_truncated(f"{mark_truncated(head)}{text}")
