"""When two texts say the same: exactly, or nearly so that nothing is lost if only one of them is kept."""

import re
import unicodedata

_WORD = re.compile(r"\w+(?:[.:/@#+'-]+\w+)*")
_NEGATIONS = frozenset((
    "not", "no", "never", "none", "nothing", "without", "cannot", "stop", "stopped", "longer", "nicht",
    "kein", "keine", "nie", "ohne", "pas", "jamais", "sans", "sin", "nunca", "non", "senza", "mai",
))  # fmt: skip
_SMALL = frozenset((
    "a", "an", "the", "is", "are", "was", "were", "be", "to", "of", "in", "on", "at", "for", "and", "that", "this",
    "it", "its", "i", "my", "has", "have", "had", "do", "does", "will", "please", "user", "s", "t",
))  # fmt: skip
NEARLY_ALL = 0.8
"""The share of their words that two texts must have in common to be the same by their words alone."""
MOST = 0.6
"""The same, where their meanings are known to be close."""


def normalised(text: str) -> str:
    """The text without what does not matter: case, the way accents are written, white space, the full stop."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).rstrip(".!;, ")


def says_the_same(text: str, other: str, in_common: float = NEARLY_ALL) -> bool:
    """Whether one of the two can stand for both: so large a share of their words is the same.

    Numbers, identifiers and negations must be the same: `port 8080` and `port 8081` are nearly the same words and
    not the same fact."""
    if normalised(text) == normalised(other):
        return True
    one, two = _words(text), _words(other)
    if not one or not two or _telling(text) != _telling(other):
        return False
    if _denies(one) != _denies(two):
        return False
    return len(one & two) / len(one | two) >= in_common


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(normalised(text).replace("\u2019", "'")) if word not in _SMALL}


def _denies(words: set[str]) -> bool:
    return any(word in _NEGATIONS or word.endswith("n't") for word in words)


def _telling(text: str) -> tuple[str, ...]:
    """The words whose every letter counts, and in their order: those with a digit, and names within a sentence."""
    found = _WORD.findall(text)
    return tuple(
        word.casefold()
        for place, word in enumerate(found)
        if any(letter.isdigit() or letter == "_" for letter in word) or (place > 0 and word[:1].isupper())
    )
