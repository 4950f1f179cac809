"""Requests to models without native tool calls, and their replies."""

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st

from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Message, Text, ToolUse, user
from treadle.domain.models import Profile, ToolStyle
from treadle.domain.tools import ToolChoiceMode, ToolSpec
from treadle.models.emulated_tools.wire_format import new_reply
from treadle.ports.model import (
    CallDelta,
    Completed,
    Conversation,
    Delta,
    ModelRequest,
    Preamble,
    TextDelta,
)

INTEGER = {"type": "integer"}
WORD = {"type": "string", "description": "One word."}
NUMBERS: dict[str, Any] = {"properties": {"a": INTEGER, "b": INTEGER}, "required": ["a", "b"]}
ADD = ToolSpec("add", "Add two\n numbers.", {"type": "object"} | NUMBERS)
LENGTH = ToolSpec("length", "Count the letters of a word.", {"properties": {"word": WORD}, "required": ["word"]})
EACH_STYLE = pytest.mark.parametrize("style", ["schema", "fenced"])


def asked(
    *messages: Message,
    style: ToolStyle = "schema",
    tools: tuple[ToolSpec, ...] = (ADD, LENGTH),
    settings: ModelSettings | None = None,
    choice: ToolChoiceMode = "auto",
) -> ModelRequest:
    return ModelRequest(
        "m-1",
        Preamble("Be brief.", tools),
        Conversation(messages or (user("hello"),)),
        settings or ModelSettings(),
        choice,
        profile=Profile(tools=style),
    )


CALL = '{"tool": "add", "arguments": {"a": 1, "b": 2}}'
ADDED = ToolUse("", "add", '{"a": 1, "b": 2}')
CUTS = st.lists(st.integers(0, 200), max_size=12)


class Read:
    """A reply that has come in these pieces: words, or other deltas."""

    def __init__(
        self, style: ToolStyle, pieces: Iterable[str | dict[str, Any]], finish: str, choice: ToolChoiceMode
    ) -> None:
        self.shown: list[Delta] = []
        self.reply = new_reply(asked(style=style, choice=choice))
        for piece in pieces:
            self._take({"content": piece} if isinstance(piece, str) else piece)
        self._take({}, finish)

    def _take(self, delta: dict[str, Any], finish: str | None = None) -> None:
        chunk = {"choices": [{"delta": delta, "finish_reason": finish}]}
        assert self.reply.feed([json.dumps(chunk).encode()]) is None
        self.reply.show_new(self.shown.append)

    @property
    def whole(self) -> Completed:
        return self.reply.finish(0)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.whole.parts if isinstance(part, Text))

    @property
    def calls(self) -> list[ToolUse]:
        return [part for part in self.whole.parts if isinstance(part, ToolUse)]

    @property
    def shown_text(self) -> str:
        return "".join(delta.text for delta in self.shown if isinstance(delta, TextDelta))

    @property
    def shown_calls(self) -> list[ToolUse]:
        return [ToolUse("", delta.name, delta.arguments) for delta in self.shown if isinstance(delta, CallDelta)]


def held(*pieces: str | dict[str, Any], finish: str = "stop", choice: ToolChoiceMode = "auto") -> Read:
    return Read("schema", pieces, finish, choice)


def fenced(*pieces: str | dict[str, Any], finish: str = "stop", choice: ToolChoiceMode = "auto") -> Read:
    return Read("fenced", pieces, finish, choice)


def cut(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    return [text[start:end] for start, end in pairwise(edges)]
