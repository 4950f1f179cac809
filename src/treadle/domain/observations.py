"""The format of tool results for the model, `treadle.tool_observation.v1`: a line of JSON that says how the call
ended, unless it simply succeeded, then its text as it is. Escaped inside the JSON, the text would be longer, and
models would misquote it."""

import re

LONG_MS = 1000
"""A model is told how long a call took from here on."""
_CUT = ',"truncated":true'
_HEADER = re.compile(r'\{"status":"[a-z_]+"(?:,"exit_code":-?\d+)?,"duration_ms":\d+(?:,"truncated":true)?\}')


def extract_text(result: str) -> str:
    """Return the text of a result, without its header line."""
    return split_header(result)[1]


def split_header(result: str) -> tuple[str, str]:
    """Return the header line of a result, with its line break, and the text."""
    head, _, text = result.partition("\n")
    return (f"{head}\n", text) if _HEADER.fullmatch(head) else ("", result)


def is_truncated(result: str) -> bool:
    """Return whether the header says that the text is truncated."""
    return _CUT in split_header(result)[0]


def has_exit_code(result: str) -> bool:
    """Return whether the header has the exit code of a command that was not stopped."""
    return ',"exit_code":' in split_header(result)[0]


def mark_truncated(head: str) -> str:
    """Return the header line, changed to say that the text is truncated."""
    head = head or make_header("ok", 0)
    return head if _CUT in head else f"{head[:-2]}{_CUT}}}\n"


def make_header(status: str, duration_ms: int, exit_code: int | None = None, truncated: bool = False) -> str:
    """Return the header line of a result, with its line break."""
    exited = "" if exit_code is None else f',"exit_code":{exit_code}'
    return f'{{"status":"{status}"{exited},"duration_ms":{duration_ms}{_CUT if truncated else ""}}}\n'


def says_all(text: str, duration_ms: int, exit_code: int | None, truncated: bool) -> bool:
    """Return whether the text of a call that succeeded needs no header line. An empty one does, and so does one
    that begins like a header line."""
    has_facts = exit_code is not None or truncated or duration_ms >= LONG_MS
    return bool(text) and not has_facts and not split_header(text)[0]
