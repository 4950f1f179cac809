"""References to secrets. `{{vault:NAME}}` in an argument of a tool is replaced with the value when the tool
runs."""

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

_HANDLE = re.compile(r"\{\{vault:([A-Za-z_][A-Za-z0-9_]{0,63})\}\}")
_BEGINNING = "{{vault:"


def make_secret_ref(name: str) -> str:
    return f"{_BEGINNING}{name}}}}}"


def find_secret_names(text: str) -> tuple[str, ...]:
    """Return the names of the secrets that a text refers to, each once, in order."""
    return tuple(dict.fromkeys(_HANDLE.findall(text))) if _BEGINNING in text else ()


def resolve_secret_refs(arguments: str, get_value: Callable[[str], str]) -> str:
    """Return JSON text with all references replaced by values. Keys stay as they are."""
    return msgspec.json.encode(_resolve_value(msgspec.json.decode(arguments), get_value)).decode()


def _resolve_value(value: Any, get_value: Callable[[str], str]) -> Any:
    match value:
        case str():
            return _HANDLE.sub(lambda match: get_value(match[1]), value)
        case list():
            return [_resolve_value(item, get_value) for item in cast("list[Any]", value)]
        case dict():
            return {key: _resolve_value(item, get_value) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value
