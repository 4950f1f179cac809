"""Asks the terminal whether its background is light or dark."""

import os
import re
import select
import sys
import termios
import time
import tty

from treadle.surfaces.markdown.themes import DARK, LIGHT

TIMEOUT_SECONDS = 0.15
_COLOUR = re.compile(rb"\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[\d;]*c")


def detect_background() -> str | None:
    """Return `light` or `dark`; None if the terminal does not say so at once. All terminals answer the second
    question: after that answer there will be none to the first."""
    if os.environ.get("COLORFGBG") or os.environ.get("NO_COLOR") or not sys.stdin.isatty():
        return None
    source = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(source)
        tty.setcbreak(source, termios.TCSANOW)
    except termios.error:
        return None
    try:
        os.write(sys.stdout.fileno(), b"\x1b]11;?\x1b\\\x1b[c")
        answer, deadline = b"", time.monotonic() + TIMEOUT_SECONDS
        while not _ATTRIBUTES.search(answer):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([source], [], [], left)[0]:
                break
            answer += os.read(source, 1024)
    except OSError:
        return None
    finally:
        termios.tcsetattr(source, termios.TCSANOW, before)
    found = _COLOUR.search(answer)
    if found is None:
        return None
    red, green, blue = (int(part[:2].ljust(2, b"0"), 16) for part in found.groups())
    return LIGHT if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else DARK
