"""Alt-Enter on terminals without a keyboard protocol: they send Escape and Enter, which Textual reads as Enter."""

from collections.abc import MutableMapping
from enum import Enum
from typing import Any, cast


class EnterKey(Enum):
    """A key that Textual does not know."""

    ALT_ENTER = "alt+enter"


ALT_ENTER = ("\x1b\r", "\x1b\n")


def recognize_alt_enter() -> None:
    """Let Textual read both codes of Alt-Enter."""
    from textual._ansi_sequences import (  # there is no other way to add a key
        ANSI_SEQUENCES_KEYS,  # pyright: ignore[reportPrivateUsage]
    )

    sequences = cast("MutableMapping[str, Any]", ANSI_SEQUENCES_KEYS)
    for sequence in ALT_ENTER:
        sequences[sequence] = (EnterKey.ALT_ENTER,)
