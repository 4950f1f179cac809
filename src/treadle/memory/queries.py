"""What a message asks of memory: its words, and among them those of which every letter counts. Pure."""

import re
import unicodedata
from functools import lru_cache

from msgspec import Struct

from treadle.domain.text import folded
from treadle.memory.stop_words import STOP_WORDS
from treadle.ports.memory_index import Term

MOST_CHARACTERS = 2000
"""A longer message says what it is about at its beginning."""
MOST_WORDS = 12
MOST_KEYS = 8
MOST_TERMS = 8
"""So many are looked for: each costs about as much as all that is done with what it finds."""
MOST_PHRASE = 80
_TOKEN = re.compile(r"\w+(?:[._:/@#+\\-]+\w+)*")
_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|“([^”\n]+)”|«([^»\n]+)»|„([^“”\n]+)[“”]|(?<!\w)'([^'\n]+)'(?!\w)")
_INNER = re.compile(r"[_:/@#+\\]|\.\w")
_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE_END = frozenset('.!?:\n"“„«(-•*')
_ENDINGS = ("ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s", "e")
_LEAST_STEM = 4
_TELLING = 5
"""Letters of a part of an identifier that is worth being looked for by itself."""


class ExactTerm(Struct, frozen=True):
    """A word or phrase that a memory must have to the letter: an identifier, a quotation, a number, a name."""

    tokens: tuple[str, ...]
    weight: float
    """From 0 to 1: how much it says that a memory has it."""


class MemoryQuery(Struct, frozen=True):
    """A message, as memory is asked for it."""

    words: tuple[str, ...] = ()
    """Without those that say nothing; folded."""
    keys: tuple[ExactTerm, ...] = ()

    @property
    def by_keys(self) -> list[Term]:
        """What to look for to find memories that have one of the keys."""
        return [Term(key.tokens) for key in self.keys]

    @property
    def by_words(self) -> list[Term]:
        """The same for those that have any of the words, also in another of its forms; the most telling first."""
        parts = {token for key in self.keys if len(key.tokens) > 1 for token in key.tokens if len(token) < _TELLING}
        words = sorted([word for word in self.words if word not in parts], key=len, reverse=True)
        terms = [*self.by_keys, *[Term((stem(word),), stem(word) != word) for word in words]]
        return list(dict.fromkeys(terms))[:MOST_TERMS]


def asked(message: str) -> MemoryQuery:
    """Read a message."""
    text = beginning(message)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    keys: dict[tuple[str, ...], float] = {}
    for found in _QUOTED.finditer(text):
        phrase = found.group(found.lastindex or 0)
        tokens = folded(phrase)
        if tokens and len(phrase) <= MOST_PHRASE and not STOP_WORDS.issuperset(tokens):
            keys[tokens] = 1.0
    shouted = text.isupper()
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token.islower() and token.isalpha():
            continue
        weight = _weight(token, text, found.start(), shouted)
        if weight and (tokens := folded(token)) and not (len(tokens) == 1 and tokens[0] in STOP_WORDS):
            keys[tokens] = max(weight, keys.get(tokens, 0.0))
    words = [word for word in dict.fromkeys(folded(text)) if word not in STOP_WORDS and _says_something(word)]
    heaviest = sorted(keys.items(), key=lambda item: -item[1])[:MOST_KEYS]
    return MemoryQuery(_rarest(words), tuple([ExactTerm(tokens, weight) for tokens, weight in heaviest]))


def beginning(text: str) -> str:
    """As much of a text as is looked at, up to the end of a word."""
    head = text[:MOST_CHARACTERS]
    return head if len(text) <= MOST_CHARACTERS else head.rpartition(" ")[0] or head


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """What the forms of a word have in common, roughly: enough to look for what begins with it."""
    if word.isdigit():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            return word.removesuffix(ending)
    return word


def _says_something(word: str) -> bool:
    """A single letter says nothing, unless it is a word."""
    return len(word) > 1 or not word.isascii()


def _weight(token: str, text: str, start: int, shouted: bool) -> float:
    """How much it says that a memory has this very word; 0 for a word like any other."""
    has_digit = _DIGIT.search(token) is not None
    if (has_digit and len(token) > 3) or _INNER.search(token):
        return 1.0
    if has_digit:
        return 0.5 if _LETTER.search(token) else 0.25
    if shouted:
        return 0.0
    if len(token) > 2 and token[1:].lower() != token[1:]:
        return 0.8  # camelCase, or an abbreviation
    return 0.35 if token[0].isupper() and not _is_first(text, start) else 0.0


def _is_first(text: str, start: int) -> bool:
    """Whether a word begins a sentence, where a capital says nothing."""
    while start and text[start - 1] in " \t":
        start -= 1
    return not start or text[start - 1] in _SENTENCE_END


def _rarest(words: list[str]) -> tuple[str, ...]:
    """As many as may be looked for; long words are the rarer ones."""
    if len(words) <= MOST_WORDS:
        return tuple(words)
    kept = set(sorted(words, key=len, reverse=True)[:MOST_WORDS])
    return tuple([word for word in words if word in kept])
