"""What a message asks of memory: its words, and among them those of which every letter counts.

A query for FTS5 is made of them that is never a syntax error, whatever the message."""

import re
import unicodedata

from msgspec import Struct

from treadle.memory.stop_words import STOP_WORDS

MOST_CHARACTERS = 2000
"""A longer message says what it is about at its beginning."""
MOST_WORDS = 16
MOST_KEYS = 8
MOST_PHRASE = 80
_TOKEN = re.compile(r"\w+(?:[._:/@#+\\-]+\w+)*")
_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|“([^”\n]+)”|«([^»\n]+)»|„([^“”\n]+)[“”]|(?<!\w)'([^'\n]+)'(?!\w)")
_INNER = re.compile(r"[_:/@#+\\]|\.\w")
_SENTENCE_END = frozenset('.!?:\n"“„«(-•*')
_ENDINGS = ("ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s", "e")
_LEAST_STEM = 4


class Key(Struct, frozen=True):
    """A word or phrase that a memory must have to the letter: an identifier, a quotation, a number, a name."""

    tokens: tuple[str, ...]
    weight: float
    """From 0 to 1: how much it says that a memory has it."""


class Asked(Struct, frozen=True):
    """A message, as memory is asked for it."""

    words: tuple[str, ...] = ()
    """Without those that say nothing; folded."""
    keys: tuple[Key, ...] = ()

    @property
    def by_keys(self) -> str | None:
        """The query for memories that have one of the keys; None: there is none."""
        return _any_of([_phrase(key.tokens) for key in self.keys])

    @property
    def by_words(self) -> str | None:
        """The query for memories that have any of the words, also in another of its forms."""
        terms = [f'"{stem(word)}" *' if stem(word) != word else f'"{word}"' for word in self.words]
        return _any_of([*(_phrase(key.tokens) for key in self.keys), *terms])


def asked(message: str) -> Asked:
    """Read a message."""
    text = beginning(message).replace("\0", " ")
    keys: dict[tuple[str, ...], float] = {}
    for found in _QUOTED.finditer(text):
        phrase = next(group for group in found.groups() if group is not None)
        tokens = folded(phrase)
        if tokens and len(phrase) <= MOST_PHRASE and not STOP_WORDS.issuperset(tokens):
            keys[tokens] = 1.0
    words: dict[str, None] = {}
    shouted = text.isupper()
    for found in _TOKEN.finditer(text):
        token = found.group()
        tokens = folded(token)
        if not tokens:
            continue
        weight = _weight(token, _is_first(text, found.start()), shouted)
        if weight and not (len(tokens) == 1 and tokens[0] in STOP_WORDS):
            keys[tokens] = max(weight, keys.get(tokens, 0.0))
        words |= dict.fromkeys(token for token in tokens if token not in STOP_WORDS and len(token) > 1)
    heaviest = sorted(keys.items(), key=lambda item: -item[1])[:MOST_KEYS]
    return Asked(_rarest(tuple(words)), tuple(Key(tokens, weight) for tokens, weight in heaviest))


def beginning(text: str) -> str:
    """As much of a text as is looked at, up to the end of a word."""
    head = text[:MOST_CHARACTERS]
    return head if len(text) <= MOST_CHARACTERS else head.rpartition(" ")[0] or head


def folded(text: str) -> tuple[str, ...]:
    """The text as FTS5 sees it: its words in small letters and without accents."""
    plain = "".join(
        letter for letter in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(letter)
    )
    return tuple(re.findall(r"[^\W_]+", plain))


def stem(word: str) -> str:
    """What the forms of a word have in common, roughly: enough to look for what begins with it."""
    if word.isdigit():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            return word.removesuffix(ending)
    return word


def _weight(token: str, is_first: bool, shouted: bool) -> float:
    """How much it says that a memory has this very word; 0 for a word like any other."""
    has_digit = any(letter.isdigit() for letter in token)
    if (has_digit and len(token) > 3) or _INNER.search(token):
        return 1.0
    if has_digit:
        return 0.5 if any(letter.isalpha() for letter in token) else 0.25
    if not shouted and (any(letter.isupper() for letter in token[1:]) and len(token) > 2):
        return 0.8  # camelCase, or an abbreviation
    return 0.35 if token[0].isupper() and not is_first and not shouted else 0.0


def _is_first(text: str, start: int) -> bool:
    """Whether a word begins a sentence, where a capital says nothing."""
    before = text[:start].rstrip(" \t")
    return not before or before[-1] in _SENTENCE_END


def _rarest(words: tuple[str, ...]) -> tuple[str, ...]:
    """As many as may be looked for; long words are the rarer ones."""
    if len(words) <= MOST_WORDS:
        return words
    kept = set(sorted(words, key=len, reverse=True)[:MOST_WORDS])
    return tuple(word for word in words if word in kept)


def _phrase(tokens: tuple[str, ...]) -> str:
    return f'"{" ".join(tokens)}"'


def _any_of(terms: list[str]) -> str | None:
    return " OR ".join(dict.fromkeys(terms)) or None
