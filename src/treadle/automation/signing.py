"""Signatures, as Standard Webhooks has them: over the id, the time and the body of a message."""

import base64
import hmac
import secrets
from datetime import UTC, datetime

from standardwebhooks import Webhook

from treadle.domain.ids import Instant

PREFIX = "whsec_"
SECRET_BYTES = 32
TOLERANCE_SECONDS = 300
LONGEST_ID = 256
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed(secret: str, message_id: str, at: Instant, body: bytes) -> dict[str, str]:
    """The headers that go with a message."""
    moment = datetime.fromtimestamp(int(at), UTC)
    signature = Webhook(secret).sign(message_id, moment, body.decode())
    return {ID: message_id, TIMESTAMP: str(int(at)), SIGNATURE: signature}


def is_genuine(secret: str, now: Instant, message_id: str, timestamp: str, signature: str, body: bytes) -> bool:
    """Whether somebody who knows the secret has signed this, lately. It takes as long whatever is wrong with it."""
    at = int(timestamp) if timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 12 else 0
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text, at = "", 0
    named = 0 < len(message_id) <= LONGEST_ID and message_id.isprintable()
    expected = Webhook(secret).sign(message_id, datetime.fromtimestamp(at, UTC), text).encode()
    matches = [hmac.compare_digest(expected, given.encode()) for given in signature.split(" ")]
    return any(matches) and named and abs(now - at) <= TOLERANCE_SECONDS
