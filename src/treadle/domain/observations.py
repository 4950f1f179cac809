"""The one shape in which results go back to the model, `treadle.tool_observation.v1`: a line of JSON that says how
the call ended, then its text as it is. Escaped inside the JSON it would be longer, and models would quote it
wrongly. The line has two forms: short, and full for runs of older journals."""

import re
from typing import Literal

SCHEMA = "treadle.tool_observation.v1"
ResultHeader = Literal["full", "short"]

_CUT, _WHOLE = ',"truncated":true', ',"truncated":false'
_SHORT = re.compile(r'\{"status":"[a-z_]+"(?:,"exit_code":-?\d+)?,"duration_ms":\d+(?:,"truncated":true)?\}')


def extract_text(observed: str) -> str:
    """What the call told, without the line that says how it ended."""
    return split_header(observed)[1]


def split_header(observed: str) -> tuple[str, str]:
    """The line that says how the call ended, with its line break, and what the call told."""
    head, _, text = observed.partition("\n")
    return (f"{head}\n", text) if SCHEMA in head or _SHORT.fullmatch(head) else ("", observed)


def is_truncated(observed: str) -> bool:
    """Whether it says that not all of what the call told is here."""
    return _CUT in split_header(observed)[0]


def has_exit_code(observed: str) -> bool:
    """Whether it carries the exit status of a command that was not stopped."""
    return ',"exit_code":' in split_header(observed)[0]


def mark_truncated(head: str) -> str:
    """The line that says how the call ended, and that not all of what it told follows."""
    if _WHOLE in head:
        return head.replace(_WHOLE, _CUT)
    return head if not head or _CUT in head else f"{head[:-2]}{_CUT}}}\n"


def make_header(
    status: str,
    duration_ms: int,
    exit_code: int | None = None,
    truncated: bool = False,
    form: ResultHeader = "short",
) -> str:
    """Return the line that says how a call ended, with its line break."""
    exited = "" if exit_code is None else f',"exit_code":{exit_code}'
    if form == "short":
        cut = _CUT if truncated else ""
        return f'{{"status":"{status}"{exited},"duration_ms":{duration_ms}{cut}}}\n'
    cut = _CUT if truncated else _WHOLE
    return f'{{"schema":"{SCHEMA}","status":"{status}"{exited},"duration_ms":{duration_ms}{cut}}}\n'
