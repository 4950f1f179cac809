"""What is read from replies that are held to a JSON schema."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.described import ADDED, CALL, CUTS, cut, held
from treadle.domain.messages import Text
from treadle.models.http.wire import UnusableReply
from treadle.ports.model import CallDelta, Completed, TextDelta

# ── Held to a schema ───────────────────────────────────────────────────────────────────────────────


def test_an_answer_is_shown_as_it_arrives() -> None:
    read = held(' {\n "ans', 'wer" : "It', "'s \\", "n42.\\u00", 'e9"', "\n} ")
    assert read.shown == [TextDelta("It"), TextDelta("'s "), TextDelta("\n42."), TextDelta("é")]
    assert read.whole == Completed((Text("It's \n42.é"),), "end_turn", read.whole.usage)


def test_a_call_is_shown_when_it_is_complete() -> None:
    read = held('{\n  "tool": "add",', '\n  "arguments": {\n    "a": 1,\n    "b": 2\n  }\n}')
    assert read.shown == [CallDelta(0, "add", '{"a": 1, "b": 2}')]
    assert read.whole == Completed((ADDED,), "tool_use", read.whole.usage)
    assert held('{"arguments": {"a": 1, "b": 2}, "tool": "add"}', finish="tool_calls").whole.stop == "tool_use"


@st.composite
def json_strings(draw: st.DrawFn) -> tuple[str, str]:
    """A text, and one of the ways to write it as JSON. Halves of characters may be anywhere, escaped."""
    text = draw(st.text(st.characters() | st.sampled_from('"\\/\n\t\ud83d\ude00\udbff\ud800é😀'), max_size=30))
    written = ""
    for character in text:
        units = character.encode("utf-16-be", "surrogatepass")
        escapes = "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
        ways = [escapes, escapes.upper().replace("U", "u")]
        if character not in '"\\' and not "\ud800" <= character <= "\udfff":
            ways.append(character)
        if short := json.dumps(character)[1:-1]:
            ways.append(short)
        written += draw(st.sampled_from(ways))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), written


@given(json_strings(), CUTS, st.sampled_from(["", " ", "\n\t"]))
def test_an_answer_is_decoded_correctly_for_any_split(string: tuple[str, str], cuts: list[int], blank: str) -> None:
    text, written = string
    whole = blank.join(["", "{", '"answer"', ":", f'"{written}"', "}", ""])
    read = held(*cut(whole, cuts))
    assert read.shown_text == text == read.text
    assert read.whole.stop == "end_turn"


@given(json_strings(), CUTS, st.integers(0, 60))
def test_everything_shown_of_a_truncated_answer_is_kept(string: tuple[str, str], cuts: list[int], end: int) -> None:
    text, written = string
    read = held(*cut('{"answer":"' + written[:end], cuts), finish="length")
    assert read.whole.stop == "max_tokens"
    assert text.startswith(read.text.rstrip("\ufffd"))
    assert read.shown_text == read.text


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "42",
        "The answer is 42.",
        "null",
        "[]",
        "{}",
        '{"answer": 42}',
        '{"answer": null}',
        '{"answer": "42", "sure": true}',
        '{"answer": "42"} Was that right?',
        '{"answer": "42"}{"answer": "43"}',
        '{"answer": "42"}}',
        '{"answer": "4\\x32"}',
        '{"answer": "4\\u00g2"}',
        '{"ans wer": "42"}',
        '{"answer": "42"',
        '{"answer": "42',
        '{"answer": ',
        '{"text": "42"}',
        '```json\n{"answer": "42"}\n```',
        CALL[:-1],
        CALL[:20],
        CALL + CALL,
        f"{CALL} and then I answer.",
        f"I call {CALL}",
        f"[{CALL}]",
        '{"tool": "remove", "arguments": {}}',
        '{"tool": "add"}',
        '{"tool": "add", "arguments": []}',
        '{"tool": "add", "arguments": "{}"}',
        '{"tool": "add", "arguments": null}',
        '{"tool": "add", "arguments": {}, "answer": "42"}',
        '{"tool": ["add"], "arguments": {}}',
        '{"tool": {"arguments": {}}, "arguments": {}}',
        '{"name": "add", "arguments": {}}',
        '{"arguments": {}}',
        '{"tool": "add", "arguments": {"a": NaN}}',
        '{"tool": "add", "arguments": ' + '{"a":' * 15_000 + "1" + "}" * 15_001,
    ],
)
def test_a_reply_that_the_schema_does_not_allow_is_unusable(reply: str) -> None:
    for pieces in ([reply], list(reply)):
        with pytest.raises(UnusableReply) as raised:
            _ = held(*pieces).whole
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 200


def test_a_call_that_was_not_allowed_is_unusable() -> None:
    read = held(CALL, choice="none")
    assert not read.shown
    with pytest.raises(UnusableReply, match="neither a call of an allowed tool nor an answer"):
        _ = read.whole


@pytest.mark.parametrize(
    ("reply", "stop"),
    [
        ('{"answer": "so far', "max_tokens"),
        ('{"answer": "so far\\', "max_tokens"),
        ('{"answer": "so far\\ud83d', "max_tokens"),
        ('{"answer": "so far"', "max_tokens"),
        ('{"answer": "so far"}', "end_turn"),
    ],
)
def test_an_answer_at_the_token_limit_is_kept(reply: str, stop: str) -> None:
    read = held(reply, finish="length")
    assert (read.text, read.whole.stop) == ("so far", stop)


@pytest.mark.parametrize("reply", ["", '{"ans', '{"answer":', CALL[:-1]])
def test_a_token_limit_outside_the_text_makes_a_reply_unusable(reply: str) -> None:
    with pytest.raises(UnusableReply, match="raise max_tokens"):
        _ = held(reply, finish="length").whole


def test_a_complete_call_of_a_reply_that_was_cut_is_left_out() -> None:
    whole = held(CALL, finish="length").whole
    assert (whole.stop, whole.parts) == ("max_tokens", ())
    assert whole.dropped_calls


def test_a_refusal_quotes_the_provider() -> None:
    read = held({"refusal": "I will not "}, {"refusal": "do that."})
    assert read.shown == [TextDelta("I will not do that.")]
    assert read.whole == Completed((Text("I will not do that."),), "refusal", read.whole.usage)


@pytest.mark.parametrize(("reply", "text"), [('{"answer": "So', "So"), ('{"tool": "a', ""), ("Sorry.", "Sorry.")])
def test_a_filtered_reply_is_a_refusal(reply: str, text: str) -> None:
    read = held(reply, finish="content_filter")
    assert (read.text, read.whole.stop) == (text, "refusal")
