"""The redactor finds every secret in all usual encodings, cut anywhere."""

import base64
import os
import secrets as randomness
import subprocess
import textwrap
import zlib
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.patience import LINEAR, cpu_seconds, growth, processor_seconds
from tests.vault.leaks import ENCODINGS, embedded, leaks, pieces, values
from treadle.vault.encoded_forms import MIN_FORM_CHARS, list_forms
from treadle.vault.redactor import SecretRedactor

TOKEN = "sk-ant-Zq8/+w\"x'<&>é 1%=\\n"
PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    + "\n".join(textwrap.wrap(base64.b64encode(bytes(range(200))).decode(), 64))
    + "\n-----END PRIVATE KEY-----\n"
)

BEGUN_ESCAPES = ["\\", "\\\\", "\\x", "\\u", "\\u00", "\\U", "\\x4", "%", "%2", "%25", "\\1", "\\12"]
"""What decoding continues with the first characters of a form."""
each = pytest.mark.parametrize


def redact(text: str, **secrets: str) -> str:
    return SecretRedactor(secrets.items()).redact(text).text


# ── Whole texts ──


def test_a_secret_is_replaced_by_its_name() -> None:
    redaction = SecretRedactor({"TOKEN": "hunter2-hunter2", "OTHER": "not in here"}.items()).redact(
        "it is hunter2-hunter2!"
    )
    assert redaction.text == "it is [redacted:TOKEN]!"
    assert redaction.names == ("TOKEN",)


def test_other_text_stays_as_it_is() -> None:
    text = "nothing to see \ud800 here"
    redaction = SecretRedactor({"TOKEN": TOKEN}.items()).redact(text)
    assert (redaction.text, redaction.names) == (text, ())


def test_a_redactor_without_secrets_is_idle() -> None:
    redactor = SecretRedactor(())
    assert redactor.is_idle
    assert redactor.redact("text").text == "text"
    assert redactor.stream().feed("text") == "text"
    assert not SecretRedactor({"A": TOKEN}.items()).is_idle


@each("encoding", ENCODINGS)
@each("value", [TOKEN, "plain-token-0123456789", "Grüße an die Welt €", "p" * 200, "two lines\nof a secret"])
def test_the_usual_encodings_are_redacted(encoding: str, value: str) -> None:
    encoded = ENCODINGS[encoding](value)
    assert redact(f"<<{encoded}>>", T=value) == "<<[redacted:T]>>"


@each("before", [b"", b"u", b"us", b"use", b"user:"])
@each("after", [b"", b"x", b"xy", b"\n"])
def test_a_value_inside_a_longer_base64_text_loses_all_but_its_edges(before: bytes, after: bytes) -> None:
    value = "correct horse battery staple"
    shown = redact(embedded(value, before, after), T=value)
    left, mark, right = shown.partition("[redacted:T]")
    assert mark
    assert len(left) <= len(before) * 4 / 3 + 1
    assert len(right.rstrip("=")) <= len(after) * 4 / 3 + 2


def test_an_encoding_that_repeats_without_white_space_takes_linear_time() -> None:
    value = "tok_9fK2mQ7xWz81Lp"
    redactor = SecretRedactor({"T": value}.items())
    encoded = value.encode().hex()
    assert redactor.redact(encoded * 4_000).text == "[redacted:T]" * 4_000
    assert growth(lambda times: redactor.redact(encoded * times), 1_000) < LINEAR


@each("wrap", [1, 20, 64, 76])
def test_wrapped_base64_is_found(wrap: int) -> None:
    value = randomness.token_urlsafe(120)
    lines = textwrap.wrap(embedded(value, b"config: ", b" end"), wrap)
    shown = redact("\r\n".join(lines) if wrap > 1 else " ".join(lines), T=value)
    assert "[redacted:T]" in shown
    assert len(shown) < 60


