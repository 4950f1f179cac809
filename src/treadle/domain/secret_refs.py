"""Handles: how a secret is named where its value must not stand. `{{vault:NAME}}` in a tool's argument is replaced
with the value when the tool runs."""

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

_HANDLE = re.compile(r"\{\{vault:([A-Za-z_][A-Za-z0-9_]{0,63})\}\}")
_BEGINNING = "{{vault:"


def make_secret_ref(name: str) -> str:
    return f"{_BEGINNING}{name}}}}}"


def find_secret_names(text: str) -> tuple[str, ...]:
    """The secrets that a text names by handle, each once, in the order in which they stand there."""
    return tuple(dict.fromkeys(_HANDLE.findall(text))) if _BEGINNING in text else ()


def resolve_secret_refs(arguments: str, value_of: Callable[[str], str]) -> str:
    """JSON text with the values in the place of the handles. Keys are left as they are."""
    return msgspec.json.encode(_resolve_value(msgspec.json.decode(arguments), value_of)).decode()


def _resolve_value(value: Any, value_of: Callable[[str], str]) -> Any:
    match value:
        case str():
            return _HANDLE.sub(lambda match: value_of(match[1]), value)
        case list():
            return [_resolve_value(item, value_of) for item in cast("list[Any]", value)]
        case dict():
            return {key: _resolve_value(item, value_of) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value
