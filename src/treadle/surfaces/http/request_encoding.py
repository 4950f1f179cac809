"""Checks that paths, queries and headers are valid UTF-8."""

from typing import cast
from urllib.parse import unquote_to_bytes

from litestar.types import Scope

from treadle.operations.refusal import Refusal


def refuse_invalid_text(scope: Scope) -> None:
    """Raise Refusal if a path, a query or a header is not UTF-8 or contains a NUL."""
    raw_path, query = scope["raw_path"], scope["query_string"]
    if b"%" in raw_path or not raw_path.isascii():
        _check_text(unquote_to_bytes(raw_path), "path")
    if b"%" in query or not query.isascii():
        _check_text(unquote_to_bytes(query), "query")
    for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]):
        if not value.isascii():
            _check_text(value, f"header {name.decode('latin-1')}")


def _check_text(text: bytes, where: str) -> None:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(400, "InvalidText", f"The {where} is not valid UTF-8. Encode it as UTF-8.") from None
    if b"\0" in text:
        raise Refusal(400, "InvalidText", f"The {where} contains a NUL character. Leave it out.")
