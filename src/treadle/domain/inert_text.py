"""Neutralises foreign text before it becomes part of a prompt: characters that are invisible or change the writing
direction are replaced by their code points."""

import re
import unicodedata

_KEPT = "\n\t"
_HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Co", "Cs", "Zl", "Zp"))
_HIDDEN = frozenset((
    0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0,  # fillers that count as letters
    *range(0x180B, 0x1810), *range(0xFE00, 0xFE10),  # variations
    *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000),  # tags and more variations: they can spell out whole texts
    *range(0xFDD0, 0xFDF0), *(plane + last for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)),
))  # fmt: skip
_SEEN = frozenset((*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD))
"""Signs before numbers. They are format characters, but visible."""
_NON_JOINER, _JOINER = "\u200c", "\u200d"
_AS_TEXT, _AS_EMOJI = "\ufe0e", "\ufe0f"
_KEYCAP = "\u20e3"
_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_ALSO_EMOJI = "\u203c\u2049\u2139\u3030"
_JOINING_SCRIPTS = frozenset((
    "ARABIC", "SYRIAC", "MONGOLIAN", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU",
    "KANNADA", "MALAYALAM", "SINHALA", "KHMER", "MYANMAR",
))  # fmt: skip


def make_inert(text: str) -> str:
    """Return the text with line breaks and tabs, and without any other character that acts or hides.

    Joiners of emoji and of some scripts are removed; all other hidden characters are replaced by their code
    points."""
    return _replace_hidden(text, keep=False)


def make_prose_inert(text: str) -> str:
    """Do the same for longer texts, and keep joiners of emoji and scripts where they belong."""
    return _replace_hidden(text, keep=True)


def make_one_line(text: str) -> str:
    """Return the inert text with every run of white space as one space."""
    return make_inert(" ".join(text.split()))


def has_hidden(text: str) -> bool:
    """Return whether the text has a character that is invisible or acts. Line breaks and tabs count too."""
    return any(character in _KEPT or is_hidden(character) for character in text)


def has_visible(text: str) -> bool:
    """Return whether the text has a character that a reader can see: neither space nor hidden."""
    return any(not character.isspace() and not is_hidden(character) for character in text)


def is_hidden(character: str) -> bool:
    code = ord(character)
    if character in _KEPT or code in _SEEN:
        return False
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or code in _HIDDEN


def _replace_hidden(text: str, keep: bool) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    hidden = "".join(sorted(character for character in set(text) if is_hidden(character)))
    if not hidden:
        return text

    def reveal(found: re.Match[str]) -> str:
        if is_joiner(text, found.start()):
            return found[0] if keep else ""
        return f"<U+{ord(found[0]):04X}>"

    return re.sub(f"[{re.escape(hidden)}]", reveal, text)


# ── Joiners ──


def is_joiner(text: str, at: int) -> bool:
    """Return whether the character at this position joins an emoji or a word of some scripts."""
    character, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if character in (_AS_TEXT, _AS_EMOJI):
        return _is_emoji(before) or (before.isdigit() and before.isascii() and after == _KEYCAP)
    if character not in (_NON_JOINER, _JOINER):
        return False
    script = _find_script(before)
    if script in _JOINING_SCRIPTS and script == _find_script(after):
        return True
    if before == _AS_EMOJI:
        before = text[at - 2 : at - 1]
    return character == _JOINER and (_is_emoji(before) or before in tuple(_TONES)) and _is_emoji(after)


def _is_emoji(character: str) -> bool:
    if not character or character.isascii():
        return False
    return unicodedata.category(character) in ("So", "Sm") or character in _ALSO_EMOJI


def _find_script(character: str) -> str:
    """Return the script of a letter or mark: the first word of its Unicode name."""
    if not character or unicodedata.category(character)[0] not in "LM":
        return ""
    return unicodedata.name(character, "").partition(" ")[0]
