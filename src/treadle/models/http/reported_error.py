"""Finds an error in an event of a stream. What the error means is read elsewhere, and only if there is one."""

from typing import Any, cast

import msgspec

_GOOD_CODES = frozenset({"0", "200", "ok", "success", "succeeded"})


def find_reported_error(payload: bytes) -> Any:
    """Return the error in an event that contains no part of a reply, or None.

    Besides the field `error` there are `{"object": "error", ...}` (vLLM, SGLang), a `base_resp` with a code
    (MiniMax), a bare `code` with a `message` (DashScope and others), a bare `detail` (FastAPI), and
    `"success": false`."""
    if not (
        b"error" in payload
        or b"base_resp" in payload
        or b"message" in payload
        or b"msg" in payload
        or b'"detail"' in payload  # the usage of a reply has `…_details`
    ):
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
    if event.get("choices"):
        return None
    is_error = "error" in (event.get("object"), event.get("type")) or event.get("success") is False
    is_error = is_error or bool(event.get("errors") or (event.get("detail") and not event.get("type")))
    says_why = isinstance(event.get("message") or event.get("error_msg") or event.get("msg"), str)
    says_why = says_why and "." not in str(event.get("type"))  # `response.warning` is an event of its own
    code = event.get("code") or event.get("error_code") or event.get("status_code")
    return event if is_error or (says_why and code and str(code).lower() not in _GOOD_CODES) else None
