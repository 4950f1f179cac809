"""Graphemes: what readers see as one character, which may be several code points (a letter with accents, a flag, a
family of emoji). Lines are truncated between graphemes, never inside one.

The rules are those of Unicode Standard Annex 29 without the conjuncts of Indic scripts."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal
from unicodedata import category, east_asian_width

JOINERS = "\u200c\u200d"
"""Invisible characters that belong to words and emoji: the zero-width non-joiner and the zero-width joiner."""
ELLIPSIS = "…"
MAX_CODE_POINTS = 32
"""A longer grapheme is split: no language needs it, and one cell could hide a text of any length."""
_EMOJI_STYLE = "\ufe0f"
_REGIONAL = range(0x1F1E6, 0x1F200)
_PICTOGRAPHS = (
    range(0x1F000, 0x1FB00), range(0x2600, 0x27C0), range(0x2190, 0x2200), range(0x2300, 0x2400),
    range(0x25A0, 0x2600), range(0x2900, 0x2980), range(0x2B00, 0x2C00), range(0xA9, 0xAA), range(0xAE, 0xAF),
    range(0x203C, 0x203D), range(0x2049, 0x204A), range(0x2122, 0x2123), range(0x2139, 0x213A),
    range(0x24C2, 0x24C3), range(0x3030, 0x3031), range(0x303D, 0x303E), range(0x3297, 0x329A),
)  # fmt: skip
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)
_LEADING, _VOWELS, _TRAILING = (
    (range(0x1100, 0x1160), range(0xA960, 0xA97D)),
    (range(0x1160, 0x11A8), range(0xD7B0, 0xD7C7)),
    (range(0x11A8, 0x1200), range(0xD7CB, 0xD7FC)),
)
_SYLLABLES = range(0xAC00, 0xD7A4)
_TRAILING_COUNT = 28
Kind = Literal["control", "extend", "joiner", "regional", "pictograph", "l", "v", "t", "lv", "lvt", "other"]


def split_graphemes(text: str) -> Iterator[str]:
    """Yield the graphemes of a text. Joined they are the text."""
    if text.isascii():
        yield from text
        return
    begin, regionals, is_pictograph = 0, 0, False
    before: Kind | None = None
    for index, character in enumerate(text):
        kind = _kind(character)
        is_flag = kind == "regional" and before == "regional" and regionals % 2 == 1
        is_joined = kind == "pictograph" and before == "joiner" and is_pictograph
        if before is not None and (
            index - begin >= MAX_CODE_POINTS or not (is_flag or is_joined or _belongs(before, kind))
        ):
            yield text[begin:index]
            begin, regionals, is_pictograph = index, 0, False
        regionals += kind == "regional"
        is_pictograph = kind == "pictograph" or (is_pictograph and kind in ("extend", "joiner"))
        before = kind
    if text:
        yield text[begin:]


def truncate(line: str, limit: int, measure: Callable[[str], int] = len) -> str:
    """Return a line as it is if it fits the limit, else its first graphemes and an ellipsis. `measure` returns the
    size of a grapheme: code points by default, or columns of a terminal."""
    if len(line) <= limit and (measure is len or line.isascii()):
        return line
    end = limit - 1
    if measure is len and end > 0 and line[end - 1 : end + 1].isascii():  # graphemes end between ASCII characters
        return f"{line[:end].rstrip()}{ELLIPSIS}"
    kept: list[str] = []
    used = fitting = 0
    for grapheme in split_graphemes(line):
        used += measure(grapheme)
        if used > limit:
            return f"{''.join(kept[:fitting]).rstrip()}{ELLIPSIS}" if limit > 0 else ""
        kept.append(grapheme)
        if used < limit:
            fitting = len(kept)
    return line


def make_printable_line(text: str) -> str:
    """Return a text as one line: white space and what cannot be printed become single spaces."""
    return " ".join("".join([each if each.isprintable() or each in JOINERS else " " for each in text]).split())


def count_columns(grapheme: str) -> int:
    """Return how many columns of a terminal a grapheme takes: the widest of its characters decides."""
    if len(grapheme) == 1:
        return _count_columns(grapheme)
    is_emoji = _EMOJI_STYLE in grapheme or all(ord(each) in _REGIONAL for each in grapheme)
    return 2 if is_emoji else max(map(_count_columns, grapheme), default=0)


def display_width(line: str) -> int:
    """Return how many columns of a terminal a line takes."""
    return len(line) if line.isascii() else sum(map(count_columns, split_graphemes(line)))


@cache
def _count_columns(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf") or _kind(character) in ("v", "t"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def _belongs(before: Kind, kind: Kind) -> bool:
    """Return whether a character belongs to the grapheme of the character before it."""
    if before == "control" or kind == "control":
        return False
    if kind in ("extend", "joiner"):
        return True
    hangul = {"l": ("l", "v", "lv", "lvt"), "lv": ("v", "t"), "v": ("v", "t"), "lvt": ("t",), "t": ("t",)}
    return kind in hangul.get(before, ())


@cache
def _kind(character: str) -> Kind:
    code, general = ord(character), category(character)
    if character == JOINERS[1]:
        return "joiner"
    if general in ("Mn", "Me", "Mc") or character == JOINERS[0] or code in _TAGS or code in _SKIN_TONES:
        return "extend"
    if general in ("Cc", "Cf", "Zl", "Zp", "Cs"):
        return "control"
    if code in _REGIONAL:
        return "regional"
    if code in _SYLLABLES:
        return "lv" if (code - _SYLLABLES.start) % _TRAILING_COUNT == 0 else "lvt"
    for ranges, found in ((_LEADING, "l"), (_VOWELS, "v"), (_TRAILING, "t"), (_PICTOGRAPHS, "pictograph")):
        if any(code in each for each in ranges):
            return found  # pyright: ignore[reportReturnType] -- each of them is a kind
    return "other"
