"""Characters that look alike. Models write ASCII quotes, dashes and spaces where a file has typographic ones."""

from collections.abc import Iterator
from unicodedata import combining, normalize

_QUOTES = {"'": "\u2018\u2019\u201a\u201b\u2032\u02bc\uff07", '"': "\u201c\u201d\u201e\u201f\u2033\uff02"}
_OTHERS = {
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d",
    " ": "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
    "...": "\u2026",
    "": "\u00ad\u200b\u200c\u200d\u2060\ufeff",
}
"""The last are invisible."""


def _make_table(groups: dict[str, str]) -> dict[int, str]:
    return {ord(character): plain for plain, characters in groups.items() for character in characters}


_QUOTE_TABLE = _make_table(_QUOTES)
_OTHER_TABLE = _make_table(_OTHERS)


def fold_quotes(text: str) -> str:
    """Return a text with ASCII quotes."""
    return text if text.isascii() else text.translate(_QUOTE_TABLE)


def fold_others(text: str) -> str:
    """Return a text with ASCII dashes and spaces, composed accents, and no invisible characters."""
    return text if text.isascii() else normalize("NFC", text).translate(_OTHER_TABLE)


def fold_characters(text: str) -> str:
    """Return a text in which characters that look alike are the same."""
    return fold_others(fold_quotes(text))


def list_columns(line: str) -> dict[int, int]:
    """Return the index in a line for each column of the folded line. Columns inside a character that is folded to
    several have none."""
    columns: dict[int, int] = {}
    at = folded = 0
    for cluster in _split_clusters(line):
        columns.setdefault(folded, at)
        folded += len(fold_characters(cluster))
        at += len(cluster)
    columns.setdefault(folded, at)
    return columns


def _split_clusters(line: str) -> Iterator[str]:
    """Yield each character with the combining marks after it."""
    start = 0
    for at in range(1, len(line) + 1):
        if at == len(line) or not combining(line[at]):
            yield line[start:at]
            start = at
