"""How what was found by vectors and what was found by words become one list. Pure: the time is handed in.

Vectors come first: they know that `flat` and `apartment` are the same. Words of which every letter counts
(identifiers, quotations, names) lift the memories that have them, since vectors hardly tell `E4711` from `E4712`.
Ranks are not added up: a place in a list says nothing of how well its head fits."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from treadle.domain.events import RecalledBy
from treadle.domain.identity import Instant
from treadle.domain.memories import Memory, MemoryId
from treadle.memory.queries import Asked, folded, stem
from treadle.ports.memory import Found
from treadle.ports.memory_index import Near

HALF_LIFE = 90 * 86_400.0
"""Seconds after which half of what can fade of a memory has faded."""
NEVER_BELOW = 0.85
"""What is left of the score of the oldest memory: it fits no worse for its age, it is only less likely meant."""
KEYS_LIFT = 0.6
WORDS_LIFT = 0.05
BY_VECTORS = 0.19
"""What a memory must score to be recalled where vectors were compared. Tuned with the local embedder, on the `dev`
half of bench/recall_questions.yaml like all numbers here; others put unrelated texts nearer, and recall more."""
BY_WORDS = 0.25
"""The same, where only words were."""
OF_THE_BEST = 0.4
"""The share of the best score that a memory must have to be recalled beside it."""
HALF = 0.5
"""The share of the words that is enough by itself, however unlike the vectors are."""
UNSEEN = 0.15
"""The likeness of a memory that is not among the nearest."""


class Fit(Struct, frozen=True):
    """How well a memory fits, before its age is looked at."""

    memory: Memory
    relevance: float
    by: RecalledBy
    enough: bool


def rank(
    asked: Asked,
    near: Sequence[Near] | None,
    worded: Sequence[Memory],
    now: Instant,
    limit: int,
    without: Collection[MemoryId] = (),
) -> tuple[Found, ...]:
    """The best first; nothing that does not fit. `near` is None where vectors could not be compared."""
    likeness = {hit.memory.memory_id: hit.likeness for hit in near or ()}
    by_words = {memory.memory_id for memory in worded}
    candidates = {memory.memory_id: memory for memory in (*(hit.memory for hit in near or ()), *worded)}
    fits: list[tuple[float, Fit]] = []
    for memory_id, memory in candidates.items():
        fit = _fit(asked, memory, likeness.get(memory_id), near is not None, memory_id in by_words)
        if fit.enough and memory_id not in without:
            fits.append((fit.relevance * fade(memory, now), fit))
    fits.sort(key=lambda item: item[0], reverse=True)
    least = OF_THE_BEST * fits[0][0] if fits else 0.0
    return tuple(
        Found(fit.memory, max(0.0, min(1.0, score)), fit.by) for score, fit in fits[:limit] if score >= least
    )


def fade(memory: Memory, now: Instant) -> float:
    """What is left of a score after the time since the memory was made or last of use; from 1 down to a floor."""
    if memory.pinned:
        return 1.0
    age = max(0.0, now - max(memory.created_at, memory.used_at or memory.created_at))
    return NEVER_BELOW + (1.0 - NEVER_BELOW) * 0.5 ** (age / HALF_LIFE)


def _fit(asked: Asked, memory: Memory, likeness: float | None, by_vectors: bool, by_words: bool) -> Fit:
    tokens = folded(memory.text)
    keys, words = _keys_share(asked, tokens), _words_share(asked, tokens)
    if by_vectors:
        certain = (UNSEEN if likeness is None else likeness) + KEYS_LIFT * keys
        by: RecalledBy = "text" if likeness is None else "both" if by_words and keys else "vectors"
        return Fit(memory, certain + WORDS_LIFT * words, by, certain >= BY_VECTORS or words >= HALF)
    relevance = 0.5 * words + 0.5 * keys if asked.keys else words
    return Fit(memory, relevance, "text", relevance >= BY_WORDS)


def _keys_share(asked: Asked, tokens: tuple[str, ...]) -> float:
    """How much of what must be there to the letter is there: from 0 to 1."""
    if not asked.keys:
        return 0.0
    line = f" {' '.join(tokens)} "
    there = sum(key.weight for key in asked.keys if f" {' '.join(key.tokens)} " in line)
    return there / max(1.0, sum(key.weight for key in asked.keys))


def _words_share(asked: Asked, tokens: tuple[str, ...]) -> float:
    """How many of the words are there, in any of their forms, the long ones counting for more: from 0 to 1."""
    if not asked.words:
        return 0.0
    stems = {stem(token) for token in tokens}
    weights = {word: min(len(word), 10) for word in asked.words}
    return sum(weight for word, weight in weights.items() if stem(word) in stems) / sum(weights.values())
