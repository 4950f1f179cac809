"""Parses replies that are constrained by a JSON schema: `{"tool": NAME, "arguments": {...}}` or `{"answer":
TEXT}`.

The JSON is never shown. An answer is decoded as it arrives; everything else is parsed when it is complete."""

import json
import re
from collections.abc import Container

from treadle.domain.events import StopReason
from treadle.domain.messages import ToolUse
from treadle.models.emulated_tools.reply import parse_call
from treadle.models.http.surrogates import replace_surrogates
from treadle.models.http.wire import UnusableReply

_BLANKS = " \t\r\n"
_ANSWER_HEAD = '{"answer":"'
_BLANK_POSITIONS = (0, 1, 9, 10)
"""Positions in the head where JSON allows whitespace."""
_DECODABLE = re.compile(r'(?:[^"\\]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+')
_PARTIAL_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_MAX_QUOTED_CHARACTERS = 60


class JsonStringDecoder:
    """Decodes the inside of a JSON string as it arrives. Raw line breaks are accepted, because models without a
    grammar do write them."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting = ""  # an incomplete escape
        self._high = ""  # a high surrogate whose low surrogate is missing

    def feed(self, piece: str) -> tuple[str, str]:
        """Return what can be shown now, and what follows the closing quote. Raise UnusableReply if it is not a
        JSON string."""
        if not (self._waiting or self._high or '"' in piece or "\\" in piece):
            return piece, ""  # the common case
        piece = self._waiting + piece
        found = _DECODABLE.match(piece)
        end = found.end() if found else 0
        rest = piece[end:]
        self.closed = rest[:1] == '"'
        if rest and not self.closed and not _PARTIAL_ESCAPE.fullmatch(rest):
            raise UnusableReply(f"its answer holds {rest[:6]!r}, which JSON does not allow")
        self._waiting = "" if self.closed else rest
        text = self._high + json.loads(f'"{piece[:end]}"', strict=False)
        cut = "\ud800" <= text[-1:] <= "\udbff" and not self.closed
        self._high = text[-1] if cut else ""
        return replace_surrogates(text[:-1] if cut else text), rest[1:] if self.closed else ""


class SchemaParser:
    """Implements `ReplyParser` for replies that are constrained by a schema."""

    def __init__(self, allowed: Container[str]) -> None:
        self.text: list[str] = []
        self.calls: list[ToolUse] = []
        self.excess = 0
        self._allowed = allowed
        self._wire_stop: StopReason = "other"
        self._raw: list[str] = []
        """Everything before the text of an answer."""
        self._matched: int | None = 0
        """How many characters of the head of an answer have arrived; None: the reply is not an answer."""
        self._answer = JsonStringDecoder()
        self._tail: list[str] = []
        """What follows the text of an answer."""

    def feed(self, piece: str) -> None:
        if self._matched != len(_ANSWER_HEAD):
            self._raw.append(piece)
            piece = self._skip_head(piece)
        if self._answer.closed:
            self._tail.append(piece)
        elif piece:
            text, rest = self._answer.feed(piece)
            if text:
                self.text.append(text)
            if rest:
                self._tail.append(rest)

    def _skip_head(self, piece: str) -> str:
        """Return what follows the head of an answer, or "" while the head is incomplete."""
        for position, character in enumerate(piece):
            if self._matched is None:
                break
            if character == _ANSWER_HEAD[self._matched]:
                self._matched += 1
                if self._matched == len(_ANSWER_HEAD):
                    return piece[position + 1 :]
            elif not (character in _BLANKS and self._matched in _BLANK_POSITIONS):
                self._matched = None
        return ""

    def end(self, stop: StopReason) -> None:
        self._wire_stop = stop
        if self._matched == len(_ANSWER_HEAD):
            return
        raw = "".join(self._raw)
        call = parse_call(raw, ("tool",), self._allowed)
        self.calls = [call] if call else []
        if stop == "refusal" and not raw.lstrip().startswith("{"):
            self.text = [raw]  # a refusal by the provider, which ignores the schema

    def stop(self) -> StopReason:
        if self._wire_stop == "refusal":
            return "refusal"
        if self.calls:
            return "tool_use" if self._wire_stop == "end_turn" else self._wire_stop
        if self._matched != len(_ANSWER_HEAD):
            raise UnusableReply(self._describe_reply())
        tail = "".join(self._tail).strip(_BLANKS)
        if tail == "}" and self._answer.closed:
            return "end_turn"
        if tail:
            raise UnusableReply(f"its answer is followed by {tail[:_MAX_QUOTED_CHARACTERS]!r}")
        if self._wire_stop == "max_tokens":
            return "max_tokens"
        raise UnusableReply("its answer is cut off")

    def _describe_reply(self) -> str:
        raw = "".join(self._raw).strip()
        if self._wire_stop == "max_tokens":
            return "it reached the limit of tokens before it was whole; raise max_tokens"
        shown = repr(raw if len(raw) <= _MAX_QUOTED_CHARACTERS else f"{raw[:_MAX_QUOTED_CHARACTERS]}…")
        return f"it is neither a call of an allowed tool nor an answer, as its schema demands, but {shown}"
