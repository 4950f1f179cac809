"""The format of tool results for the model, `treadle.tool_observation.v1`: a line of JSON that says how the call
ended, unless it simply succeeded, then its text as it is. Escaped inside the JSON, the text would be longer, and
models would misquote it."""

import re

LONG_MS = 1000
"""A call that took less time is not worth the tokens that say so."""
_CUT = ',"truncated":true'
_OK = '{"status":"ok"}'
_HEADER = re.compile(r'\{"status":"[a-z_]+"(?:,"exit_code":-?\d+)?(?:,"duration_ms":\d+)?(?:,"truncated":true)?\}')


def format_result(
    text: str, status: str, duration_ms: int = 0, exit_code: int | None = None, truncated: bool = False
) -> str:
    """Return the result of a call as the model reads it. A text that begins like a header line, and an empty text,
    always get one."""
    exited = "" if exit_code is None else f',"exit_code":{exit_code}'
    took = f',"duration_ms":{duration_ms}' if duration_ms >= LONG_MS else ""
    header = f'{{"status":"{status}"{exited}{took}{_CUT if truncated else ""}}}'
    is_needed = header != _OK or not text or bool(_HEADER.fullmatch(text.partition("\n")[0]))
    return f"{header}\n{text}" if is_needed else text


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
    head = head or f"{_OK}\n"
    return head if _CUT in head else f"{head[:-2]}{_CUT}}}\n"
