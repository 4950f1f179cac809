"""What is read from replies whose calls are fenced JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.described import ADDED, CALL, CUTS, cut, fenced
from treadle.domain.messages import ToolUse
from treadle.ports.model import CallDelta, Completed, TextDelta

# ── Fenced JSON ────────────────────────────────────────────────────────────────────────────────────

BLOCK = f"```json\n{CALL}\n```"


@pytest.mark.parametrize(
    "reply",
    [
        BLOCK,
        f"```\n{CALL}\n```\n",
        f"```JSON\r\n{CALL}\r\n```\r\n",
        f"\n\n  ```json\n  {CALL}\n  ```  \n\n",
        f"```json {CALL} ```",
        f"```json{CALL}```",
        f"```json {CALL}\n```",
        f"```\n\n\n{CALL}```",
        BLOCK.replace("tool", "name"),
        BLOCK.replace(" ", "\n"),
        '```json\n{"arguments": {"a": 1, "b": 2}, "tool": "add"}\n```',
    ],
)
def test_a_fenced_call_is_a_call(reply: str) -> None:
    for pieces in ([reply], list(reply)):
        read = fenced(*pieces)
        assert read.shown == [CallDelta(0, "add", ADDED.arguments)]
        assert read.whole == Completed((ADDED,), "tool_use", read.whole.usage)


def test_text_around_calls_is_kept() -> None:
    read = fenced("First I ", "add.\n\n``", f"`json\n{CALL}\n``", "`\nThen ag", f"ain:\n{BLOCK}\n\nDone.\n\n")
    assert read.shown[0] == TextDelta("First I")
    assert read.shown_text == read.text == "First I add.\n\nThen again:\n\nDone."
    assert read.shown_calls == read.calls == [ADDED, ADDED]
    assert [delta.index for delta in read.shown if isinstance(delta, CallDelta)] == [0, 1]


def test_blank_lines_between_a_call_and_the_first_words_are_left_out() -> None:
    assert fenced(f"{BLOCK}\n\nDone.").text == "Done."


@pytest.mark.parametrize("inside", ["```", "a ``` b", "\\n```\\n", "`", "{", '\\"'])
def test_a_fence_in_the_arguments_does_not_end_a_call(inside: str) -> None:
    arguments = f'{{"a": "{inside}"}}'
    call = f'{{"tool": "add", "arguments": {arguments}}}'
    for reply in (f"```json\n{call}\n```", f"```json {call} ```"):
        assert fenced(*reply).calls == [ToolUse("", "add", arguments)]


TEXTS = [
    "Plain words.",
    "  \n blank \n\n",
    "\n",
    CALL,
    f"I call {CALL} now.",
    f"Inline: ```json {CALL} ```",
    f"`{CALL}`",
    f"``\n{CALL}\n``",
    f"> ```json\n> {CALL}\n> ```",
    f"```json\n{CALL}",
    f"```json\n{CALL}\n``",
    f"```json\n{CALL}\n``` is what I would call",
    f"```json\n{CALL}{CALL}\n```",
    f"```json\n[{CALL}]\n```",
    f"```json\nadd: {CALL}\n```",
    f"```json\n{CALL} // adds\n```",
    f"```python\n{CALL}\n```",
    f"```json5\n{CALL}\n```",
    f"````json\n{CALL}\n````",
    f"````\n{BLOCK}\n````",
    f"````\n```\n```\n{CALL}\n```\n````",
    f"```markdown\n{BLOCK}\n",
    f"```\nsome\n```\n{CALL}\n```\nothers\n```",
    f"```\n\n```\n{CALL}\n```\nothers\n```",
    f"```json\n{{}}\n```\n{CALL}\n```json\n{{}}\n```",
    f"```\n{{ x ```\n```\n{CALL}\n```\n```",
    "```json\n{\"a\": 1}\n```",
    '```json\n{"tool": "remove", "arguments": {}}\n```',
    '```json\n{"tool": "add"}\n```',
    '```json\n{"tool": "add", "arguments": [1, 2]}\n```',
    '```json\n{"tool": "add", "arguments": "{}"}\n```',
    '```json\n{"tool": "add", "name": "add", "arguments": {}}\n```',
    '```json\n{"tool": "add", "arguments": {}, "id": 1}\n```',
    '```json\n{"tool": "add", "arguments": {"a": 01}}\n```',
    '```json\n{"tool": 5, "arguments": {}}\n```',
    "```", "``````", "```json", "```json\n", "```\n```", "``` ```", "```````\n{", "`" * 500, " " * 500, "\n" * 500,
]  # fmt: skip


@pytest.mark.parametrize("reply", TEXTS)
def test_text_that_is_not_a_call_is_kept_unchanged(reply: str) -> None:
    for pieces in ([reply], list(reply)):
        read = fenced(*pieces)
        assert read.shown_text == read.text == reply
        assert not read.shown_calls
        assert read.whole.stop == "end_turn"


def test_a_call_after_a_similar_text_is_parsed() -> None:
    for text in ("```python\nx = 1\n```", "```json\n{}\n```", "``` ```", "```\n```", "Use ``` for that."):
        read = fenced(f"{text}\n{BLOCK}")
        assert read.calls == [ADDED], text
        assert read.text == text


def test_no_call_is_read_if_no_tool_may_be_called() -> None:
    read = fenced(f"{BLOCK}\n", choice="none")
    assert read.shown_text == read.text == f"{BLOCK}\n"
    assert not read.calls


def test_only_possible_calls_are_held_back() -> None:
    read = fenced("Look:\n", "```py", "thon\n", "x = 1", "\n```\n", "```\n", "pl", "ain\n", "more", "\n```")
    assert [delta.text for delta in read.shown if isinstance(delta, TextDelta)] == [
        "Look:", "\n```python", "\nx = 1", "\n```", "\n```\nplain", "\nmore", "\n```",
    ]  # fmt: skip


WORDS = st.sampled_from(
    [
        "```",
        "`",
        "``",
        "````",
        "\n",
        "\n```\n",
        "```json\n",
        "json",
        " ",
        "x",
        "{",
        "}",
        '"',
        CALL,
        BLOCK,
        "\r\n",
        "\t",
    ]
)


@given(st.lists(WORDS, max_size=20).map("".join) | st.text(max_size=50), CUTS)
def test_text_without_a_valid_block_comes_out_unchanged(text: str, cuts: list[int]) -> None:
    read = fenced(*cut(text, cuts), choice="none")
    assert read.shown_text == read.text == text
    if not (read := fenced(*cut(text, cuts))).calls:
        assert read.shown_text == read.text == text


@given(st.lists(WORDS, max_size=20).map("".join), CUTS)
def test_a_reply_reads_the_same_for_any_split(text: str, cuts: list[int]) -> None:
    whole, pieces = fenced(text), fenced(*cut(text, cuts))
    assert whole.whole == pieces.whole
    assert pieces.shown_text == pieces.text
    assert pieces.shown_calls == pieces.calls
    assert len(whole.calls) <= text.count(CALL)
    left = text
    for _ in whole.calls:
        left = left.replace(CALL, "", 1)
    assert whole.text.count(CALL) == left.count(CALL)


def test_the_calls_of_a_reply_that_was_cut_are_left_out() -> None:
    read = fenced(f"{BLOCK}\n{BLOCK[:30]}", finish="length")
    assert (read.calls, read.text, read.whole.stop) == ([], BLOCK[:30], "max_tokens")
    assert read.whole.dropped_calls == ("add",)
