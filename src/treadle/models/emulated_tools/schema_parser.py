"""Replies that are held to a JSON schema: `{"tool": NAME, "arguments": {...}}` or `{"answer": TEXT}`.

The JSON is never shown. An answer is decoded as it comes; everything else is read when it is whole."""

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
"""Places in the head where JSON allows blanks."""
_DECODABLE = re.compile(r'(?:[^"\\]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+')
_PARTIAL_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_MAX_QUOTED_CHARACTERS = 60


class JsonStringDecoder:
    """The inside of a JSON string, decoded as it comes. Raw line ends are taken for themselves: models that no
    grammar holds do write them."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting = ""  # an escape that is not whole
        self._high = ""  # the first half of a character

    def feed(self, piece: str) -> tuple[str, str]:
        """What can be shown now, and what follows the closing quote. Raises Unusable if it is no JSON string."""
        if not (self._waiting or self._high or '"' in piece or "\\" in piece):
            return piece, ""  # nearly always
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
    """Implements `Reading` for replies that are held to a schema."""

    def __init__(self, allowed: Container[str]) -> None:
        self.text: list[str] = []
        self.calls: list[ToolUse] = []
        self._allowed = allowed
        self._said: StopReason = "other"
        self._raw: list[str] = []
        """All that came before the text of an answer."""
        self._matched: int | None = 0
        """How much of the head of an answer has come; None: it is something else."""
        self._answer = JsonStringDecoder()
        self._tail: list[str] = []
        """What follows the text of an answer."""

    def feed(self, piece: str) -> None:
        if self._matched != len(_ANSWER_HEAD):
            self._raw.append(piece)
            piece = self._after_head(piece)
        if self._answer.closed:
            self._tail.append(piece)
        elif piece:
            text, rest = self._answer.feed(piece)
            if text:
                self.text.append(text)
            if rest:
                self._tail.append(rest)

    def _after_head(self, piece: str) -> str:
        """What follows the head of an answer; nothing as long as that is not whole."""
        for place, character in enumerate(piece):
            if self._matched is None:
                break
            if character == _ANSWER_HEAD[self._matched]:
                self._matched += 1
                if self._matched == len(_ANSWER_HEAD):
                    return piece[place + 1 :]
            elif not (character in _BLANKS and self._matched in _BLANK_POSITIONS):
                self._matched = None
        return ""

    def end(self, said: StopReason) -> None:
        self._said = said
        if self._matched == len(_ANSWER_HEAD):
            return
        raw = "".join(self._raw)
        call = parse_call(raw, ("tool",), self._allowed)
        self.calls = [call] if call else []
        if said == "refusal" and not raw.lstrip().startswith("{"):
            self.text = [raw]  # these words are the provider's, and no schema holds them

    def stop(self) -> StopReason:
        if self._said == "refusal":
            return "refusal"
        if self.calls:
            return "tool_use" if self._said == "end_turn" else self._said
        if self._matched != len(_ANSWER_HEAD):
            raise UnusableReply(self._what_it_is())
        tail = "".join(self._tail).strip(_BLANKS)
        if tail == "}" and self._answer.closed:
            return "end_turn"
        if tail:
            raise UnusableReply(f"its answer is followed by {tail[:_MAX_QUOTED_CHARACTERS]!r}")
        if self._said == "max_tokens":
            return "max_tokens"
        raise UnusableReply("its answer is cut off")

    def _what_it_is(self) -> str:
        raw = "".join(self._raw).strip()
        if self._said == "max_tokens":
            return "it reached the limit of tokens before it was whole; raise max_tokens"
        shown = repr(raw if len(raw) <= _MAX_QUOTED_CHARACTERS else f"{raw[:_MAX_QUOTED_CHARACTERS]}…")
        return f"it is neither a call of an allowed tool nor an answer, as its schema demands, but {shown}"
