"""The forms of a secret in common encodings. Pure text: what to search for, not how."""

import base64
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from urllib.parse import quote

from treadle.vault.canonical import canonicalize

MIN_FORM_CHARS = 8
"""Shorter derived forms would hide unrelated text."""
MIN_BROKEN_CHARS = 16
"""From this length on, an encoding is also found when white space splits it, such as lines of 76 characters or
columns of bytes."""
MIN_CUT_CHARS = 12
"""From this length on, a form is found even if it lost its first characters to a preceding escape."""

_UNRESERVED = ("", "/", "!'()*", "!'()*;/?:@&=+$,#")
"""Characters that URL encoders leave unchanged: strict ones, Python, encodeURIComponent, encodeURI."""
_PERCENT = re.compile("%[0-9A-F]{2}")
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_NEVER_ESCAPED = re.compile(r"[A-Za-z0-9 .,:;=_~@#$%^*()\[\]{}|!?-]*")
_MARKUP_SAFE = "<>&"
_JSON_STYLES = ("", "/", _MARKUP_SAFE, _MARKUP_SAFE + "'", _MARKUP_SAFE + "'\"+`")
"""Characters that JSON encoders escape in addition to the required ones: Python, PHP, Go, PHP again, .NET."""
_APOSTROPHES = ("&#x27;", "&#39;", "&apos;", "'")
_QUOTES = ("&quot;", "&#34;", '"')
_SHELL_SPECIAL = re.compile(r"^[#~]|[\t\n !\"$&'()*,;<>?\[\\\]^`{|}]")
_IN_DOUBLE_QUOTES = re.compile(r'[\\"$`]')
_PEM_FRAME = re.compile(r"-----(?:BEGIN|END) [^-]*-----")
_URLSAFE = str.maketrans("+/", "-_")
_END_OF_ESCAPE = re.compile("[nrtvf]|[xuU]?[0-9A-Fa-f]{1,8}")
_BASE64_LINE = re.compile(r"[A-Za-z0-9+/_-]+=*")


def list_decoded_forms(value: str) -> Mapping[str, bool]:
    """Return every canonical text that reveals a secret, and whether a base64 tail may follow it."""
    lines = value.splitlines() if len(value.splitlines()) > 1 else []
    plain = [text for text in (value, *lines) if not _PEM_FRAME.fullmatch(text.strip())]
    forms = {form: False for text in plain if len(form := canonicalize(text)) >= MIN_FORM_CHARS}
    for text in plain:
        for garbled in _list_garbled(text):
            if len(form := canonicalize(garbled)) >= MIN_FORM_CHARS:
                forms.setdefault(form, False)
    for text, may_break in list_forms(value).items():
        if may_break:
            forms.setdefault(canonicalize(text), False)
    for text in dict.fromkeys((value, value.strip())):
        if len(text) >= MIN_FORM_CHARS:
            for encoded in _list_embedded_base64(text):
                if len(encoded) >= MIN_BROKEN_CHARS:
                    forms[encoded] = True
    for form, tail in list(forms.items()):
        for rest in _cut_escape_ends(form):
            forms.setdefault(rest, tail)
    return forms


def _list_garbled(text: str) -> Iterator[str]:
    """Yield a text in UTF-16 as programs show it that take it for UTF-8 or Latin-1. ASCII needs no such form: what
    is between its letters is dropped."""
    if not text.isascii():
        for value in _encode_text(text)[1:]:
            yield value.decode("utf-8", "replace")
            yield value.decode("latin-1")


def _cut_escape_ends(form: str) -> Iterator[str]:
    """Yield the form without the characters that decoding treats as the end of an escape: `\\` before `0x3a`."""
    found = _END_OF_ESCAPE.match(form)
    for size in range(1, len(found[0]) + 1 if found else 0):
        if len(form) - size >= MIN_CUT_CHARS:
            yield form[size:]


