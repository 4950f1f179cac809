"""What both stores share about memories: digests that identify texts, ranking by words, and vector codes that
select a few hundred candidates before full vectors are compared."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from treadle.domain.ids import AgentId
from treadle.domain.memories import MemoryScope
from treadle.domain.text import normalise_text
from treadle.domain.users import LOCAL_USER, UserId
from treadle.ports.memory import Vector

MAX_CODE_CANDIDATES = 512
"""Candidates selected by code. Enough that the five nearest memories are among them."""
MAX_MATCHES_PER_TERM = 250
"""Memories read per word, newest first. A word that occurs in more memories carries little information."""
MAX_SCANNED_MATCHES = 20 * MAX_MATCHES_PER_TERM
"""Memories read per word, newest first, in search of those of one workspace."""
LATEST_NOTES = 3
_THRESHOLDS = (-0.7, 0.0, 0.7)
"""Thresholds of the three code bits, as fractions of the root mean square of the numbers. The number of differing
bits grows with the distance between two vectors. A single sign bit misses more of the nearest memories when a query
is close to nothing."""


# ── Texts ──


def compute_digest(text: str) -> bytes:
    """Return a digest that identifies a text regardless of case, white space and final full stop."""
    return hashlib.blake2b(replace_surrogates(normalise_text(text)).encode(), digest_size=16).digest()


def replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "replace").decode()


ALL_OWNERS: UserId = "*"
"""Owner name under which vectors and words of all owners are stored together. No user has this name."""


@lru_cache(maxsize=4096)
def compute_mark(agent_id: AgentId, owner: UserId) -> str:
    """Return the prefix of the indexed words of one owner's memories, so that a search skips all others. Two owners
    may share a mark, so queries also filter by agent and owner."""
    if owner == LOCAL_USER:  # marks of databases older than multiple owners
        return hashlib.blake2b(agent_id.encode(), digest_size=2).hexdigest()
    return hashlib.blake2b(f"{agent_id}/{owner}".encode(), digest_size=4).hexdigest()


def list_stored_marks(agent_id: AgentId, owner: UserId) -> tuple[str, ...]:
    """Return the marks under which the words of a memory are indexed: its owner's mark, and one for all owners
    unless the owner is the local user."""
    own = compute_mark(agent_id, owner)
    return (own,) if owner == LOCAL_USER else (own, compute_mark(agent_id, ALL_OWNERS))


def list_query_marks(scope: MemoryScope) -> tuple[str, ...]:
    """Return the marks to search for in this scope."""
    if scope.owner is not None:
        return (compute_mark(scope.agent_id, scope.owner),)
    return compute_mark(scope.agent_id, LOCAL_USER), compute_mark(scope.agent_id, ALL_OWNERS)


def rank_by_words(matches_by_term: Iterable[Sequence[int]], excluded: Iterable[int], limit: int) -> list[int]:
    """Return the numbers of the best matches, given the matches of each term. Rare terms weigh more."""
    scores: dict[int, float] = {}
    for numbers in matches_by_term:
        weight = math.log1p(MAX_MATCHES_PER_TERM / len(numbers)) if numbers else 0.0
        for number in numbers:
            scores[number] = scores.get(number, 0.0) + weight
    for number in excluded:
        scores.pop(number, None)
    return [number for _, number in sorted(zip(scores.values(), scores, strict=True), reverse=True)[:limit]]


# ── Vectors ──


def pack_vector(vector: Vector) -> tuple[bytes, bytes]:
    """Return the code of a vector (three bits per number) and the vector with one byte per number. Both preserve
    only the angle."""
    largest = max(map(abs, vector), default=0.0) or 1.0
    in_bytes = bytes(round(number / largest * 127) & 0xFF for number in vector)
    average = math.hypot(*vector) / math.sqrt(len(vector) or 1) / largest * 127
    bits = b"".join(in_bytes.translate(_threshold_table(round(threshold * average))) for threshold in _THRESHOLDS)
    width = (len(bits) + 63) // 64 * 64
    return int(bits.ljust(width, b"0"), 2).to_bytes(width // 8, "big"), in_bytes


@cache
def _threshold_table(threshold: int) -> bytes:
    """Return a translation table that maps each signed byte to 1 if it is above the threshold, else 0."""
    return bytes(b"01"[(byte - 256 if byte > 127 else byte) > threshold] for byte in range(256))
