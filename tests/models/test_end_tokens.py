"""Control tokens that a server leaves at the end of a reply: they are neither shown nor part of the answer."""

import pytest

from tests.fake_endpoint import DONE, Answer, delta
from tests.models.chat import ADD, HELLO, converse
from treadle.domain.control_tokens import strip_end_tokens
from treadle.domain.messages import Text
from treadle.ports.model import Completed, ModelRequest, Preamble, TextDelta

WIDE = "<\uff5cend\u2581of\u2581sentence\uff5c>"
TOKENS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eos|>", "<|endoftext|>", "</s>", WIDE)


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_after_an_answer_is_removed(token: str) -> None:
    assert strip_end_tokens(f"Done.{token}") == "Done."
    assert strip_end_tokens(f"Done.\n{token}\n{token}") == "Done."


@pytest.mark.parametrize(
    "text",
    [
        "Done.",
        "A turn ends with <|im_end|>",
        "It is `<|im_end|>`",
        "```\nx<|im_end|>\n```",
        "```\nx<|im_end|>",
        "<p><s>12</s>",
        "<|im_end|>",
        "<|im_start|>assistant\nDone.<|im_end|>",
        "a[1]",
        "<b>x</b>",
    ],
)
def test_an_answer_that_quotes_a_token_is_kept(text: str) -> None:
    assert strip_end_tokens(text) == text


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_an_end_token_is_not_shown(token: str, size: int) -> None:
    text = f"x < y [1] <|a|> so.{token}" if size == 3 else f"x < y [1] so.{token}"
    answer = text if size == 3 else text.removesuffix(token)
    pieces = [delta(content=text[place : place + size]) for place in range(0, len(text), size)]
    [*shown, last] = converse(Answer([*pieces, delta(finish="stop"), DONE])).replies[0]
    assert isinstance(last, Completed)
    assert last.parts == (Text(answer),)
    assert "".join(piece.text for piece in shown if isinstance(piece, TextDelta)) == answer


@pytest.mark.parametrize("offers_tools", [True, False])
def test_a_reply_of_tokens_alone_is_kept_only_for_agents_with_tools(offers_tools: bool) -> None:
    preamble = Preamble("", (ADD,) if offers_tools else ())
    request = ModelRequest("m-1", preamble, HELLO.conversation, HELLO.settings, provider="fake")
    answer = Answer([delta(content="<|eos|>", finish="stop"), DONE])
    last = converse(answer, requests=[request]).replies[0][-1]
    assert isinstance(last, Completed)
    assert last.parts == ((Text("<|eos|>"),) if offers_tools else ())
