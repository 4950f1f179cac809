"""Redaction finds a secret in UTF-16 and in changed letter case, in any mixture with other disguises."""

import pytest

from treadle.domain.messages import make_sendable
from treadle.vault.redactor import SecretRedactor

PLAIN, ACCENTED = "Sup3rSecret-Value-91", "päßwörd-Ωmega-2024"
REDACTOR = SecretRedactor([("PLAIN", PLAIN), ("ACCENTED", ACCENTED)])


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
@pytest.mark.parametrize(("name", "value"), [("PLAIN", PLAIN), ("ACCENTED", ACCENTED)])
def test_a_secret_in_utf_16_is_found_however_it_is_decoded(encoding: str, name: str, value: str) -> None:
    raw = f"key = {value}\n".encode(encoding)
    for text in (
        raw.decode("utf-8", "replace"),
        raw.decode("latin-1"),
        make_sendable(raw.decode("utf-8", "replace")),
        raw.decode("utf-8", "backslashreplace"),
    ):
        assert REDACTOR.redact(text).names == (name,), text


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.upper(),
        PLAIN.lower(),
        PLAIN.swapcase(),
        "\u200b".join(PLAIN.upper()),
        PLAIN.upper().encode("utf-16-le").decode("utf-8"),
        "sUP3R%53ECRET-vALUE-91",
        ACCENTED.upper().replace("SS", "ß"),
    ],
)
def test_a_secret_in_changed_case_is_found(text: str) -> None:
    redaction = REDACTOR.redact(f"before {text} after")
    assert redaction.names
    assert redaction.text.startswith("before [redacted:")
    assert redaction.text.replace("\0", "").endswith("] after")


def test_a_changed_secret_is_found_when_it_arrives_in_single_characters() -> None:
    stream = REDACTOR.stream()
    raw = f"<{PLAIN.upper()}>".encode("utf-16-be").decode("utf-8")
    shown = "".join(map(stream.feed, raw)) + stream.flush()
    assert "[redacted:PLAIN]" in shown
    assert "SUP" not in shown.replace("\0", "")


def test_letters_whose_lower_case_is_longer_keep_their_places() -> None:
    redaction = REDACTOR.redact(f"İİİ {PLAIN.upper()} İ")
    assert redaction.text == "İİİ [redacted:PLAIN] İ"
