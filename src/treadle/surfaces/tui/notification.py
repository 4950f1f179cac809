"""The bell, and a notification of the terminal where it has one (OSC 9)."""

import os
from typing import TYPE_CHECKING, Any

from treadle.surfaces.terminal.text import one_line

if TYPE_CHECKING:
    from textual.app import App

NOTIFYING = ("iTerm.app", "WezTerm", "ghostty", "rio", "WarpTerminal")
"""Values of TERM_PROGRAM of terminals that show OSC 9. Kitty and Windows Terminal have variables of their own."""


def notify_terminal(app: "App[Any]", text: str) -> None:
    """Ring, and show a notification."""
    app.bell()
    driver = app._driver  # pyright: ignore[reportPrivateUsage] -- Textual has no other way to write to the terminal
    if driver is not None and shows_notifications():
        driver.write(f"\x1b]9;{one_line(text)}\x07")
        driver.flush()


def shows_notifications() -> bool:
    """Return whether the terminal shows notifications of OSC 9."""
    known = os.environ.get("TERM_PROGRAM") in NOTIFYING
    return known or "KITTY_WINDOW_ID" in os.environ or "WT_SESSION" in os.environ
