"""Texts that contain secrets in the encodings that programs write, made with the libraries of those programs."""

import base64
import binascii
import html
import json
import shlex
import textwrap
import urllib.parse
from collections.abc import Callable, Mapping
from itertools import pairwise

from hypothesis import strategies as st

ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "raw": lambda value: value,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 without padding": lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
    "base64 urlsafe": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "base64 in a query": lambda value: urllib.parse.quote(base64.b64encode(value.encode()), safe=""),
    "base64 in lines": lambda value: base64.encodebytes(value.encode()).decode().rstrip("\n"),
    "base64 indented": lambda value: textwrap.indent(base64.encodebytes(value.encode()).decode(), "    ").strip(),
    "quote": urllib.parse.quote,
    "quote all": lambda value: urllib.parse.quote(value, safe=""),
    "quote_plus": urllib.parse.quote_plus,
    "json": lambda value: json.dumps(value)[1:-1],
    "json in unicode": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "json of php": lambda value: json.dumps(value)[1:-1].replace("/", "\\/"),
    "json in json": lambda value: json.dumps(json.dumps(value, ensure_ascii=False)[1:-1])[1:-1],
    "json in json in ascii": lambda value: json.dumps(json.dumps(value))[3:-3],
    "quote twice": lambda value: urllib.parse.quote(urllib.parse.quote(value, safe=""), safe=""),
    "csv": lambda value: value.replace('"', '""'),
    "yaml": lambda value: value.replace("'", "''"),
    "base32": lambda value: base64.b32encode(value.encode()).decode(),
    "hex with colons": lambda value: binascii.hexlify(value.encode(), ":").decode(),
    "hex of C": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()),
    "xxd -i": lambda value: ",\n  ".join(f"0x{byte:02x}" for byte in value.encode()),
    "numbers": lambda value: ", ".join(map(str, value.encode())),
    "html": html.escape,
    "html without quotes": lambda value: html.escape(value, quote=False),
    "hex": lambda value: value.encode().hex(),
    "hex upper": lambda value: value.encode().hex().upper(),
    "hex in columns": lambda value: binascii.hexlify(value.encode(), " ").decode(),
    "shell": lambda value: value if (quoted := shlex.quote(value)) == value else quoted[1:-1],
    "repr": lambda value: repr(value)[1:-1],
    "bytes": lambda value: repr(value.encode())[2:-1],
}
"""In each of these the whole of the value is gone when it is redacted."""


def embedded(value: str, before: bytes, after: bytes) -> str:
    """Return the value inside a longer base64 text, as in a header for basic authentication."""
    return base64.b64encode(before + value.encode() + after).decode()


NASTY = "ab\"'\\/+&<>%= \n\té€😀[]:d"
"""Few and difficult characters: overlaps, and everything that some format escapes."""

values = st.one_of(
    st.text(st.sampled_from(NASTY), min_size=8, max_size=24),
    st.text(st.sampled_from("ab"), min_size=8, max_size=12),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40),
    st.sampled_from(["redacted", "redacted]", "[redacted:A]", "xxxxxxx[", "]yyyyyyyy", "aaaaaaaa"]),
)
vaults = st.dictionaries(st.sampled_from(["A", "B", "TOKEN", "REDACTED_KEY"]), values, min_size=1, max_size=4)


@st.composite
def leaks(draw: st.DrawFn) -> tuple[dict[str, str], str]:
    """Secrets, and a text that holds some of them, encoded or begun and broken off."""
    secrets = draw(vaults)
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        parts.append(draw(st.text(st.sampled_from(NASTY), max_size=6)))
        value = draw(st.sampled_from(sorted(secrets.values())))
        encoded = ENCODINGS[draw(st.sampled_from(sorted(ENCODINGS)))](value)
        parts.append(encoded[: draw(st.integers(0, len(encoded)))] if draw(st.booleans()) else encoded)
    return secrets, "".join(parts)


@st.composite
def pieces(draw: st.DrawFn) -> tuple[dict[str, str], str, list[str]]:
    """The same, and the text cut anywhere."""
    secrets, text = draw(leaks())
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    bounds = [0, *cuts, len(text)]
    return secrets, text, [text[a:b] for a, b in pairwise(bounds)]
