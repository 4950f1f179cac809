"""How what was found by vectors and what was found by words become one list. Pure: the time is handed in.

Vectors come first: they know that `flat` and `apartment` are the same. Words of which every letter counts
(identifiers, quotations, names) lift the memories that have them, since vectors hardly tell `E4711` from `E4712`.
Ranks are not added up: a place in a list says nothing of how well its head fits."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from treadle.domain.events import RecalledBy
from treadle.domain.ids import Instant
from treadle.domain.memories import Memory, MemoryId
from treadle.memory.queries import MemoryQuery, stem
from treadle.ports.memory import FoundMemory
from treadle.ports.memory_index import MemoryHit

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


class _Sought(Struct, frozen=True):
    """A question, ready to be held against many memories."""

    keys: tuple[tuple[str, float], ...]
    """Each with a blank before and behind it, and what it weighs."""
    keys_weigh: float
    stems: tuple[tuple[str, float], ...]
    """Each with a blank before it."""
    stems_weigh: float


def rank(
    asked: MemoryQuery,
    near: Sequence[MemoryHit] | None,
    worded: Sequence[MemoryHit],
    now: Instant,
    limit: int,
    without: Collection[MemoryId] = (),
) -> tuple[FoundMemory, ...]:
    """The best first; nothing that does not fit. `near` is None where vectors could not be compared."""
    sought = _sought(asked)
    likeness = {hit.memory.memory_id: hit.likeness for hit in near or ()}
    by_words = {hit.memory.memory_id for hit in worded}
    candidates = {hit.memory.memory_id: hit for hit in (*(near or ()), *worded)}
    fits: list[tuple[float, Fit]] = []
    for memory_id, hit in candidates.items():
        if memory_id not in without:
            fit = _fit(sought, hit, likeness.get(memory_id), near is not None, memory_id in by_words)
            if fit.enough:
                fits.append((fit.relevance * fade(hit.memory, now), fit))
    fits.sort(key=lambda item: (item[0], len(item[1].memory.text)), reverse=True)  # of equals, what says more
    least = OF_THE_BEST * fits[0][0] if fits else 0.0
    return tuple([
        FoundMemory(fit.memory, max(0.0, min(1.0, score)), fit.by) for score, fit in fits[:limit] if score >= least
    ])  # fmt: skip


def fade(memory: Memory, now: Instant) -> float:
    """What is left of a score after the time since the memory was made or last of use; from 1 down to a floor."""
    if memory.pinned:
        return 1.0
    age = max(0.0, now - max(memory.created_at, memory.used_at or memory.created_at))
    return NEVER_BELOW + (1.0 - NEVER_BELOW) * 0.5 ** (age / HALF_LIFE)


def _sought(asked: MemoryQuery) -> _Sought:
    keys = tuple([(f" {' '.join(key.tokens)} ", key.weight) for key in asked.keys])
    stems = tuple([(f" {stem(word)}", float(min(len(word), 10))) for word in asked.words])
    return _Sought(
        keys, max(1.0, sum([weight for _, weight in keys])), stems, sum([weight for _, weight in stems]) or 1.0
    )


def _fit(sought: _Sought, hit: MemoryHit, likeness: float | None, by_vectors: bool, by_words: bool) -> Fit:
    line = hit.line
    keys = sum([weight for key, weight in sought.keys if key in line]) / sought.keys_weigh
    words = sum([weight for part, weight in sought.stems if part in line and _has(line, part)]) / sought.stems_weigh
    if by_vectors:
        certain = (UNSEEN if likeness is None else likeness) + KEYS_LIFT * keys
        by: RecalledBy = "text" if likeness is None else "both" if by_words and keys else "vectors"
        return Fit(hit.memory, certain + WORDS_LIFT * words, by, certain >= BY_VECTORS or words >= HALF)
    relevance = 0.5 * words + 0.5 * keys if sought.keys else words
    return Fit(hit.memory, relevance, "text", relevance >= BY_WORDS)


def _has(line: str, part: str) -> bool:
    """Whether a word of the line has this stem, which stands behind a blank. A word begins with its stem, so few
    words are looked at."""
    wanted, at = part[1:], line.find(part)
    while at >= 0:
        end = line.find(" ", at + 1)
        if stem(line[at + 1 : end]) == wanted:
            return True
        at = line.find(part, end)
    return False
