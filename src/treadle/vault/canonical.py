"""Canonical text: escapes are decoded, and invisible characters that split words are dropped.

Percent, `\\u0041`, `\\x41`, `\\101`, `&#65;`, `&#x41;` and named entities are decoded, even if they were
escaped more than once. White space, backslashes, NULs (UTF-16 read as text), replacement characters, ANSI sequences
and zero-width characters are dropped, and letters are compared in lower case. Secrets and texts are compared in
this form, so any mixture of these is found."""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

_HEX = "[0-9A-Fa-f]"
_INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ufffd\udc80-\udcff\U000e0000-\U000e0fff"
)
_SPECIAL = re.compile(f"[%\\\\&{_INVISIBLE}]")
_ESC = r"(?:\x1b|\\+(?:u001[bB]|x1[bB]|033|e))"
_CSI, _OSC = r"\[[0-?]{0,64}[ -/]{0,8}[@-~]", r"\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)"
_ANSI = rf"(?:{_ESC}(?:{_CSI}|{_OSC})|\x9b[0-?]{{0,64}}[@-~])"
_LEVEL = "%(?:25)*"


def _utf8(prefix: str) -> str:
    """Return a pattern for one character in UTF-8, each byte with this prefix."""
    more = f"{prefix}[89ABab]{_HEX}"
    return (
        f"{prefix}[0-7]{_HEX}|{prefix}[CDcd]{_HEX}{more}|{prefix}[Ee]{_HEX}(?:{more}){{2}}"
        f"|{prefix}[Ff][0-7](?:{more}){{3}}"
    )


_UTF8_PERCENT, _UTF8_X = _utf8(_LEVEL), _utf8(r"\\+x")
_ESCAPE = re.compile(
    rf"(?P<ansi>{_ANSI})"
    rf"|(?P<percent>{_UTF8_PERCENT})"
    rf"|(?P<pair>\\+u[dD][89ABab]{_HEX}{{2}}\\+u[dD][C-Fc-f]{_HEX}{{2}})"
    rf"|(?P<unicode>\\+u{_HEX}{{4}}|\\+U{_HEX}{{8}}|\\+u\{{{_HEX}{{1,6}}\}})"
    rf"|(?P<bytes>{_UTF8_X})"
    rf"|(?P<byte>\\+x{_HEX}{{2}})"
    rf"|(?P<octal>\\+[0-3][0-7]{{2}})"
    rf"|(?P<blank>\\+[nrtvf0])"
    rf"|(?P<number>&(?:amp;)*\#(?:[0-9]{{1,8}}|[xX]{_HEX}{{1,8}});)"
    rf"|(?P<entity>&(?:amp;)*[A-Za-z][A-Za-z0-9]{{1,31}};)"
    rf"|(?P<dropped>\\+|[{_INVISIBLE}])"
)
_UNFINISHED = re.compile(
    rf"(?:{_ESC}(?:\[[0-?]{{0,64}}[ -/]{{0,8}}|\][^\x07\x1b]{{0,256}}\x1b?)?"
    rf"|\x9b[0-?]{{0,64}}"
    rf"|(?:{_LEVEL}{_HEX}{{2}}){{0,3}}%(?:2|25|(?:25)+{_HEX}?|{_HEX})?|{_LEVEL}[C-Fc-f]{_HEX}(?:%(?:25)*[89ABab]{_HEX}){{0,2}}"
    rf"|\\+u[dD][89ABab]{_HEX}{{2}}(?:\\*|\\+u{_HEX}{{0,3}})"
    rf"|(?:\\+x{_HEX}{{2}}){{0,3}}\\+(?:u{_HEX}{{0,3}}|u\{{{_HEX}{{0,6}}|U{_HEX}{{0,7}}|x{_HEX}?|[0-3][0-7]?)?"
    rf"|\\+x[C-Fc-f]{_HEX}(?:\\+x[89ABab]{_HEX}){{0,2}}"
    rf"|&(?:a|am|amp|amp;)*(?:\#[xX]?{_HEX}{{0,8}}|[A-Za-z][A-Za-z0-9]{{0,31}})?)\Z"
)
"""An escape that may continue in the next piece."""
MAX_ESCAPE_CHARS = 320
_BYTES = re.compile(rf"(?:%|x)(?:25)*({_HEX}{{2}})(?=%|\\|\Z)")
_NUMBER = re.compile(rf"{_HEX}+(?=[;}}]?\Z)")
_RUN = re.compile(rf"[^%\\&\s{_INVISIBLE}]+")


