"""How the senders of inbound webhooks sign: Standard Webhooks, GitHub, GitLab, Stripe and Slack.

Each scheme checks a request and names its message, so that a message that is sent again starts nothing."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl

import msgspec

from treadle.automation import signing
from treadle.automation.signing import MAX_ID_CHARS, TOLERANCE_SECONDS, is_genuine
from treadle.domain.ids import Instant
from treadle.domain.webhooks import SignatureScheme
from treadle.operations.automation import SignedMessage

FORM = "application/x-www-form-urlencoded"
MAX_SIGNATURES = 20
"""Signatures of one request that are compared; a secret that is being replaced needs two."""

Verify = Callable[[str, Instant, SignedMessage], str | None]
"""Returns the id of a message that was signed with a secret, and None for any other request."""


def verify_message(scheme: SignatureScheme, secret: str, now: Instant, message: SignedMessage) -> str | None:
    """Return the id of a genuine message; None if its signature is missing, wrong or too old. Takes the same time
    whatever is wrong with the signature."""
    return _SCHEMES[scheme](secret, now, message)


def decode_payload(message: SignedMessage) -> Any:
    """Return the decoded body: JSON, the fields of a form, or text. A form with JSON in its field `payload`, as
    GitHub and Slack send it, is that JSON."""
    text = message.body.decode("utf-8", "replace")
    if message.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
        fields = dict(parse_qsl(text, keep_blank_values=True))
        found = _decode_json(fields.get("payload", "").encode())
        return fields if found is None else found
    found = _decode_json(message.body)
    return text if found is None else found


def find_challenge(scheme: SignatureScheme, message: SignedMessage) -> str | None:
    """Return the text that a sender expects back when its webhook is set up, and None for a message to an agent."""
    if scheme == "github" and message.headers.get("x-github-event", "").lower() == "ping":
        return "pong"
    payload = _decode_json(message.body) if scheme == "slack" else None
    if _read(payload, "type") != "url_verification":
        return None
    return _read(payload, "challenge")


# ── Schemes ──


def _verify_standard(secret: str, now: Instant, message: SignedMessage) -> str | None:
    message_id = message.headers.get(signing.ID, "")
    timestamp, signature = message.headers.get(signing.TIMESTAMP, ""), message.headers.get(signing.SIGNATURE, "")
    return message_id if is_genuine(secret, now, message_id, timestamp, signature, message.body) else None


def _verify_github(secret: str, now: Instant, message: SignedMessage) -> str | None:
    """Check `X-Hub-Signature-256`. GitHub signs neither a time nor the id of a delivery."""
    del now
    given = message.headers.get("x-hub-signature-256", "")
    if not _is_equal(f"sha256={_sign(secret, message.body)}", given):
        return None
    return _name_message(message, message.headers.get("x-github-delivery", ""))


def _verify_gitlab(secret: str, now: Instant, message: SignedMessage) -> str | None:
    """Check `X-Gitlab-Token`, which is the secret itself."""
    del now
    if not _is_equal(secret, message.headers.get("x-gitlab-token", "")):
        return None
    named = message.headers.get("idempotency-key") or message.headers.get("x-gitlab-event-uuid", "")
    return _name_message(message, named)


def _verify_stripe(secret: str, now: Instant, message: SignedMessage) -> str | None:
    """Check `Stripe-Signature`: a time, and one signature for each secret that is valid at the sender."""
    parts = [part.strip().partition("=") for part in message.headers.get("stripe-signature", "").split(",")]
    times = [value for name, _, value in parts if name == "t"]
    given = [value for name, _, value in parts if name == "v1"][:MAX_SIGNATURES]
    at = times[0] if len(times) == 1 else ""
    expected = _sign(secret, at.encode("utf-8", "replace") + b"." + message.body)
    matches = [_is_equal(expected, each) for each in given]
    if not any(matches) or not _is_recent(at, now):
        return None
    return _name_message(message, _read(_decode_json(message.body), "id") or "")


def _verify_slack(secret: str, now: Instant, message: SignedMessage) -> str | None:
    """Check `X-Slack-Signature` and its time."""
    at = message.headers.get("x-slack-request-timestamp", "")
    expected = f"v0={_sign(secret, b'v0:' + at.encode('utf-8', 'replace') + b':' + message.body)}"
    if not _is_equal(expected, message.headers.get("x-slack-signature", "")) or not _is_recent(at, now):
        return None
    return _name_message(message, _read(_decode_json(message.body), "event_id") or "")


_SCHEMES: Mapping[SignatureScheme, Verify] = {
    "standard": _verify_standard,
    "github": _verify_github,
    "gitlab": _verify_gitlab,
    "stripe": _verify_stripe,
    "slack": _verify_slack,
}


# ── Parts of schemes ──


def _sign(secret: str, content: bytes) -> str:
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def _is_equal(expected: str, given: str) -> bool:
    """Compare in a time that does not depend on what differs."""
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def _is_recent(timestamp: str, now: Instant) -> bool:
    is_number = timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 12
    return is_number and abs(now - int(timestamp)) <= TOLERANCE_SECONDS


def _name_message(message: SignedMessage, given: str) -> str:
    """Return the id that the sender gave a message, or else one that its content determines."""
    if 0 < len(given) <= MAX_ID_CHARS and given.isprintable():
        return given
    return f"sha256-{hashlib.sha256(message.body).hexdigest()}"


def _decode_json(content: bytes) -> Any:
    """Return the decoded JSON; None if it is not JSON."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _read(payload: Any, name: str) -> str | None:
    """Return a text of a JSON object, if it has it."""
    found = cast("dict[str, Any]", payload).get(name) if isinstance(payload, dict) else None
    return found if isinstance(found, str) else None
