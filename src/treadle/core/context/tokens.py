"""How many tokens a conversation has: what the provider counted last, and a guess at what came
since.

The guess looks at the characters alone: a word is about a token however long it is, a digit is one,
and so on. The weights were fitted to the tokenizer of the embedded model (`python -m bench.tokens
--fit`). What a provider reports tells how far they are off for its model and this kind of text, and
what is guessed next is put right by that."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, NamedTuple, cast

from treadle.domain.messages import Image, Message, ToolResult, ToolUse
from treadle.domain.observations import text_of
from treadle.domain.tools import ToolSpec

CHARACTERS_PER_TOKEN = 4
"""Of English prose, roughly: for whoever has a length and no text."""

_MESSAGE, _CALL, _RESULT, _TOOL = 5, 10, 22, 4
"""Tokens around a message, a call, a result and the description of a tool."""
_AROUND = 55
"""Tokens that are sent whatever is said: how to reply, and whose turn it is."""
_IMAGE = 1500
"""Tokens that a picture counts for, whatever its size."""
_DEEPEST = 8
"""How far schemas inside schemas are looked at."""

# ── A text ─────────────────────────────────────────────────────────────────────────────────────────


class CharacterClass(NamedTuple):
    """Characters that count alike: bytes of ASCII, or the first bytes of others in UTF-8."""

    name: str
    members: bytes
    tokens: float
    """Of each."""


_LOWER = b"abcdefghijklmnopqrstuvwxyz"
_SIGNS = bytes(byte for byte in range(0x21, 0x7F) if not chr(byte).isalnum())
CLASSES: Final = (
    CharacterClass("capital", _LOWER.upper(), 0.47),
    CharacterClass("digit", b"0123456789", 1.13),
    CharacterClass("blank", b" ", 0.02),
    CharacterClass("line", b"\n", 1.16),
    CharacterClass("control", bytes((*range(10), *range(11, 32), 127)), 0.41),
    CharacterClass("sign", _SIGNS, 0.27),
    CharacterClass("western", bytes(range(0xC2, 0xC4)), 3.45),
    CharacterClass("accented", bytes(range(0xC4, 0xCE)), 2.95),
    CharacterClass("greek", bytes(range(0xCE, 0xD0)), 1.3),
    CharacterClass("cyrillic", bytes(range(0xD0, 0xD6)), 0.88),
    CharacterClass("hebrew", bytes(range(0xD6, 0xD8)), 1.35),
    CharacterClass("arabic", bytes(range(0xD8, 0xE0)), 1.1),
    CharacterClass("indic", b"\xe0", 1.39),
    CharacterClass("vietnamese", b"\xe1", 2.0),
    CharacterClass("symbol", b"\xe2", 1.8),
    CharacterClass("kana", b"\xe3", 1.86),
    CharacterClass("han", bytes(range(0xE4, 0xEA)), 1.81),
    CharacterClass("hangul", bytes(range(0xEA, 0xEE)), 2.76),
    CharacterClass("other", b"\xee\xef", 1.92),
    CharacterClass("emoji", bytes(range(0xF0, 0xF5)), 2.95),
)
A_WORD, A_RUN, SIGNS, BEFORE_A_NUMBER = 1.01, 9.9, 0.68, 0.91
"""Tokens of a run of small letters; for every sixteen of them on end, which are no word; of a run
of signs; of the blank before a number."""

_UNITS_PER_TOKEN = 64
"""Parts of a token: a weight must fit into a byte."""
_WEIGHT = {byte: round(kind.tokens * _UNITS_PER_TOKEN) for kind in CLASSES for byte in kind.members}
_WEIGHTS = bytes(_WEIGHT.get(byte, 0) for byte in range(256))
_LATER = bytes(range(0x80, 0xC0))
"""Bytes of a character after its first."""


def _make_table(ones: bytes, twos: bytes = b"") -> bytes:
    """A table that makes the one 1, the other 2 and all else 0."""
    return bytes(1 if byte in ones else 2 if byte in twos else 0 for byte in range(256))


_IS_LOWER, _IS_SIGN, _IS_NUMBER = _make_table(_LOWER), _make_table(_SIGNS), _make_table(b" ", b"0123456789")
_STARTS, _LONG, _AFTER_A_BLANK = b"\0\1", b"\1" * 16, b"\1\2"

_PIECE, _FEW, _MANY = 96, 4, 16
_WHOLE, _LONG_TEXT = _PIECE * _FEW, 4096
"""Characters. Of a longer text than the one only a few pieces are looked at, from all over it; of a longer one than
the other, some more."""
_SHORT = 24
"""Characters of a name of which nothing need be looked at but the length."""


def count_runs(data: bytes) -> tuple[int, int, int, int]:
    """What is counted in a text beside its characters: runs of small letters, sixteens of them,
    runs of signs, numbers after a blank."""
    lower, signs = b"\0" + data.translate(_IS_LOWER), b"\0" + data.translate(_IS_SIGN)
    numbers = data.translate(_IS_NUMBER).count(_AFTER_A_BLANK)
    return lower.count(_STARTS), lower.count(_LONG), signs.count(_STARTS), numbers


def estimate_text(text: str) -> int:
    """A guess at the tokens of a text. What it costs is bounded, however long the text is."""
    length = len(text)
    if length <= _SHORT and text.isascii() and text.isidentifier():
        return (length + 2) // 3
    if length > _WHOLE:
        last, pieces = length - _PIECE, _FEW if length <= _LONG_TEXT else _MANY
        starts = [last * place // (pieces - 1) for place in range(pieces)]
        text = "".join([text[start : start + _PIECE] for start in starts])
    looked_at = len(text)
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > looked_at:
        data = data.translate(None, _LATER)
    words, runs, signs, numbers = count_runs(data)
    tokens = sum(data.translate(_WEIGHTS, _LOWER)) / _UNITS_PER_TOKEN
    tokens += words * A_WORD + runs * A_RUN + signs * SIGNS + numbers * BEFORE_A_NUMBER
    if length > looked_at:
        tokens *= length / looked_at
    return ceil(tokens)


# ── A message, a tool ──────────────────────────────────────────────────────────────────────────────


def estimate_message(message: Message) -> int:
    """A guess at the tokens of a message as it is sent."""
    around, said = _MESSAGE, [message.preface] if message.preface else list[str]()
    for part in message.parts:
        if isinstance(part, ToolResult):
            said.append(text_of(part.content))
            around += _RESULT
        elif isinstance(part, ToolUse):
            said += (part.name, part.arguments)
            around += _CALL
        elif isinstance(part, Image):
            around += _IMAGE
        else:
            said.append(part.text)
    return around + estimate_text(" ".join(said))  # at once: most of what it costs, it costs for a short text too


def estimate_tool(tool: ToolSpec) -> int:
    """A guess at the tokens of a tool as it is offered: of what its schema says, and not of how
    JSON says it. Providers put it into other words, most of them shorter."""
    said = " ".join((tool.name, tool.description, *_schema_texts(tool.schema)))
    return estimate_text(said) + _TOOL


def _schema_texts(schema: object, depth: int = _DEEPEST) -> Iterator[str]:
    """The names, types and descriptions in a schema, with the signs that go with them."""
    if not isinstance(schema, Mapping) or depth < 0:
        return
    for key, value in cast("Mapping[str, Any]", schema).items():
        if key in ("properties", "$defs") and isinstance(value, Mapping):
            for name, inner in cast("Mapping[str, Any]", value).items():
                yield f"{name}:"
                if _is_described(inner):
                    yield name  # once more, where it is described
                yield from _schema_texts(inner, depth - 1)
        elif key in ("type", "description", "enum", "const", "default"):
            yield f"{value},"
        elif key in ("anyOf", "oneOf", "prefixItems") and isinstance(value, list):
            for inner in cast("list[object]", value):
                yield from _schema_texts(inner, depth - 1)
        else:
            yield from _schema_texts(value, depth - 1)


def _is_described(schema: object) -> bool:
    return isinstance(schema, Mapping) and "description" in schema


# ── A conversation ─────────────────────────────────────────────────────────────────────────────────

_LEAST, _MOST, _HIDDEN = 0.25, 4.0, 512
"""How many tokens a provider may count for one that is expected, and how many it may have put in
front unseen. What is outside is no count of this prompt: none at all, or without what was cached,
or with thoughts that are gone."""
_DOUBT = 100
"""Tokens for which the rate is taken to be 1 whatever was counted: a few more or less say little
about it."""
_MEMORY = 0.5
"""What was learned counts by so much less with every report: the kind of text changes."""


@dataclass(slots=True)
class TokenCount:
    """What the provider has said about the size of a conversation, held against our own guesses.

    One rate, learned from what was added between two reports: the first report is mostly
    instructions and tools, which providers put in ways of their own, and says little about what
    tools will return. Rates of its own for what the model says would change little, because its
    replies are counted and not guessed."""

    before: int = 0
    """A guess at what stands before the conversation: instructions and tools."""
    unseen: int = 0
    """What the first report has shown to stand there beside it; less than nothing where the guess
    was too high."""
    counted: int = 0
    """Of the prompt and the reply to it, as the provider last counted them; 0: it has not, or they
    have changed."""
    guessed: int = 0
    """What was guessed of the same conversation then."""
    rate: float = 1.0
    """How many tokens the provider counts for one that is guessed."""
    reports: int = 0
    """How many counts of the provider could be believed."""
    added_counted: float = 0.0
    added_guessed: float = 0.0
    """What was added between reports, as it was counted and as it was guessed. The latest counts
    most."""

    def heard(self, counted: int, guessed: int, output: int = 0, kept: int = 0) -> None:
        """The provider has counted a prompt and its reply; `guessed` is our guess at that
        conversation. Where it is known that the reply was `output` of them, and our guess at what
        is kept of it is `kept`, thoughts that are not sent back are not counted."""
        if output > kept * _MOST + _DOUBT:
            counted -= output - round(kept * self.rate)
        expected = self.estimate(guessed)
        if not expected * _LEAST <= counted <= expected * _MOST + _HIDDEN:
            return
        if self.counted:
            self._learn(counted - self.counted, guessed - self.guessed)
        elif guessed < self.before * _MOST:  # it may well be the part that is off
            ahead = counted - round(guessed * self.rate) - _AROUND
            self.unseen = max(round(self.before * _LEAST), ahead) - self.before
        else:
            self._learn(counted, guessed + self.before + self.unseen + _AROUND)
        self.counted, self.guessed = counted, guessed
        self.reports += 1

    def _learn(self, counted: int, guessed: int) -> None:
        if guessed > 0 and guessed * _LEAST <= counted <= guessed * _MOST:
            self.added_counted = self.added_counted * _MEMORY + counted
            self.added_guessed = self.added_guessed * _MEMORY + guessed
            self.rate = (self.added_counted + _DOUBT) / (self.added_guessed + _DOUBT)

    def changed(self) -> None:
        """The conversation is another one than was counted; what is known of guesses stays."""
        self.counted = 0

    def estimate(self, guessed: int) -> int:
        """Tokens of the whole prompt, whose conversation is guessed to have so many."""
        if self.counted and guessed >= self.guessed:
            return self.counted + round((guessed - self.guessed) * self.rate)
        return max(0, self.before + self.unseen + _AROUND) + round(guessed * self.rate)