def test_the_lines_of_a_key_are_known_and_its_frame_is_not() -> None:
    lines = PEM.splitlines()
    assert redact(f"x {lines[2]} y", KEY=PEM) == "x [redacted:KEY] y"
    assert redact("".join(lines[1:-1]), KEY=PEM) == "[redacted:KEY]"
    assert redact("\r\n".join(lines), KEY=PEM) == "[redacted:KEY]"
    assert redact(lines[0], KEY=PEM) == lines[0]
    assert redact(PEM.replace("\n", "\\n"), KEY=PEM) == "[redacted:KEY]"


def test_short_derived_forms_are_not_used() -> None:
    assert all(len(form) >= MIN_FORM_CHARS for form in list_forms("12345678"))
    assert set(list_forms("abc")) == {"abc"}
    assert "short" not in list_forms("a long first line\nshort\n")


def test_overlapping_secrets_are_redacted_under_the_longest_name() -> None:
    assert redact("abcdefghijklmnop", A="abcdefgh", B="efghijklmnop") == "[redacted:B]"
    assert redact("xabcdefghijx", IN="bcdefghi", OUT="abcdefghij") == "x[redacted:OUT]x"
    assert redact("abcdefghabcdefgh", A="abcdefgh") == "[redacted:A][redacted:A]"


@each("value", ["redacted", "redacted:", "[redacted:T]", "abcdefg[", "]abcdefg", "T]abcdefg"])
def test_the_redaction_mark_never_contains_a_secret(value: str) -> None:
    redactor = SecretRedactor({"T": value, "U": "some-other-secret"}.items())
    shown = redactor.redact(f"a {value} b {value}{value} some-other-secret{value} abcdefgsome-other-secret").text
    assert value not in shown
    assert "some-other-secret" not in shown


@settings(max_examples=80, deadline=None)
@given(leaks())
@example(({"A": "a"}, "banana"))
@example(({"A": "aaaaaaaa"}, "a" * 50))
def test_redacted_text_contains_no_form_of_a_secret(leak: tuple[dict[str, str], str]) -> None:
    secrets, text = leak
    redactor = SecretRedactor(secrets.items())
    shown = redactor.redact(text)
    for value in secrets.values():
        assert not [form for form in list_forms(value) if form in shown.text]
    assert redactor.redact(shown.text).text == shown.text


@settings(max_examples=80, deadline=None)
@given(
    values,
    st.sampled_from(sorted(ENCODINGS)),
    st.text(max_size=5) | st.sampled_from(BEGUN_ESCAPES),
    st.text(max_size=5),
)
def test_encodings_of_libraries_are_found(value: str, encoding: str, before: str, after: str) -> None:
    encoded = ENCODINGS[encoding](value)
    redaction = SecretRedactor({"A": value}.items()).redact(before + encoded + after)
    assert encoded.strip() not in redaction.text
    assert redaction.names == ("A",)


@settings(max_examples=100, deadline=None)
@given(values, st.binary(max_size=5), st.binary(max_size=5), st.sampled_from([None, 20, 76]))
def test_the_surrounding_text_does_not_matter(value: str, before: bytes, after: bytes, wrap: int | None) -> None:
    encoded = embedded(value.strip() if len(value.strip()) >= 14 else value * 2, before, after)
    if wrap:
        encoded = "\n".join(textwrap.wrap(encoded, wrap))
    assert SecretRedactor({"A": value}.items()).redact(encoded).names == ("A",) or len(value.strip()) < 14


# ── In pieces ──


@settings(max_examples=80, deadline=None)
@given(pieces())
@example(({"A": "aaaaaaaa"}, "a" * 30, ["a"] * 30))
def test_a_stream_is_redacted_alike_for_any_split(
    cut: tuple[dict[str, str], str, list[str]],
) -> None:
    secrets, text, parts = cut
    redactor = SecretRedactor(secrets.items())
    whole = redactor.redact(text).text
    stream = redactor.stream()
    shown = ""
    for part in parts:
        shown += stream.feed(part)
        assert whole.startswith(shown), (secrets, parts)
    assert shown + stream.flush() == whole, (secrets, parts)


