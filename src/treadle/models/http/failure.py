"""Builds the description of a failed model call: its kind, whether and when to retry, and what to do next."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from html import unescape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import aiohttp
import msgspec

from treadle.models.http.advice import USUALLY_PASSES
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import ProviderKey
from treadle.models.http.request_size import RequestSize
from treadle.ports.model import Failed

if TYPE_CHECKING:
    from treadle.models.http.error_rule import Decision

MAX_QUOTED_CHARACTERS = 500
"""How much of a provider's message is quoted."""


class RequestInfo(NamedTuple):
    """The endpoint, model, key and size of a request."""

    endpoint: Endpoint
    model: str
    key: ProviderKey | None
    size: RequestSize = RequestSize()


def from_response(info: RequestInfo, status: int, headers: Mapping[str, str], body: bytes) -> Failed:
    """Return the failure for a response with this status."""
    text = body.decode("utf-8", "replace")
    said = f"answered {status}"
    if 300 <= status < 400:
        said += f" and points to {_one_line(info.endpoint, headers.get('Location', 'nowhere'))}"
    from treadle.models.http.error_rules import classify_error  # compiles many patterns, which most runs never need

    decision = classify_error(status, text, info.size, headers)
    failed = _build_failure(info, status, said, text, decision)
    should_retry = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower(), failed.retryable)
    if failed.kind == "billing":
        should_retry = False  # even if a header says otherwise: a spending limit does not go away
    return msgspec.structs.replace(failed, retryable=should_retry, retry_after=decision.report.wait)


def from_stream_error(info: RequestInfo, error: Any) -> Failed:
    """Return the failure for an error inside a stream that started with a good status."""
    text = msgspec.json.encode({"error": error}).decode()
    from treadle.models.http.error_rules import classify_error

    decision = classify_error(None, text, info.size)
    failed = _build_failure(info, decision.report.status, "broke off its reply with an error", text, decision)
    return msgspec.structs.replace(failed, retry_after=decision.report.wait)


def _build_failure(info: RequestInfo, status: int | None, said: str, body: str, decision: "Decision") -> Failed:
    rule, endpoint, key = decision.rule, info.endpoint, info.key
    if rule.kind == "auth" and key is None:
        next_step = f"No key was sent: set {endpoint.key_setting}."
    else:
        setting = endpoint.setting_of(key)
        next_step = rule.next_step.format(key_setting=setting, model=info.model, provider=endpoint.provider)
    words = quote_provider(endpoint, body)
    what = f"{endpoint.provider} {said} ({endpoint.public_url})"
    return Failed(
        rule.kind,
        f"{what}: {words}. {next_step}",
        rule.retry,
        status,
        compact=rule.compact,
        repair=rule.repair,
        next_key=rule.next_key,
        next_model=rule.next_model,
        once=rule.once,
        longest_reply=decision.longest_reply,
        unclear=decision.is_unclear,
        filtered=rule.filtered,
    )


def from_error(endpoint: Endpoint, error: Exception) -> Failed:
    """Return the failure for a network error before any response."""
    what, next_step, retryable = explain_error(endpoint, error)
    return _build_unreachable(endpoint, what, next_step or USUALLY_PASSES, retryable=retryable)


def explain_error(endpoint: Endpoint, error: Exception) -> tuple[str, str | None, bool]:
    """Return the cause of a network error without secrets, what to do about it, and whether a retry may help. What
    to do is None for an error that usually passes."""
    next_step: str | None
    retryable = True
    match error:
        case aiohttp.ClientConnectorDNSError():
            what, next_step = "its name cannot be resolved", "Check base_url and the network."
        case aiohttp.ClientConnectorCertificateError():
            what = f"its certificate is not trusted ({error.certificate_error})"
            next_step, retryable = "Check base_url.", False
        case aiohttp.ClientConnectorSSLError():
            what = f"no secure connection could be made ({error})"
            next_step = "Check that base_url is right and that it speaks https."
        case aiohttp.ClientConnectorError():
            what = f"the connection failed ({describe_os_error(error.os_error)})"
            next_step = "Check that it is running and that base_url is right."
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            what, next_step = "the connection was dropped before an answer came", None
        case ValueError():  # aiohttp also raises this for an invalid URL
            what = f"no request can be made ({error})"
            next_step, retryable = f"Check the base_url and the headers of provider {endpoint.provider}.", False
        case aiohttp.ClientResponseError():
            what = f"what answers there does not speak HTTP ({error.message})"
            next_step = "Check base_url, its port, and whether it is http or https."
        case _:
            what, next_step = f"{type(error).__name__}: {error}", None
    return _one_line(endpoint, what), next_step, retryable


