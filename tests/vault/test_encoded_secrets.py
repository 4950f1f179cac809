"""Secrets that are escaped, split, wrapped or widened, in any combination and cut anywhere, are redacted
completely."""

import base64
import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.vault.canonical import canonicalize, find_stable_end
from treadle.vault.redactor import SecretRedactor

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.~!$*+/="
ESCAPES: Mapping[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda c: "".join(f"%{byte:02X}" for byte in c.encode()),
    "percent lower": lambda c: "".join(f"%{byte:02x}" for byte in c.encode()),
    "percent twice": lambda c: "".join(f"%25{byte:02X}" for byte in c.encode()),
    "unicode": lambda c: f"\\u{ord(c):04x}",
    "unicode upper": lambda c: f"\\u{ord(c):04X}",
    "unicode in json": lambda c: f"\\\\u{ord(c):04x}",
    "braces": lambda c: f"\\u{{{ord(c):x}}}",
    "decimal entity": lambda c: f"&#{ord(c)};",
    "padded entity": lambda c: f"&#{ord(c):05};",
    "hex entity": lambda c: f"&#x{ord(c):x};",
    "hex entity upper": lambda c: f"&#X{ord(c):X};",
    "entity twice": lambda c: f"&amp;#{ord(c)};",
    "hex escape": lambda c: "".join(f"\\x{byte:02x}" for byte in c.encode()),
    "octal": lambda c: f"\\{ord(c):03o}" if ord(c) < 128 else c,
    "utf-16 le": lambda c: f"{c}\0",
    "utf-16 be": lambda c: f"\0{c}",
    "utf-16 escaped": lambda c: f"{c}\\x00",
    "colour": lambda c: f"\x1b[31m{c}\x1b[0m",
    "colour escaped": lambda c: f"\\u001b[1;31m{c}",
    "zero width": lambda c: f"{c}\u200b",
    "joiner": lambda c: f"{c}\u2060\ufeff",
    "soft hyphen": lambda c: f"{c}\xad",
    "space": lambda c: f"{c} ",
    "line": lambda c: f"{c}\r\n",
    "escaped line": lambda c: f"{c}\\n",
    "backslash": lambda c: f"\\{c}" if not c.isalnum() else c,
}
secrets = st.text(st.sampled_from(ALPHABET), min_size=12, max_size=40).filter(lambda s: len(canonicalize(s)) >= 12)


@lru_cache(maxsize=8)
def make_redactor(secret: str) -> SecretRedactor:
    """Return the redactor of one secret: making it takes longer than redacting a short text."""
    return SecretRedactor([("T", secret)])


def redact_in_pieces(secret: str, text: str, cuts: list[int]) -> str:
    stream = make_redactor(secret).stream()
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return "".join(stream.feed(text[a:b]) for a, b in pairwise(bounds)) + stream.flush()


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("end", [">", "", "%", "\\", "&", "\n"])
def test_a_secret_in_any_single_encoding_is_redacted(escape: str, size: int, end: str) -> None:
    """Also where nothing follows, or the beginning of another escape."""
    for secret in ("sk-live_9fK2mQ7xWz81Lp+Qa/0=", "sk-live_9fK2mQ7xWz81Lp+Qa/0e"):
        text = f"<{''.join(map(ESCAPES[escape], secret))}{end}"
        cuts = list(range(0, len(text), size))
        left = redact_in_pieces(secret, text, cuts)
        assert "[redacted:T]" in left
        assert len(left) <= len("<[redacted:T]>") + 12, (
            left
        )  # an invisible character or escape at the edge may stay


@settings(max_examples=100, deadline=None)
@given(secrets, st.data())
def test_a_secret_in_mixed_encodings_is_redacted_for_any_split(secret: str, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(ESCAPES)), min_size=len(secret), max_size=len(secret)))
    text = "".join(ESCAPES[kind](character) for kind, character in zip(kinds, secret, strict=True))
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=10))
    after = data.draw(st.sampled_from((" after", "")))
    left = redact_in_pieces(secret, f"before {text}{after}", cuts)
    plain = canonicalize(left.replace("[redacted:T]", "|"))
    assert not [
        part for part in _runs(canonicalize(secret)) if part in plain.replace("before", "").replace("after", "")
    ]


@settings(max_examples=100, deadline=None)
@given(secrets, st.binary(max_size=7), st.binary(max_size=7), st.integers(0, 80), st.data())
def test_no_part_of_a_base64_secret_is_left(
    secret: str, before: bytes, after: bytes, wrap: int, data: st.DataObject
) -> None:
    coding = data.draw(st.sampled_from(["utf-8", "utf-16-le", "utf-16-be"]))
    encode = data.draw(st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]))
    text = encode(before + secret.encode(coding) + after).decode()
    lines = [text[at : at + wrap] for at in range(0, len(text), wrap)] if wrap > 3 else [text]
    text = "\n".join(lines)
    left = redact_in_pieces(secret, text, data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    assert "[redacted:T]" in left
    head, _, tail = left.partition("[redacted:T]")
    assert len("".join(head.split())) <= len(before) * 8 // 6
    assert len("".join(tail.split()).rstrip("=")) <= -(-len(after) * 8 // 6)


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be"])
def test_utf_16_in_hex_is_known(coding: str) -> None:
    secret = "correct-horse-battery"
    for digits in (secret.encode(coding).hex(), secret.encode(coding).hex().upper()):
        assert redact_in_pieces(secret, f"x {digits} y", [4]) == "x [redacted:T] y"


ORDINARY = (
    "Use %d%% of the memory & the disk; see C:\\new\\table or \\\\server\\share. AT&T said: 100% sure.",
    "SELECT * FROM t WHERE a LIKE '%foo%' AND b = 'x\\'y'; -- &nbsp;&lt;b&gt; \\u00e9 caf%C3%A9",
    "\x1b[32mok\x1b[0m 12 passed\n\x1b[31mFAILED\x1b[0m tests/test_x.py::test_y - assert 1 == 2",
    "Größe: 1 \u200bµm \ufeff日本語テキスト\n\tdef f(x):\n\t\treturn x % 2\n",
)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone(text: str) -> None:
    chance = random.Random(7)
    known = [(f"S{n}", "".join(chance.choices(ALPHABET, k=24))) for n in range(20)]
    redactor = SecretRedactor(known)
    assert redactor.redact(text * 50).text == text * 50
    stream = redactor.stream()
    assert "".join(map(stream.feed, text)) + stream.flush() == text


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("%25\\ux41&#;amp\x1b[m d8c3a9\0\u200b"), max_size=40), st.integers(0, 40))
def test_a_text_is_decoded_alike_for_any_split(text: str, cut: int) -> None:
    done = find_stable_end(text[:cut])
    assert canonicalize(text[:done]) + canonicalize(text[done:]) == canonicalize(text)


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.sampled_from("%25\\ux41&#;amp\x1b[m d8c3a9\0\u200bsecr-"), max_size=60), st.lists(st.integers(0, 60))
)
def test_text_without_secrets_is_unchanged(text: str, cuts: list[int]) -> None:
    assert redact_in_pieces("never-in-the-text-XYZ", text, cuts) == text


def _runs(secret: str) -> set[str]:
    return {secret[at : at + 6] for at in range(len(secret) - 5)}
