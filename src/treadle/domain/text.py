"""Normal forms of texts: of the whole text, to compare; and of its words, to search."""

import re
import unicodedata

_PLAIN = re.compile(r"[a-z0-9]+")
_LEFT_OUT = re.compile(
    "[\u00ad\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670"
    "\u200b-\u200d\u2060\ufeff]"
)
"""What people often leave out: accents, points above and below Hebrew and Arabic letters, and invisible
characters."""
_WORD = re.compile(
    "(?:[^\\W_]|[\u0483-\u0487\u0610-\u061a\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0"
    "\u0816-\u082d\u0859-\u085b\u08d3-\u0963\u0971-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u0f18\u0f19"
    "\u0f35-\u0f39\u0f71-\u0fbc\u102b-\u109d\u135d-\u135f\u1712-\u1734\u1752-\u17d3\u180b-\u180d\u18a9"
    "\u1920-\u193b\u1a17-\u1a7f\u1b00-\u1c37\ua802-\ua82c\ua880-\uabed\u3099\u309a])+"
)
"""Letters and digits, and the dependent vowels of South Asian scripts."""


def normalise_text(text: str) -> str:
    """Return the text without irrelevant differences: case, the encoding of accents, white space, the full stop.
    Signs, symbols and the order of words matter."""
    return " ".join(unicodedata.normalize("NFC", text).lower().split()).rstrip(".!;, ")


def fold_words(text: str) -> tuple[str, ...]:
    """Return the words of a text as they are stored and searched: in lower case, without accents."""
    if text.isascii():
        return tuple(_PLAIN.findall(text.lower()))
    small = unicodedata.normalize("NFKC", text).casefold()
    plain = _LEFT_OUT.sub("", unicodedata.normalize("NFKD", small))
    return tuple(_WORD.findall(unicodedata.normalize("NFC", plain)))