@settings(max_examples=100, deadline=None)
@given(pieces(), st.integers(0, 300))
def test_held_text_is_at_most_as_long_as_the_longest_form_of_a_secret(
    cut: tuple[dict[str, str], str, list[str]], spaces: int
) -> None:
    secrets, _, parts = cut
    redactor = SecretRedactor(secrets.items())
    stream = redactor.stream()
    for part in (*parts, " " * spaces, *parts):
        stream.feed(part)
        assert len(stream.held) < redactor.longest


def test_the_beginning_of_a_secret_is_held_and_released_if_it_is_not_one() -> None:
    stream = SecretRedactor({"T": "hunter2-hunter2"}.items()).stream()
    assert stream.feed("it is hunter") == "it is "
    assert stream.feed("2-hunt") == ""
    assert stream.feed("ing trip!") == "hunter2-hunting trip!"
    assert stream.feed(" hunter2-hunter") == " "
    assert stream.feed("2 that is ") + stream.flush() == "[redacted:T] that is "


@each("size", [1, 7, 1000])
def test_pieces_that_are_too_far_apart_are_not_a_match(size: int) -> None:
    """Else a stream would have to hold white space for ever."""
    encoded = ENCODINGS["base64"]("a value that is long")
    text = encoded[:9] + " " * len(encoded) * 17 + encoded[9:]
    redactor = SecretRedactor([("T", "a value that is long")])
    stream = redactor.stream()
    assert redactor.redact(text).text == text
    assert "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size)) + stream.flush() == text


def test_a_secret_that_repeats_endlessly_takes_no_memory() -> None:
    redactor = SecretRedactor({"T": "aaaaaaaa"}.items())
    stream = redactor.stream()
    assert "".join(stream.feed("aaa") for _ in range(20_000)) == ""
    assert stream.flush() == "[redacted:T]"


# ── Speed ──


def test_redacting_64_kilobytes_costs_little() -> None:
    secrets = {f"S{n}": f"{randomness.token_urlsafe(30)}/+\"'é&{n}" for n in range(20)}
    redactor = SecretRedactor(secrets.items())
    source = " ".join(f"{zlib.crc32(bytes([n % 256, n // 256])):x} word\n" for n in range(9000))[:65536]
    assert sum(len(list_forms(value)) for value in secrets.values()) >= 400
    assert cpu_seconds(lambda: redactor.redact(source)) < 5 * processor_seconds(), "about 4 ms in 2020"


def test_a_long_secret_that_comes_in_small_pieces_costs_little() -> None:
    def fed(size: int) -> Callable[[], None]:
        value = randomness.token_urlsafe(size)
        redactor = SecretRedactor({"T": value}.items())
        text = base64.b64encode(value.encode()).decode()

        def feed() -> None:
            stream = redactor.stream()
            shown = "".join(stream.feed(text[at : at + 4]) for at in range(0, len(text), 4)) + stream.flush()
            assert shown == "[redacted:T]"

        return feed

    feeds = {size: fed(size) for size in (4_000, 16_000)}
    assert growth(lambda size: feeds[size](), 4_000, times=2) < LINEAR


# ── What real programs print ──


@each("value", [TOKEN, 'it\'s $HOME, `id` "and" \\ more!', "tab\tand\nline", "* and globs?", "Grüße, Welt €"])
@each(
    "command",
    [
        "export -p",
        "declare -p TOKEN",
        "set",
        "env",
        "printf %q \"$TOKEN\"",
        "set -x; : \"$TOKEN\"",
        "echo \"${TOKEN@Q}\"",
        "printf %s \"$TOKEN\" | base64 -w 20",
        "printf %s \"$TOKEN\" | od -An -tx1",
        "printf %s \"user:$TOKEN\" | base64",
    ],
)  # fmt: skip
def test_variables_that_a_shell_prints_are_redacted(value: str, command: str) -> None:
    environment = {"PATH": os.environ["PATH"], "TOKEN": value, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, check=True)
    printed = (done.stdout + done.stderr).decode()
    shown = SecretRedactor([("TOKEN", value)]).redact(printed)
    assert shown.names == ("TOKEN",), printed
    for line in value.splitlines():
        assert line not in shown.text
