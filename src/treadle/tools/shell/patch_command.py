"""`apply_patch` written as a command. Some models are trained on a shell that has it; here it is a tool."""

import re

from treadle.domain.edits.patch_format import BEGIN
from treadle.tools.shell.simple_commands import ParsedLine

_NAMES = ("apply_patch", "applypatch")
_CALL = re.compile(r"(?:^|[;&|({`'\"]|\b(?:then|else|do)\b)\s*apply_?patch\b", re.MULTILINE)
_ADVICE = (
    "`apply_patch` is a tool, not a command. Call the tool `apply_patch` with the patch as `input`; if you do not "
    "have it, use `edit_file` or `write_file`."
)


def find_patch_advice(line: str, parsed: ParsedLine) -> str | None:
    """Return what to do instead of calling `apply_patch` as a command, or None if a line does not."""
    is_called = any(call.program in _NAMES for call in parsed.calls)
    if not is_called and parsed.opaque is not None:  # the line may not have been read to its end
        is_called = BEGIN in line and _CALL.search(_find_opening(line)) is not None
    return _ADVICE if is_called else None


def _find_opening(line: str) -> str:
    """Return what comes before a patch, without the lines of a here-document that contains it."""
    opening = line.partition(BEGIN)[0]
    first, mark, rest = opening.partition("<<")
    return first + mark + rest.partition("\n")[0]
