"""The size of a transcript in tokens: the provider's last count, plus an estimate of what was added since.

The estimate looks at characters only: a word is about one token however long it is, a digit is one, and so on. The
weights were fitted to the tokenizer of the embedded model (`python -m bench.tokens --fit`). The provider's reports
show how far the estimates are off for its model and this kind of text, and correct the next ones."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, NamedTuple, cast

from treadle.domain.messages import Image, Message, ToolResult, ToolUse
from treadle.domain.observations import extract_text
from treadle.domain.tools import ToolSpec

CHARACTERS_PER_TOKEN = 4
"""Of English prose, approximately. For callers that know a length but not the text."""

_MESSAGE, _CALL, _RESULT, _TOOL = 5, 10, 22, 4
"""Tokens around a message, a call, a result and the description of a tool."""
_AROUND = 55
"""Tokens in every request: how to reply, and whose turn it is."""
_IMAGE = 1500
"""Tokens that an image counts for, whatever its size."""
_DEEPEST = 8
"""Maximum depth of nested schemas that is looked at."""

# ── A text ─────────────────────────────────────────────────────────────────────────────────────────


class CharacterClass(NamedTuple):
    """Characters with the same weight: ASCII bytes, or the first bytes of other characters in UTF-8."""

    name: str
    members: bytes
    tokens: float
    """Tokens per character."""


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
"""Tokens of a run of lowercase letters; for every sixteen letters in a row, which are not a word; of a run of
signs; and of the space before a number."""

_UNITS_PER_TOKEN = 64
"""A weight must fit into a byte."""
_WEIGHT = {byte: round(kind.tokens * _UNITS_PER_TOKEN) for kind in CLASSES for byte in kind.members}
_WEIGHTS = bytes(_WEIGHT.get(byte, 0) for byte in range(256))
_LATER = bytes(range(0x80, 0xC0))
"""The bytes of a character after its first."""


def _make_table(ones: bytes, twos: bytes = b"") -> bytes:
    """Return a translation table that maps `ones` to 1, `twos` to 2 and everything else to 0."""
    return bytes(1 if byte in ones else 2 if byte in twos else 0 for byte in range(256))


_IS_LOWER, _IS_SIGN, _IS_NUMBER = _make_table(_LOWER), _make_table(_SIGNS), _make_table(b" ", b"0123456789")
_STARTS, _LONG, _AFTER_A_BLANK = b"\0\1", b"\1" * 16, b"\1\2"

_PIECE, _FEW, _MANY = 96, 4, 16
_WHOLE, _LONG_TEXT = _PIECE * _FEW, 4096
"""Characters. A text longer than the first is sampled in a few pieces from all over it, and one longer than the
second in more."""
_SHORT = 24
"""Characters of an identifier for which the length is enough."""


def count_runs(data: bytes) -> tuple[int, int, int, int]:
    """Return the numbers of runs of lowercase letters, of sixteens of them, of runs of signs, and of numbers after
    a space."""
    lower, signs = b"\0" + data.translate(_IS_LOWER), b"\0" + data.translate(_IS_SIGN)
    numbers = data.translate(_IS_NUMBER).count(_AFTER_A_BLANK)
    return lower.count(_STARTS), lower.count(_LONG), signs.count(_STARTS), numbers


def estimate_text(text: str) -> int:
    """Return the estimated number of tokens in a text. The cost is bounded, however long the text is."""
    length = len(text)
    if length <= _SHORT and text.isascii() and text.replace("_", "a").isalpha():
        return (length + 2) // 3
    if length > _WHOLE:
        last, pieces = length - _PIECE, _FEW if length <= _LONG_TEXT else _MANY
        text = "".join([text[(start := last * place // (pieces - 1)) : start + _PIECE] for place in range(pieces)])
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
    """Return the estimated number of tokens of a message as it is sent."""
    around, said = _MESSAGE, [message.preface] if message.preface else list[str]()
    for part in message.parts:
        if isinstance(part, ToolResult):
            said.append(extract_text(part.content))
            around += _RESULT + _IMAGE * len(part.images)
        elif isinstance(part, ToolUse):
            said += (part.name, part.arguments)
            around += _CALL
        elif isinstance(part, Image):
            around += _IMAGE
        else:
            said.append(part.text)
    return around + estimate_text(" ".join(said))  # in one call: most of the cost does not depend on the length


def estimate_tool(tool: ToolSpec) -> int:
    """Return the estimated number of tokens of a tool as it is offered.

    It counts what the schema says, not its JSON: providers render it in other ways, most of them shorter."""
    said = " ".join((tool.name, tool.description, *_schema_texts(tool.schema)))
    return estimate_text(said) + _TOOL


def _schema_texts(schema: object, depth: int = _DEEPEST) -> Iterator[str]:
    """Yield the names, types and descriptions in a schema, with the signs around them."""
    if not isinstance(schema, Mapping) or depth < 0:
        return
    for key, value in cast("Mapping[str, Any]", schema).items():
        if key in ("properties", "$defs") and isinstance(value, Mapping):
            for name, inner in cast("Mapping[str, Any]", value).items():
                yield f"{name}:"
                if _is_described(inner):
                    yield name  # repeated if it is described
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
"""Bounds for the ratio of a provider's count to the estimate, and for the tokens that the provider may add unseen.
A count outside these bounds is not a count of this prompt: it is missing, excludes cached tokens, or includes
dropped reasoning."""
_DOUBT = 100
"""Number of tokens for which the rate is assumed to be 1, so that small differences have little effect."""
_MEMORY = 0.5
"""Weight of the earlier reports with every new one, since the kind of text changes."""


@dataclass(slots=True)
class TokenCount:
    """The provider's counts of a transcript, compared with the estimates.

    There is one rate, learned from what was added between two reports. The first report consists mostly of
    instructions and tools, which providers render in their own ways, so it says little about later tool results.
    Separate rates for the model's own text would change little, because replies are counted and not estimated."""

    before: int = 0
    """Estimate of the preamble: instructions and tools."""
    unseen: int = 0
    """Additional tokens of the preamble according to the first report; negative if the estimate was too high."""
    counted: int = 0
    """The provider's last count of the prompt and its reply; 0 if there is none or the transcript has changed
    since."""
    guessed: int = 0
    """The estimate of the same transcript at that time."""
    rate: float = 1.0
    """Tokens that the provider counts for one estimated token."""
    reports: int = 0
    """Number of plausible counts from the provider."""
    added_counted: float = 0.0
    added_guessed: float = 0.0
    """What was added between reports, as counted and as estimated. The latest reports weigh most."""

    def report(self, counted: int, guessed: int, output: int = 0, kept: int = 0) -> None:
        """Take in the provider's count of a prompt and its reply; `guessed` is the estimate of that transcript.

        If the reply had `output` tokens and the estimate of the part that is kept is `kept`, reasoning that is not
        sent back is not counted."""
        if output > kept * _MOST + _DOUBT:
            counted -= output - round(kept * self.rate)
        expected = self.estimate(guessed)
        if not expected * _LEAST <= counted <= expected * _MOST + _HIDDEN:
            return
        if self.counted:
            self._learn(counted - self.counted, guessed - self.guessed)
        elif guessed < self.before * _MOST:  # the preamble is probably what is off
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

    def invalidate(self) -> None:
        """Note that the transcript is no longer the one that was counted. What was learned stays."""
        self.counted = 0

    def estimate(self, guessed: int) -> int:
        """Return the estimated size of the whole prompt, for an estimate of the transcript alone."""
        if self.counted and guessed >= self.guessed:
            return self.counted + round((guessed - self.guessed) * self.rate)
        return max(0, self.before + self.unseen + _AROUND) + round(guessed * self.rate)
