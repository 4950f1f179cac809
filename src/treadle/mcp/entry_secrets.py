"""Secrets in the entry of an MCP server: in variables, headers, arguments and the address."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|AUTH|CREDENTIAL|COOKIE", re.IGNORECASE)
_FLAG = re.compile(
    r"-{1,2}(?:[\w-]*[_-])?(?:token|api-?key|key|secret|password|passwd|pat|credentials?)", re.IGNORECASE
)
_TOKEN = re.compile(
    r"(?:sk-|sk_live_|sk_test_|rk_live_|gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|AIza|AKIA|hf_|npm_|pypi-|lin_api_|ntn_)"
    r"[\w-]{12,}"
)
_PASSWORD = re.compile(r"(?<=://)[^/\s:@]*:([^/\s@]+)(?=@)")
_QUERY = re.compile(r"[?&][\w-]*(?:key|token|secret|passw\w*|sig(?:nature)?|auth\w*)=([^&#\s]+)", re.IGNORECASE)
_HEADER = re.compile(
    r"(?:authorization|x-api-key|[\w-]*token):\s*(?:(?:bearer|basic|token)\s+)?(\S+)", re.IGNORECASE
)
_SCHEME = re.compile(r"(?:bearer|basic|token) +(.+)", re.IGNORECASE | re.DOTALL)
_REFERENCE = "{{vault:"

Replace = Callable[[str, str], str]
"""Takes where a secret is, for its name, and the secret. Returns what the entry gets instead."""


def is_secret_name(name: str) -> bool:
    """Return whether the value of a variable or header with this name is probably a secret."""
    return _NAME.search(name) is not None


def replace_secrets(entry: Mapping[str, Any], replace: Replace) -> dict[str, Any]:
    """Return the values of an entry with each probable secret replaced."""
    values = dict(entry)
    for key in ("env", "headers"):
        if isinstance(values.get(key), dict):
            pairs = cast("dict[str, Any]", values[key]).items()
            values[key] = {name: _replace_value(name, str(text), replace) for name, text in pairs}
    if isinstance(values.get("args"), list | tuple):
        values["args"] = _replace_arguments([str(each) for each in values["args"]], replace)
    if isinstance(values.get("url"), str):
        values["url"] = _replace_parts("url", values["url"], replace)
    return values


def _replace_value(name: str, text: str, replace: Replace) -> str:
    if not is_secret_name(name):
        return _replace_parts(name, text, replace)
    if not text or _REFERENCE in text:
        return text
    scheme = _SCHEME.fullmatch(text)
    start = 0 if scheme is None else scheme.start(1)
    return text[:start] + replace(name, text[start:])


def _replace_arguments(arguments: Sequence[str], replace: Replace) -> list[str]:
    found: list[str] = []
    for number, text in enumerate(arguments, start=1):
        flag, separator, value = text.partition("=")
        place = f"arg_{number}"
        if number > 1 and _FLAG.fullmatch(arguments[number - 2]) and not text.startswith("-"):
            found.append(text if _REFERENCE in text else replace(place, text))
        elif separator and value and _FLAG.fullmatch(flag):
            found.append(text if _REFERENCE in value else f"{flag}={replace(place, value)}")
        else:
            found.append(_replace_parts(place, text, replace))
    return found


def _replace_parts(place: str, text: str, replace: Replace) -> str:
    """Return a text with the parts replaced that are secrets wherever they stand."""
    if _REFERENCE in text:
        return text
    for pattern in (_PASSWORD, _QUERY, _HEADER, _TOKEN):
        if (part := pattern.search(text)) is not None:
            start, end = part.span(1) if pattern.groups else part.span()
            return text[:start] + replace(place, text[start:end]) + text[end:]
    return text
