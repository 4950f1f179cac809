"""Arguments and results of tools as text."""

from typing import Any, cast

import msgspec

from treadle.tools import pydantic


def render_result(tool: str, result: Any) -> str:
    """Return a result as text: JSON, unless it is text. Raise TypeError for what is neither."""
    if isinstance(result, str):
        return result
    if result is None:
        return ""
    try:
        return msgspec.json.encode(result, enc_hook=pydantic.encode).decode()
    except TypeError as error:
        raise TypeError(f"tool `{tool}` returned what is not text and not JSON: {error}") from error


def collect_texts(value: Any) -> list[str]:
    """Return every text in plain values, at any depth."""
    match value:
        case str():
            return [value]
        case list() | tuple():
            return [text for item in cast("list[Any]", value) for text in collect_texts(item)]
        case dict():
            entries = cast("dict[Any, Any]", value)
            return [text for entry in entries.items() for item in entry for text in collect_texts(item)]
        case _:
            return []
