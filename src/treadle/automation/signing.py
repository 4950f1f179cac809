"""Signatures as Standard Webhooks defines them: over the id, the time and the body of a message."""

import base64
import hmac
import secrets
from datetime import UTC, datetime

from standardwebhooks import Webhook

from treadle.domain.ids import Instant

PREFIX = "whsec_"
SECRET_BYTES = 32
MIN_BYTES = 24
"""The shortest secret of Standard Webhooks."""
TOLERANCE_SECONDS = 300
MAX_ID_CHARS = 256
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


def generate_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def is_standard_secret(text: str) -> bool:
    """Return whether a text is a secret as Standard Webhooks defines it."""
    try:
        return (
            text.startswith(PREFIX) and len(base64.b64decode(text.removeprefix(PREFIX), validate=True)) >= MIN_BYTES
        )
    except ValueError:
        return False


def build_signature_headers(secret: str, message_id: str, at: Instant, body: bytes) -> dict[str, str]:
    """Return the signature headers of a message."""
    moment = datetime.fromtimestamp(int(at), UTC)
    signature = Webhook(secret).sign(message_id, moment, body.decode())
    return {ID: message_id, TIMESTAMP: str(int(at)), SIGNATURE: signature}


def is_genuine(secret: str, now: Instant, message_id: str, timestamp: str, signature: str, body: bytes) -> bool:
    """Return whether the message was signed with the secret recently. Takes the same time whatever is wrong."""
    at = int(timestamp) if timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 12 else 0
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text, at = "", 0
    has_valid_id = 0 < len(message_id) <= MAX_ID_CHARS and message_id.isprintable()
    expected = Webhook(secret).sign(message_id, datetime.fromtimestamp(at, UTC), text).encode()
    matches = [hmac.compare_digest(expected, given.encode()) for given in signature.split(" ")]
    return any(matches) and has_valid_id and abs(now - at) <= TOLERANCE_SECONDS
