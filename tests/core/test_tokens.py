"""Estimates of token counts, and how the counts of the provider correct them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.context.tokens import CLASSES, TokenCount, estimate_message, estimate_text, estimate_tool
from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse, user
from treadle.domain.observations import make_header
from treadle.domain.tools import ToolSpec

PROSE = "The keeper walks up the steps every evening, wipes salt from the glass, and writes. "
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, ANY_TEXT),
    st.builds(ToolUse, st.just("c"), st.text(), st.text()),
    st.builds(ToolResult, st.just("c"), ANY_TEXT),
    st.builds(Thinking, ANY_TEXT, st.just("provider"), st.just("model")),
    st.just(Image("image/png", "aGVsbG8=")),
)
REPORTS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), max_size=8)

# ── A text ─────────────────────────────────────────────────────────────────────────────────────────


@given(ANY_TEXT)
def test_the_estimate_of_any_text_is_bounded_by_its_length(text: str) -> None:
    assert 0 <= estimate_text(text) <= 4 * len(text) + 4
    assert (estimate_text(text) == 0) == (not text)


@given(ANY_TEXT, ANY_TEXT)
def test_appending_never_lowers_the_estimate(one: str, other: str) -> None:
    assert estimate_text(one + other) >= max(estimate_text(one), estimate_text(other) - 2)


@given(ANY_TEXT, ANY_TEXT)
def test_an_estimate_is_close_to_the_sum_of_its_parts(one: str, other: str) -> None:
    """Only where they meet may it differ."""
    assert abs(estimate_text(one + other) - estimate_text(one) - estimate_text(other)) <= 12


@pytest.mark.parametrize(
    "text", [PROSE, "x = {'a': 1}\n", "12:04:55 GET /a/b 200\n", "日本語です。", "Привет, мир! "]
)
@pytest.mark.parametrize("times", [600, 5000])
def test_a_long_text_is_sampled(text: str, times: int) -> None:
    assert estimate_text(text * times) == pytest.approx(times * (estimate_text(text * 100) / 100), rel=0.05)


def test_a_long_text_of_two_kinds_is_sampled_all_over() -> None:
    log = "2025-03-04T05:06:07Z GET /a/b 200 0x7f3a 12ms\n"
    pieces = [PROSE * 300, log * 400, PROSE * 200, log * 300]
    assert estimate_text("".join(pieces)) == pytest.approx(sum(map(estimate_text, pieces)), rel=0.15)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("hello", 1, 2),
        (PROSE, 15, 20),
        ("1234567890", 8, 12),
        ('{"path": "src/main.py", "lines": 40}', 12, 20),
        ("9bFlIkpYt5HfavHYMD5hzcS7hsPRxCcQ", 14, 26),
        ("acgt" * 100, 150, 300),  # no word has four hundred letters
        ("日本語のテキスト", 8, 20),
        ("🎉🎉🎉", 6, 12),
        (" " * 400, 4, 20),
    ],
)
def test_estimates_are_in_range_for_each_kind_of_text(text: str, least: int, most: int) -> None:
    assert least <= estimate_text(text) <= most


def test_every_byte_counts_once() -> None:
    """A character is counted by its first byte; small letters count by the word."""
    members = b"".join(kind.members for kind in CLASSES)
    counted = {*members, *b"abcdefghijklmnopqrstuvwxyz", *range(0x80, 0xC0)}
    assert len(members) == len(set(members))
    assert {*range(256)} - counted == {0xC0, 0xC1, *range(0xF5, 0x100)}, "which UTF-8 does not have"
    assert all(0 < kind.tokens * 64 <= 255 for kind in CLASSES)


# ── A message, a tool ──────────────────────────────────────────────────────────────────────────────


@given(st.lists(PARTS, max_size=4), PARTS)
def test_a_message_grows_with_its_parts(parts: list[Part], more: Part) -> None:
    one, other = Message("assistant", tuple(parts)), Message("assistant", (*parts, more))
    assert 0 < estimate_message(one) <= estimate_message(other)


@given(st.lists(st.lists(PARTS, max_size=3), min_size=1, max_size=6), REPORTS)
def test_a_conversation_grows_with_its_messages(said: list[list[Part]], reports: list[tuple[int, int]]) -> None:
    count = TokenCount(before=50)
    for report in reports:
        count.report(*report)
    guessed, last = count.guessed, count.estimate(count.guessed)
    for parts in said:
        guessed += estimate_message(Message("assistant", tuple(parts)))
        assert count.estimate(guessed) > last >= 0
        last = count.estimate(guessed)


def test_the_status_header_of_a_result_does_not_change_its_estimate() -> None:
    """The status precedes the text, and would count for the whole text if only a sample were examined."""
    text = PROSE * 1000
    plain = estimate_message(Message("tool", (ToolResult("c", text),)))
    assert estimate_message(Message("tool", (ToolResult("c", make_header("ok", 3) + text),))) == plain
    assert plain > estimate_message(user(text))


def test_a_picture_does_not_count_by_its_bytes() -> None:
    assert estimate_message(user("look", Image("image/png", "A" * 10**6))) < 2000


def test_a_tool_counts_with_its_schema() -> None:
    def tool(**properties: object) -> int:
        return estimate_tool(ToolSpec("read", "Read a file.", {"type": "object", "properties": properties}))

    path = tool(path={"type": "string"})
    assert tool() < path < tool(path={"type": "string", "description": "Where it is."})
    assert path < tool(path={"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}})
    assert path < tool(path={"anyOf": [{"type": "string"}, {"type": "null"}]})
    assert tool(path={"enum": ["a", "b"]}) < tool(path={"enum": ["a", "b", "c"]})


def test_a_schema_may_be_arbitrarily_deep() -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(5000):
        schema = {"type": "object", "properties": {"inner": schema}}
    assert 0 < estimate_tool(ToolSpec("deep", "Goes down.", schema)) < 100


# ── A conversation ─────────────────────────────────────────────────────────────────────────────────


def test_the_initial_estimate_is_used_until_usage_is_reported() -> None:
    assert TokenCount().estimate(0) < 100
    assert TokenCount(before=300).estimate(1000) - TokenCount().estimate(0) == 1300


def test_reported_counts_are_not_estimated_again() -> None:
    count = TokenCount(before=400)
    count.report(1111, 700)
    assert count.estimate(700) == 1111
    assert count.estimate(800) == 1211


def test_the_rate_is_learned_from_added_messages() -> None:
    """The preamble is encoded in the provider's own way, and says nothing about results."""
    count = TokenCount(before=1000)
    count.report(2500, 100)
    assert count.rate == 1.0
    for turn in range(1, 5):
        count.report(2500 + 700 * turn, 100 + 1000 * turn)
    assert count.rate == pytest.approx(0.7, abs=0.03)
    assert count.estimate(5100) == pytest.approx(2500 + 700 * 5, rel=0.02)