def list_tailed_forms(value: str) -> frozenset[str]:
    """Return the forms of a value after which one more base64 character may hold its last bits."""
    texts = [text for text in dict.fromkeys((value, value.strip())) if len(text) >= MIN_FORM_CHARS]
    return frozenset(form for text in texts for form in _list_embedded_base64(text))


def _list_embedded_base64(text: str) -> Iterator[str]:
    """Yield a text as it appears within longer base64, in each alignment: without the character that holds its last
    bits, and with and without each character that may hold its first bits."""
    for value in _encode_text(text):
        for before in range(3):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                encoded = encode(b"\0" * before + value).decode()
                end = 8 * (before + len(value)) // 6
                yield encoded[-(-8 * before // 6) : end]
                if before:
                    first = 8 * before // 6
                    known = _decode_symbol(encoded[first])
                    for unknown in range(4 ** (before if before == 1 else 2)):
                        symbol = _encode_symbol(unknown << (4 if before == 1 else 2) | known, encode)
                        yield symbol + encoded[first + 1 : end]


def _encode_text(text: str) -> tuple[bytes, ...]:
    return tuple(text.encode(encoding, "surrogatepass") for encoding in ("utf-8", "utf-16-le", "utf-16-be"))


def _decode_symbol(symbol: str) -> int:
    return base64.urlsafe_b64decode(f"AAA{symbol.translate(_URLSAFE)}")[2]


def _encode_symbol(value: int, encode: Callable[[bytes], bytes]) -> str:
    return encode(bytes([value << 2]))[:1].decode()


def list_forms(value: str) -> Mapping[str, bool]:
    """Return every text that reveals a secret, and whether white space may split it."""
    forms: dict[str, bool] = dict.fromkeys(_list_texts(value), False)
    for text in dict.fromkeys((value, value.strip())):
        if len(text) < MIN_FORM_CHARS:
            continue  # encodings of so few characters occur in unrelated text
        in_utf8, *in_utf16 = _encode_text(text)
        for encoded in chain(_list_encodings(in_utf8), *map(_utf16_encodings, in_utf16)):
            if len(encoded) >= MIN_FORM_CHARS:
                forms[encoded] = forms.get(encoded, False) or len(encoded) >= MIN_BROKEN_CHARS
    body = _pem_body(value)
    if len(body) >= MIN_BROKEN_CHARS:
        forms[body] = True
    forms.pop("", None)
    return forms


def _list_texts(value: str) -> Iterator[str]:
    """Yield the value as it is and as text formats write it, and each of its lines, which may appear alone."""
    lines = value.splitlines()
    yield from _list_escapes(value)
    if len(value.strip()) >= MIN_FORM_CHARS:
        yield from _list_escapes(value.strip())
    if len(lines) > 1:
        yield from _list_escapes("\r\n".join(lines))
    for line in map(str.strip, lines if len(lines) > 1 else ()):
        if len(line) >= MIN_FORM_CHARS and not _PEM_FRAME.fullmatch(line):
            yield from _list_escapes(line)


def _list_escapes(text: str) -> Iterator[str]:
    yield text
    plain, in_ascii = _json(text, "", ascii_only=False), _json(text, "", ascii_only=True)
    yield from chain(
        _list_json_forms(text),
        _list_json_forms(plain),
        _list_url_forms(text),
        _list_html_forms(text),
        _list_shell_forms(text),
    )
    yield from dict.fromkeys(_json(form, "", ascii_only=False) for form in (in_ascii, _json(plain, "", False)))
    yield text.replace('"', '""')  # CSV
    yield text.replace("'", "''")  # YAML, SQL
    yield from (quote(quote(text, safe=safe, errors="surrogatepass"), safe="") for safe in _UNRESERVED)


def _list_json_forms(text: str) -> Iterator[str]:
    for extra in _JSON_STYLES:
        for ascii_only in (True, False):
            yield _json(text, extra, ascii_only)
            yield _json(text, extra, ascii_only, upper=True)


def _json(text: str, extra: str, ascii_only: bool, upper: bool = False) -> str:
    def escape(character: str) -> str:
        if character == "/" and "/" in extra:
            return "\\/"
        if character in extra or character < " " or (ascii_only and character > "~"):
            if character in _SHORT_ESCAPES and character not in extra:
                return _SHORT_ESCAPES[character]
            numbers = json.dumps(character)[1:-1] if character > "~" else f"\\u{ord(character):04x}"
            return numbers.upper().replace("\\U", "\\u") if upper else numbers
        return _SHORT_ESCAPES.get(character, character)

    return text if _NEVER_ESCAPED.fullmatch(text) else "".join(map(escape, text))


def _list_url_forms(text: str) -> Iterator[str]:
    for safe in _UNRESERVED:
        encoded = quote(text, safe=safe, errors="surrogatepass")
        for form in (encoded, encoded.replace("%20", "+")):
            yield form
            yield _PERCENT.sub(lambda byte: byte[0].lower(), form)


def _list_html_forms(text: str) -> Iterator[str]:
    basic = html.escape(text, quote=False)
    for apostrophe in _APOSTROPHES:
        for quotation in _QUOTES:
            form = basic.replace("'", apostrophe).replace('"', quotation)
            yield form
            yield form.encode("ascii", "xmlcharrefreplace").decode()


def _list_shell_forms(text: str) -> Iterator[str]:
    """Yield the value as bash prints variables (`set`, `export -p`, `printf %q`, `set -x`) and as Python prints
    strings."""
    yield text.replace("'", "'\\''")
    yield text.replace("'", "'\"'\"'")
    yield _IN_DOUBLE_QUOTES.sub(r"\\\g<0>", text)
    yield _SHELL_SPECIAL.sub(r"\\\g<0>", text)
    yield _json(text, "", ascii_only=False).replace('\\"', '"').replace("'", "\\'")
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    yield repr(text.encode("utf-8", "surrogatepass"))[2:-1]


def _list_encodings(value: bytes) -> Iterator[str]:
    for digits in (value.hex(), value.hex().upper()):
        pairs = [digits[at : at + 2] for at in range(0, len(digits), 2)]
        yield digits
        yield ":".join(pairs)
        yield "".join(f"\\x{pair}" for pair in pairs)
        yield ",".join(f"0x{pair}" for pair in pairs)  # `xxd -i` without white space
    yield ",".join(map(str, value))
    in_base32 = base64.b32encode(value).decode()
    yield from (in_base32, in_base32.rstrip("="), in_base32.lower())
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(value).decode()
        for form in (
            whole,
            whole.rstrip("="),
            *(_cut_to_own_bits(encode(b"\0" * n + value), n, value) for n in range(3)),
        ):
            yield form
            yield form.replace("/", "\\/")
            yield quote(form, safe="")
            yield _PERCENT.sub(lambda byte: byte[0].lower(), quote(form, safe=""))


def _utf16_encodings(value: bytes) -> Iterator[str]:
    for digits in (value.hex(), value.hex().upper()):
        yield digits
        yield ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(value).decode()
        yield encode(value).decode().rstrip("=")


def _cut_to_own_bits(encoded: bytes, before: int, value: bytes) -> str:
    """Return the characters that do not depend on the text around the value: those whose six bits all belong to the
    value. At most one character on each side holds fewer and is not searched for."""
    first = -(-8 * before // 6)
    end = 8 * (before + len(value)) // 6
    return encoded[first:end].decode()


def _pem_body(value: str) -> str:
    """Return the lines of a key between its markers, joined: it may appear with other line ends, or without."""
    lines = [line for line in map(str.strip, value.splitlines()) if line and not _PEM_FRAME.fullmatch(line)]
    return "".join(lines) if len(lines) > 1 and all(map(_BASE64_LINE.fullmatch, lines)) else ""