def canonicalize(text: str) -> str:
    return "".join((_unescape(text) if is_special(text) else text).split())


def fold_case(text: str) -> str:
    """Return the text in lower case, with as many characters as before."""
    folded = text.lower()
    if len(folded) == len(text):
        return folded
    return "".join([lower if len(lower := character.lower()) == 1 else character for character in text])


def is_special(text: str) -> bool:
    """Return whether anything besides white space is decoded or dropped."""
    return _SPECIAL.search(text) is not None


def _unescape(text: str) -> str:
    parts: list[str] = []
    at = 0
    for special in _SPECIAL.finditer(text):
        start = special.start()
        if start >= at and (escape := _ESCAPE.match(text, start)) is not None:
            parts += (text[at:start], _decode(escape))
            at = escape.end()
    parts.append(text[at:])
    return "".join(parts)


def find_stable_end(text: str) -> int:
    """Return the position up to which no following text changes how this text is decoded."""
    tail = text[-MAX_ESCAPE_CHARS:]
    if _SPECIAL.search(tail) is None:
        return len(text)
    found = _UNFINISHED.search(tail)
    return len(text) if found is None or found.start() == 0 < len(text) - len(tail) else len(text) - len(found[0])


class CanonicalToken(NamedTuple):
    start: int
    end: int
    size: int
    """The number of canonical characters: one per character of its own, or zero or one for an escape."""


def iterate_tokens(text: str, start: int, end: int) -> Iterator[CanonicalToken]:
    """Yield the parts of a text that have canonical characters."""
    at = start
    while at < end:
        if (run := _RUN.match(text, at, end)) is not None:
            yield CanonicalToken(at, run.end(), run.end() - at)
            at = run.end()
        elif (escape := _ESCAPE.match(text, at, end)) is not None:
            if size := len("".join(_decode(escape).split())):
                yield CanonicalToken(at, escape.end(), size)
            at = escape.end()
        else:
            if not text[at].isspace():
                yield CanonicalToken(at, at + 1, 1)
            at += 1


def _decode(found: re.Match[str]) -> str:
    kind, text = found.lastgroup, found[0]
    if kind in ("ansi", "dropped", "blank"):
        return ""
    if kind in ("percent", "bytes"):
        return _drop_invisible(bytes.fromhex("".join(_BYTES.findall(text))).decode("utf-8", "replace"))
    if kind == "pair":
        high, low = (int(part[:4], 16) for part in re.split(r"\\+u", text)[1:])
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    if kind == "entity":
        name = text.rpartition("amp;")[2] if text.endswith(";") and not text.endswith("amp;") else "amp;"
        return _drop_invisible(html.unescape(f"&{name.lstrip('&')}"))
    if kind == "octal":
        return _drop_invisible(chr(int(text[-3:], 8)))
    digits = _NUMBER.search(text)
    base = 10 if kind == "number" and "x" not in text.lower() else 16
    code = int(digits[0], base) if digits is not None else 0
    return _drop_invisible(chr(code)) if code < 0x110000 else ""


def _drop_invisible(character: str) -> str:
    """Return the character unless it is dropped. A decoded `%` or `&` is not decoded again."""
    return "" if _DROPPED.fullmatch(character) else character


_DROPPED = re.compile(f"[\\\\{_INVISIBLE}]+")