def test_a_long_conversation_sets_the_rate_at_once() -> None:
    count = TokenCount(before=100)
    count.report(5000, 10_000)
    assert count.rate == pytest.approx(0.5, abs=0.02)


def test_another_kind_of_text_is_learned_in_a_few_turns() -> None:
    count = TokenCount(before=100)
    counted, guessed = 600, 400
    count.report(counted, guessed)
    for rate in (1.0, 1.0, 0.5, 0.5, 0.5):
        counted, guessed = counted + round(1000 * rate), guessed + 1000
        count.report(counted, guessed)
    assert count.rate == pytest.approx(0.5, abs=0.1)


def test_the_learned_rate_survives_a_change() -> None:
    """After the conversation was shortened, the size of the preamble and the rate are still known."""
    count = TokenCount(before=1000)
    count.report(2500, 100)
    for turn in range(1, 9):
        count.report(2500 + 500 * turn, 100 + 1000 * turn)
    count.invalidate()
    assert count.counted == 0
    assert count.estimate(100) == pytest.approx(2500, rel=0.05)
    assert count.estimate(2100) == pytest.approx(3500, rel=0.05)


def test_the_preamble_may_be_smaller_than_estimated() -> None:
    count = TokenCount(before=4000)
    count.report(1800, 100)
    count.invalidate()
    assert count.estimate(100) == 1800


@pytest.mark.parametrize("nonsense", [0, -5, 1, 300, 10**7])
@pytest.mark.parametrize("first", [True, False])
def test_implausible_counts_are_ignored(nonsense: int, first: bool) -> None:
    count, sane = TokenCount(before=2000), TokenCount(before=2000)
    if not first:
        count.report(8000, 5000)
        sane.report(8000, 5000)
    count.report(nonsense, 6000)
    assert count == sane


def test_a_report_without_cached_tokens_does_not_affect_the_next() -> None:
    count = TokenCount(before=1000)
    for turn in range(4):
        count.report(3000 + 1000 * turn, 2000 + 1000 * turn)
    rate = count.rate
    count.report(3500, 6000)  # half of it was cached, and not counted
    count.report(8000, 7000)
    assert count.rate == rate
    assert count.estimate(8000) == pytest.approx(9000, rel=0.02)


def test_a_shrinking_count_does_not_change_the_rate() -> None:
    """The thoughts of the last reply were counted with it, and are not sent back."""
    count = TokenCount(before=1000)
    count.report(6000, 4000)
    count.report(5900, 4500)
    assert count.estimate(4500) == 5900
    assert 0.25 <= count.rate <= 4.0


def test_dropped_reasoning_is_not_counted() -> None:
    count = TokenCount(before=1000)
    count.report(3000 + 2000, 2040, output=2000, kept=40)
    assert count.estimate(2040) == 3040
    count.report(3100 + 60, 2150, output=60, kept=50)
    assert count.estimate(2150) == 3160, "an ordinary reply is as long as it was counted"


@given(st.integers(0, 10**5), REPORTS, st.integers(0, 10**6))
def test_rate_and_estimate_stay_in_range_for_any_reports(
    before: int, reports: list[tuple[int, int]], guessed: int
) -> None:
    count = TokenCount(before=before)
    for place, (counted, guess) in enumerate(reports):
        count.report(counted, guess, output=counted // 2, kept=guess // 3)
        if place % 3 == 2:
            count.invalidate()
    assert 0.25 <= count.rate <= 4.0
    assert count.estimate(guessed) >= 0
    assert count.estimate(guessed + count.guessed + 1000) > count.estimate(guessed + count.guessed)
