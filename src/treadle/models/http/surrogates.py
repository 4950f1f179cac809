"""Handles lone surrogates: JSON can escape them and models produce them, but UTF-8 cannot encode them.

They are replaced with U+FFFD, the replacement character."""

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn


def replace_surrogates(text: str) -> str:
    """Return the text as valid Unicode: pairs are joined, lone surrogates replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def decode_json(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Decode JSON that may escape lone surrogates. Raise ValueError if it is not JSON, which includes NaN and
    Infinity unless `parse_constant` accepts them."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    try:
        value = json.loads(text, parse_constant=parse_constant or _refuse_constant, parse_float=_parse_float)
        return json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def encode_json(value: Any) -> bytes:
    """Encode values that may contain lone surrogates as JSON that any server accepts."""
    return replace_surrogates(
        json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_decode_raw)
    ).encode()


def _decode_raw(raw: Any) -> Any:
    """Decode a value that is already JSON."""
    return json.loads(bytes(raw))


def _parse_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number in it is out of range")
    return number


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
