"""Lone surrogates: JSON can escape them, models do produce them, and UTF-8 has no room for them.

They become U+FFFD, the character that stands for what cannot be shown."""

import json
from typing import Any, NoReturn


def replace_surrogates(text: str) -> str:
    """The same text as proper Unicode: pairs are joined, what is left alone is replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def decode_json(text: str | bytes) -> Any:
    """JSON that may escape lone surrogates, as plain values without any. Raises ValueError if it is not JSON."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        return json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def encode_json(value: Any) -> bytes:
    """Plain values that may hold lone surrogates, as JSON that any server accepts."""
    return replace_surrogates(
        json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_decode_raw)
    ).encode()


def _decode_raw(raw: Any) -> Any:
    """What stands in a value as JSON already."""
    return json.loads(bytes(raw))


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
