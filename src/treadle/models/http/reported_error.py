"""Finds an error in an event of a stream. What the error means is read elsewhere, and only if there is one."""

from typing import Any, cast

import msgspec


def find_reported_error(payload: bytes) -> Any:
    """Return the error in an event that contains no part of a reply, or None.

    Besides the field `error` there are `{"object": "error", ...}` (vLLM, SGLang), a `base_resp` with a code
    (MiniMax), and a bare `code` with a `message` (DashScope and others)."""
    if b"error" not in payload and b"base_resp" not in payload and b"message" not in payload:
        return None
    try:
        event = msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if event.get("error"):
        return event["error"]
    status = event.get("base_resp")
    if isinstance(status, dict) and cast("dict[str, Any]", status).get("status_code") not in (None, 0, "0"):
        return event
    is_error = "error" in (event.get("object"), event.get("type"))
    says_why = isinstance(event.get("message") or event.get("error_msg") or event.get("msg"), str)
    has_code = event.get("code") or event.get("error_code") or event.get("status_code")
    return event if is_error or (says_why and has_code and not event.get("choices")) else None
