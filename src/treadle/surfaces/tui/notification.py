"""The bell, the notification and the window title of the terminal, in the protocols that terminals have."""

from collections.abc import Mapping
from typing import Literal

from treadle.surfaces.terminal.text import one_line

Protocol = Literal["bell", "osc9", "osc777", "osc99"]
"""How a terminal is told to notify. osc9: iTerm2 and others. osc777: VTE, foot, rxvt. osc99: kitty."""
APP_NAME = "Treadle"
MAX_CHARACTERS = 200
BELL, ESCAPE = "\x07", "\x1b"
SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
_OSC9_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty", "rio", "WarpTerminal")
_OSC777_TERMS = ("foot", "rxvt", "contour")


def find_protocol(environment: Mapping[str, str]) -> Protocol:
    """Return how the terminal is told to notify. In tmux, the variables of the terminal around it count."""
    if "STY" in environment:  # GNU screen passes nothing on
        return "bell"
    if "KITTY_WINDOW_ID" in environment or environment.get("TERM") == "xterm-kitty":
        return "osc99"
    programs = (environment.get("TERM_PROGRAM"), environment.get("LC_TERMINAL"))
    if any(program in (*_OSC9_PROGRAMS, "iTerm2") for program in programs) or "WT_SESSION" in environment:
        return "osc9"
    is_vte = "VTE_VERSION" in environment
    return "osc777" if is_vte or environment.get("TERM", "").startswith(_OSC777_TERMS) else "bell"


def make_notification(text: str, environment: Mapping[str, str]) -> str:
    """Return what makes the terminal ring and show a notification, if it can show one."""
    shown = one_line(text, MAX_CHARACTERS)
    match find_protocol(environment):
        case "bell":
            return BELL
        case "osc9":
            sequence = f"{ESCAPE}]9;{shown}{BELL}"
        case "osc777":
            sequence = f"{ESCAPE}]777;notify;{APP_NAME};{shown.replace(';', ',')}{BELL}"
        case "osc99":
            sequence = f"{ESCAPE}]99;;{APP_NAME}: {shown}{ESCAPE}\\"
    return BELL + pass_through(sequence, environment)


def make_title(text: str) -> str:
    """Return what sets the title of the window."""
    return f"{ESCAPE}]2;{one_line(text, MAX_CHARACTERS)}{BELL}"


def pass_through(sequence: str, environment: Mapping[str, str]) -> str:
    """Return a sequence so that tmux passes it on to the terminal around it, if it is allowed to."""
    if "TMUX" not in environment:
        return sequence
    return f"{ESCAPE}Ptmux;{sequence.replace(ESCAPE, ESCAPE * 2)}{ESCAPE}\\"
