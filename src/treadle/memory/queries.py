"""Parses a message into a memory query: its words, and exact terms such as identifiers. Pure."""

import re
import unicodedata
from functools import lru_cache

from msgspec import Struct

from treadle.domain.text import fold_words
from treadle.memory.stop_words import STOP_WORDS
from treadle.ports.memory_index import Term

MAX_CHARS = 2000
"""A longer message usually states its subject at the beginning."""
MAX_WORDS = 12
MAX_KEYS = 8
MAX_TERMS = 8
"""Each term costs about as much as processing all of its matches."""
MAX_PHRASE_CHARS = 80
_TOKEN = re.compile(r"\w+(?:[._:/@#+\\-]+\w+)*")
_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|“([^”\n]+)”|«([^»\n]+)»|„([^“”\n]+)[“”]|(?<!\w)'([^'\n]+)'(?!\w)")
_INNER = re.compile(r"[_:/@#+\\]|\.\w")
_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE_END = frozenset('.!?:\n"“„«(-•*')
_ENDINGS = ("ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s", "e")
_MIN_STEM_CHARS = 4
_MIN_PART_CHARS = 5
"""Letters of a part of an identifier that is worth searching for on its own."""


class ExactTerm(Struct, frozen=True):
    """A word or phrase that a memory must contain exactly: an identifier, a quotation, a number, a name."""

    tokens: tuple[str, ...]
    weight: float
    """From 0 to 1: how relevant a memory with this term is."""


class MemoryQuery(Struct, frozen=True):
    """A message as a query for memories."""

    words: tuple[str, ...] = ()
    """Folded, without stop words."""
    keys: tuple[ExactTerm, ...] = ()

    @property
    def key_terms(self) -> list[Term]:
        """Search terms for memories that contain one of the keys."""
        return [Term(key.tokens) for key in self.keys]

    @property
    def word_terms(self) -> list[Term]:
        """Search terms for memories that contain any of the words in any form; the most specific first."""
        parts = {
            token
            for key in self.keys
            if len(key.tokens) > 1
            for token in key.tokens
            if len(token) < _MIN_PART_CHARS
        }
        words = sorted([word for word in self.words if word not in parts], key=len, reverse=True)
        terms = [*self.key_terms, *[Term((stem(word),), stem(word) != word) for word in words]]
        return list(dict.fromkeys(terms))[:MAX_TERMS]


def parse_query(message: str) -> MemoryQuery:
    """Return the query for a message."""
    text = truncate_text(message)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    keys: dict[tuple[str, ...], float] = {}
    for found in _QUOTED.finditer(text):
        phrase = found.group(found.lastindex or 0)
        tokens = fold_words(phrase)
        if tokens and len(phrase) <= MAX_PHRASE_CHARS and not STOP_WORDS.issuperset(tokens):
            keys[tokens] = 1.0
    shouted = text.isupper()
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token.islower() and token.isalpha():
            continue
        weight = _compute_weight(token, text, found.start(), shouted)
        if weight and (tokens := fold_words(token)) and not (len(tokens) == 1 and tokens[0] in STOP_WORDS):
            keys[tokens] = max(weight, keys.get(tokens, 0.0))
    words = [word for word in dict.fromkeys(fold_words(text)) if word not in STOP_WORDS and _is_meaningful(word)]
    heaviest = sorted(keys.items(), key=lambda item: -item[1])[:MAX_KEYS]
    return MemoryQuery(_select_rarest(words), tuple([ExactTerm(tokens, weight) for tokens, weight in heaviest]))


def truncate_text(text: str) -> str:
    """Return the part of a text that is used, up to the end of a word."""
    head = text[:MAX_CHARS]
    return head if len(text) <= MAX_CHARS else head.rpartition(" ")[0] or head


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Return a rough common stem of the forms of a word, sufficient for a prefix search."""
    if word.isdigit():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM_CHARS:
            return word.removesuffix(ending)
    return word


def _is_meaningful(word: str) -> bool:
    """Return whether a word carries meaning: single ASCII letters do not."""
    return len(word) > 1 or not word.isascii()


def _compute_weight(token: str, text: str, start: int, shouted: bool) -> float:
    """Return how relevant a memory with this exact word is; 0 for an ordinary word."""
    has_digit = _DIGIT.search(token) is not None
    if (has_digit and len(token) > 3) or _INNER.search(token):
        return 1.0
    if has_digit:
        return 0.5 if _LETTER.search(token) else 0.25
    if shouted:
        return 0.0
    if len(token) > 2 and token[1:].lower() != token[1:]:
        return 0.8  # camelCase, or an abbreviation
    return 0.35 if token[0].isupper() and not _starts_sentence(text, start) else 0.0


def _starts_sentence(text: str, start: int) -> bool:
    """Return whether a word starts a sentence, where a capital letter means nothing."""
    while start and text[start - 1] in " \t":
        start -= 1
    return not start or text[start - 1] in _SENTENCE_END


def _select_rarest(words: list[str]) -> tuple[str, ...]:
    """Return as many words as may be searched for. Longer words are rarer."""
    if len(words) <= MAX_WORDS:
        return tuple(words)
    selected = set(sorted(words, key=len, reverse=True)[:MAX_WORDS])
    return tuple([word for word in words if word in selected])
