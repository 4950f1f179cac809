"""The arguments of a call as text that a reviewer edits: each value under its name, as it is and not as JSON.

A single text has no heading. Values that such text cannot hold exactly, such as invisible characters, are edited as
JSON."""

import json
import re
from collections.abc import Mapping
from typing import Any

from treadle.domain.errors import UsageError
from treadle.surfaces.terminal.call_view import decode, readable_json
from treadle.surfaces.terminal.text import is_invisible

HEADING = "── {name}"
_HEADING = re.compile(r"^── (\w+)$", re.MULTILINE)


def make_editable(arguments: str) -> str:
    """Return arguments as text to edit."""
    values = decode(arguments).values
    if values is None:
        return readable_json(arguments)
    if not _is_exact(values):
        text = json.dumps(values, ensure_ascii=False, indent=2)
        return "".join(json.dumps(c)[1:-1] if is_invisible(c) else c for c in text)
    if len(values) == 1 and isinstance(only := next(iter(values.values())), str):
        return only
    return "\n".join(f"{HEADING.format(name=name)}\n{_show(value)}" for name, value in values.items())


def read_edited(arguments: str, text: str) -> str:
    """Return the edited arguments as JSON. `arguments` are those that were edited. Raise UsageError for a text that
    names no argument of the call, or a value that does not fit."""
    values = decode(arguments).values
    if values is None or not _is_exact(values):
        return text
    if len(values) == 1 and isinstance(next(iter(values.values())), str):
        return json.dumps({next(iter(values)): text}, ensure_ascii=False)
    if text.lstrip().startswith("{") and decode(text).values is not None:
        return text  # JSON is accepted too
    before, *parts = _HEADING.split(text)
    if before.strip() or not parts:
        first = HEADING.format(name=next(iter(values)))
        raise UsageError(f"The arguments were not read: they begin with `{first}` or such a name. Edit them again.")
    found: dict[str, Any] = {}
    parts[-1] += "\n"  # as before a heading
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        found[name] = _read(name, value.removeprefix("\n").removesuffix("\n"), values.get(name, ""))
    return json.dumps(found, ensure_ascii=False)


def _is_exact(values: Mapping[str, Any]) -> bool:
    """Return whether the prompt can hold the values exactly."""
    texts = [value for value in values.values() if isinstance(value, str)]
    has_hidden = any(c in "\t\r" or (c != "\n" and is_invisible(c)) for text in texts for c in text)
    return bool(values) and not has_hidden and not any(_HEADING.search(text) for text in texts)


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(name: str, text: str, before: Any) -> Any:
    if isinstance(before, str):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"The argument `{name}` was not read: {error}. Edit it again.") from None
