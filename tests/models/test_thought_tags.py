"""Thinking inside the text of a reply, however the network cuts it; and text that only talks about it."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import anthropic_wire, responses_wire
from tests.fake_endpoint import DONE, Answer, delta
from tests.models.chat import events_of
from treadle.domain.messages import Text, Thinking
from treadle.models.formats.thought_tags import ThoughtTags
from treadle.ports.model import Completed, ReasoningDelta, TextDelta

CASES = {
    "at the beginning": ("<think>hm</think>\n\nYes.", "hm", "Yes."),
    "behind blanks": ("\n <think>\nhm\n</think>\nYes.", "\nhm\n", "Yes."),
    "two": ("<think>a</think>\n<think>b</think>Yes.", "ab", "Yes."),
    "unclosed": ("<think>hm, I wonder", "hm, I wonder", ""),
    "a lone end, the beginning in the template": ("I wonder.\nHm.\n</think>\n\nYes.", "I wonder.\nHm.\n", "Yes."),
    "a lone end at the end of a line": ("I wonder.</think>\nYes.", "I wonder.", "Yes."),
    "a lone end and nothing else": ("I wonder.\n</think>", "I wonder.\n", ""),
    "a lone end behind a sentence": ("I wonder.</think> Yes.", "I wonder.", "Yes."),
    "a lone end behind a sentence and a blank": ("I wonder. </think> Yes.", "I wonder. ", "Yes."),
    "a lone end attached to both sides": ("I wonder</think>Yes.", "I wonder", "Yes."),
    "a lone end behind a later line": ("I wonder.\nSo, yes!</think>Yes.", "I wonder.\nSo, yes!", "Yes."),
    "an end at once": ("</think>\n\nYes.", "", "Yes."),
    "between lines": ("First.\n<think>\nhm\n</think>\nThen.", "\nhm\n", "First.\nThen."),
    "between lines, on one line": ("First.\n<think>hm</think>\nThen.", "hm", "First.\nThen."),
    "another spelling": ("<THINK>hm</Think>Yes.", "hm", "Yes."),
    "another tag": ("<thought>hm</thought>Yes.", "hm", "Yes."),
    "of Magistral": ("[THINK]hm[/THINK]Yes.", "hm", "Yes."),
    "of gpt-oss": (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
        "hm",
        "Yes.",
    ),
    "of gpt-oss, without a thought": ("<|channel|>final<|message|>Yes.", "", "Yes."),
    "of Gemma": ("<|channel>thought\nhm\n<channel|>Yes.", "\nhm\n", "Yes."),
    "of Cohere": ("<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Yes.", "hm", "Yes."),
    "empty": ("<think>\n\n</think>\n\nYes.", "\n\n", "Yes."),
}
TEXTS = (
    "Models put their thoughts between <think> and </think> tags.",
    "Use `<think>` to begin and `</think>` to end.",
    "```\n<think>\nhm\n</think>\n```\nThat is how it looks.",
    "Example:\n~~~xml\n<think>hm</think>\n~~~",
    "The closing tag </think> ends it, and `</think>`\nin code too.",
    "a < b and c <d> and <thin air>",
    "A block such as <think>hm</think>yes is removed.",
    "It ends with \"</think>\" or (</think>) or '</think>'.",
    "The tag: </think> ends it.",
    "List:\n- <think>: opens\n- </think>: closes",
    "<p>hello</p>",
    "ends with <",
    "ends with </thin",
    "",
    "   ",
    "[THIN] ice",
    "<|channel|>commentary to=functions.look",
    "The token <|channel|>analysis<|message|> begins a thought.",
)


def read(*pieces: str) -> tuple[str, str]:
    """The thoughts and the text in these pieces, fed as a reply feeds them."""
    text: list[str] = []
    thoughts: list[str] = []
    tags = ThoughtTags(text, thoughts)
    for piece in pieces:
        if tags.flows and "<" not in piece:
            text.append(piece)
        else:
            tags.feed(piece)
    tags.end()
    return "".join(thoughts), "".join(text)


@pytest.mark.parametrize("case", CASES)
def test_thoughts_are_separated_from_the_text(case: str) -> None:
    whole, thought, text = CASES[case]
    assert read(whole) == (thought, text)
    assert read(*whole) == (thought, text), "character by character"


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_only_mentions_tags_is_unchanged(text: str) -> None:
    assert read(text) == ("", text)
    assert read(*text) == ("", text)


@given(st.sampled_from([*TEXTS, *(case[0] for case in CASES.values())]), st.lists(st.integers(0, 60), max_size=6))
def test_a_reply_reads_the_same_for_any_split(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert read(*pieces) == read(text)


def test_thoughts_in_the_text_of_a_reply_are_shown_as_reasoning() -> None:
    pieces = [delta(content=piece) for piece in ("<th", "ink>h", "m</thi", "nk>\n\n", "Yes", ".")]
    *shown, last = events_of(Answer([*pieces, delta(finish="stop"), DONE]))
    assert isinstance(last, Completed)
    assert last.parts == (Thinking("hm", "fake", "m-1", field="<think>"), Text("Yes."))
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == "Yes."
    assert "".join(delta.text for delta in shown if isinstance(delta, ReasoningDelta)) == "hm"


def test_tags_and_thoughts_in_a_list_of_pieces_are_read() -> None:
    pieces = [
        [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}, "m"], "closed": True}],
        [{"type": "reasoning", "text": ", so"}],
        [{"type": "text", "text": "<think>really"}],
        [{"type": "text", "text": "</think>"}, {"type": "text", "text": "Yes"}],
        ["."],
    ]
    answer = Answer([*(delta(content=piece) for piece in pieces), delta(finish="stop"), DONE])
    *shown, last = events_of(answer)
    assert isinstance(last, Completed)
    assert [(type(part), part.text) for part in last.parts if isinstance(part, Text | Thinking)] == [
        (Thinking, "hm, soreally"),
        (Text, "Yes."),
    ]
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == "Yes."


def test_held_back_text_is_shown_at_the_end() -> None:
    *shown, last = events_of(Answer([delta(content="a <"), delta(finish="stop"), DONE]))
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == "a <"
    assert isinstance(last, Completed)
    assert last.parts == (Text("a <"),)


def test_a_thought_marked_by_google_is_reasoning() -> None:
    marked = delta(content="<thought>hm", extra_content={"google": {"thought": True}})
    *_, last = events_of(Answer([marked, delta(content="Yes."), delta(finish="stop"), DONE]))
    assert isinstance(last, Completed)
    assert last.parts[-1] == Text("Yes.")
    assert isinstance(last.parts[0], Thinking)


PIECES = ("<th", "ink>h", "m</thi", "nk>\n\n", "Yes", ".")
SAID = responses_wire.replied(responses_wire.message(*PIECES))


@pytest.mark.parametrize(
    ("replied", "answer"),
    [
        (anthropic_wire.events_of, Answer(anthropic_wire.stream(anthropic_wire.text(0, *PIECES)))),
        (
            responses_wire.events_of,
            Answer(responses_wire.wire(*responses_wire.replied(responses_wire.message(*PIECES)))),
        ),
    ],
    ids=["anthropic", "responses"],
)
def test_thoughts_in_the_text_of_other_formats_are_shown_as_reasoning(
    replied: Callable[[Answer], list[Any]], answer: Answer
) -> None:
    *shown, last = replied(answer)
    assert isinstance(last, Completed)
    assert last.parts == (Thinking("hm", "fake", "m-1"), Text("Yes."))
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == "Yes."
    assert "".join(delta.text for delta in shown if isinstance(delta, ReasoningDelta)) == "hm"


def test_a_text_full_of_tags_is_read_in_linear_time() -> None:
    text = "x <think> y </think> z\n" * 20_000
    assert read(*(text[place : place + 7] for place in range(0, len(text), 7))) == ("", text)
