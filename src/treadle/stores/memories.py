"""What every store makes of memories: by what a text is known again, which of many are worth a look by their words,
and codes of vectors that choose a few hundred of them all before the vectors themselves are compared."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from treadle.domain.ids import AgentId
from treadle.domain.memories import MemoryScope
from treadle.domain.text import normalised
from treadle.domain.users import LOCAL_USER, UserId
from treadle.ports.memory import Vector

MAX_CODE_CANDIDATES = 512
"""So many are chosen by their codes: enough that the nearest five of all are among them."""
MAX_MATCHES_PER_TERM = 250
"""So many memories that have a word are looked at, the newest: a word that more of them have says little."""
LATEST_NOTES = 3
_THRESHOLDS = (-0.7, 0.0, 0.7)
"""Where the code cuts the numbers, in shares of what they measure on average. The bits in which two codes differ
grow with the distance; by the sign alone, a question that is near nothing misses more of its nearest."""


# ── Texts ──


def compute_digest(text: str) -> bytes:
    """By which a text is known again, whatever its case, white space and full stop."""
    return hashlib.blake2b(replace_surrogates(normalised(text)).encode(), digest_size=16).digest()


def replace_surrogates(text: str) -> str:
    """The text without halves of characters, which cannot be written in UTF-8."""
    return text.encode("utf-8", "replace").decode()


ALL_OWNERS: UserId = "*"
"""Stands for all owners where vectors and words of all of them are kept together. No user is called so."""


@lru_cache(maxsize=4096)
def compute_mark(agent_id: AgentId, owner: UserId) -> str:
    """What the words of one owner's memories begin with, so that those of others are not even looked at. Two may
    have the same mark; a query asks for the agent and the owner too."""
    if owner == LOCAL_USER:  # as it was before there were other owners
        return hashlib.blake2b(agent_id.encode(), digest_size=2).hexdigest()
    return hashlib.blake2b(f"{agent_id}/{owner}".encode(), digest_size=4).hexdigest()


def list_stored_marks(agent_id: AgentId, owner: UserId) -> tuple[str, ...]:
    """With which marks the words of a memory are kept: its owner's, and one for all owners but the local user."""
    own = compute_mark(agent_id, owner)
    return (own,) if owner == LOCAL_USER else (own, compute_mark(agent_id, ALL_OWNERS))


def list_query_marks(scope: MemoryScope) -> tuple[str, ...]:
    """With which marks words are looked for."""
    if scope.owner is not None:
        return (compute_mark(scope.agent_id, scope.owner),)
    return compute_mark(scope.agent_id, LOCAL_USER), compute_mark(scope.agent_id, ALL_OWNERS)


def rank_by_words(found: Iterable[Sequence[int]], left_out: Iterable[int], limit: int) -> list[int]:
    """The numbers of the best, of those that have each term: rare terms count for more."""
    worth: dict[int, float] = {}
    for numbers in found:
        rarity = math.log1p(MAX_MATCHES_PER_TERM / len(numbers)) if numbers else 0.0
        for number in numbers:
            worth[number] = worth.get(number, 0.0) + rarity
    for number in left_out:
        worth.pop(number, None)
    return [number for _, number in sorted(zip(worth.values(), worth, strict=True), reverse=True)[:limit]]


# ── Vectors ──


def pack_vector(vector: Vector) -> tuple[bytes, bytes]:
    """The code of a vector, of three bits for each number, and the vector with one byte for each; only its angle
    counts in either."""
    largest = max(map(abs, vector), default=0.0) or 1.0
    in_bytes = bytes(round(number / largest * 127) & 0xFF for number in vector)
    average = math.hypot(*vector) / math.sqrt(len(vector) or 1) / largest * 127
    bits = b"".join(in_bytes.translate(_threshold_table(round(step * average))) for step in _THRESHOLDS)
    width = (len(bits) + 63) // 64 * 64
    return int(bits.ljust(width, b"0"), 2).to_bytes(width // 8, "big"), in_bytes


@cache
def _threshold_table(threshold: int) -> bytes:
    """What makes of each byte with a sign a 1 where it is above a threshold."""
    return bytes(b"01"[(byte - 256 if byte > 127 else byte) > threshold] for byte in range(256))
