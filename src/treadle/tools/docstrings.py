"""Splits a docstring into its text and the parameter descriptions in its `Args:` section."""

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

_HEADING = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class Docstring(NamedTuple):
    text: str
    """The docstring without its `Args:` section."""
    parameters: dict[str, str]


def parse_docstring(function: Callable[..., Any]) -> Docstring:
    lines = (inspect.getdoc(function) or "").splitlines()
    start = next((number for number, line in enumerate(lines) if _HEADING.fullmatch(line)), len(lines))
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" ")):
        end += 1
    kept = [*lines[:start], *lines[end:]]
    return Docstring("\n".join(kept).strip(), _parse_parameters(lines[start + 1 : end]))


def _parse_parameters(section: list[str]) -> dict[str, str]:
    """Return the description of each parameter. A line indented like the first starts a parameter; a deeper one
    continues it."""
    descriptions: dict[str, str] = {}
    name, depth = "", None
    for line in filter(str.strip, section):
        indent = len(line) - len(line.lstrip())
        depth = indent if depth is None else depth
        if indent <= depth:
            match = _PARAMETER.fullmatch(line.strip())
            name = match[1] if match else ""
            if match:
                descriptions[name] = match[2]
        elif name:
            descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
    return descriptions