def describe_os_error(error: OSError) -> str:
    """Return the system's message for an error. asyncio replaces it with the address."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else (error.strerror or str(error))


def _build_unreachable(endpoint: Endpoint, what: str, next_step: str, *, retryable: bool) -> Failed:
    message = f"{endpoint.provider} cannot be reached at {endpoint.public_url}: {what}. {next_step}"
    return Failed("unreachable", message, retryable, next_model=True)


TimeoutLimit = Literal["first_byte", "between_bytes", "whole_call"]
"""A field of `Timeouts`."""


def from_timeout(endpoint: Endpoint, limit: TimeoutLimit, seconds: float) -> Failed:
    waited = {
        "first_byte": f"sent no byte of a reply within {seconds:g} s",
        "between_bytes": f"fell silent for {seconds:g} s in the middle of its reply",
        "whole_call": f"had not finished its reply after {seconds:g} s",
    }[limit]
    next_step = f"Set timeouts.{limit} of provider {endpoint.provider} to change the limit."
    return Failed(
        "timeout", f"{endpoint.provider} {waited} ({endpoint.public_url}). {next_step}", True, next_model=True
    )


def from_malformed_reply(endpoint: Endpoint, what: str) -> Failed:
    """Return the failure for a reply that is incomplete or violates the wire format."""
    said = _one_line(endpoint, what)
    message = (
        f"{endpoint.provider} sent a reply that cannot be used ({endpoint.public_url}): {said}. {USUALLY_PASSES}"
    )
    return Failed("malformed", message, True, next_model=True)


# ── The provider's message ─────────────────────────────────────────────────────────────────────────

_HTML = re.compile(r"\s*<(?:!doctype|html|head|body)", re.IGNORECASE)
_TITLE = re.compile(r"<(title|h1)[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL)


def quote_provider(endpoint: Endpoint, body: str) -> str:
    """Return the provider's own message: one line, truncated, without secrets."""
    if _HTML.match(body):
        title = _TITLE.search(body)
        return _one_line(endpoint, f"an HTML page titled `{unescape(title[2])}`" if title else "an HTML page")
    try:
        words = _find_message(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        words = None
    return _one_line(endpoint, words or body) or "it gave no reason"


def _find_message(answer: Any) -> str | None:
    """Return the message inside the structures that providers wrap it in."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list):
        return _find_message(cast("list[Any]", answer)[0]) if answer else None
    if isinstance(answer, dict):
        fields = cast("dict[str, Any]", answer)
        if upstream := _find_upstream_message(fields.get("metadata")):
            return upstream
        for name in ("error", "message", "detail", "msg"):
            if found := _find_message(fields.get(name)):
                return found
    return None


def _find_upstream_message(metadata: Any) -> str | None:
    """Return the message of the provider behind a gateway, which OpenRouter keeps in `metadata.raw`."""
    if not isinstance(metadata, dict):
        return None
    fields = cast("dict[str, Any]", metadata)
    raw = fields.get("raw")
    if isinstance(raw, str):
        with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):  # else it is the message itself
            raw = msgspec.json.decode(raw)
    if not (message := _find_message(raw)):
        return None
    provider = fields.get("provider_name")
    return f"{provider}: {message}" if isinstance(provider, str) and provider else message


def _one_line(endpoint: Endpoint, text: str) -> str:
    # Redact before truncating: truncation could leave half of a secret.
    line = "".join(c if c.isprintable() else " " for c in endpoint.redact(text)[: 4 * MAX_QUOTED_CHARACTERS])
    line = " ".join(line.split()).rstrip(".")
    return line if len(line) <= MAX_QUOTED_CHARACTERS else line[: MAX_QUOTED_CHARACTERS - 1] + "…"
