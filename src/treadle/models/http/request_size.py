"""Estimates how large a request is, for comparison with the numbers in an error message."""

import re
from typing import NamedTuple

from treadle.domain.models import UNKNOWN_WINDOW
from treadle.models.http.wire import estimate_tokens

MIN_COMPARED_TOKENS = 1000
"""The size of a smaller request is too small to be conclusive."""
_MAX_TOKENS_FIELD = re.compile(rb'"max_(?:completion_|output_)?tokens":(\d{1,12})')
_EDGE_BYTES = 4096
_ESTIMATE_FACTOR = 2.0
"""How far an estimate from bytes may be off."""


class RequestSize(NamedTuple):
    """The size of a request that was sent."""

    sent_bytes: int = 0
    longest_reply: int | None = None
    """The reply limit in the request."""
    window: int | None = None
    """The context window of the model, if known."""

    @property
    def tokens(self) -> int:
        """Return an estimate of the input tokens."""
        return estimate_tokens(self.sent_bytes)

    def is_near(self, number: float) -> bool:
        """Return whether a number may be the size of this request, in tokens or in bytes."""
        if self.tokens < MIN_COMPARED_TOKENS:
            return False
        in_tokens = self.tokens / _ESTIMATE_FACTOR <= number <= self.tokens * _ESTIMATE_FACTOR
        return in_tokens or abs(number - self.sent_bytes) <= 0.05 * self.sent_bytes


def measure_request(body: bytes, window: int) -> RequestSize:
    """Return the size of an encoded request to a model with this context window."""
    found = _MAX_TOKENS_FIELD.search(body[:_EDGE_BYTES]) or _MAX_TOKENS_FIELD.search(body[-_EDGE_BYTES:])
    known = None if window == UNKNOWN_WINDOW else window
    return RequestSize(len(body), int(found[1]) if found else None, known)
