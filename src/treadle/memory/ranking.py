"""Merges the results of vector and word search into one ranked list. Pure: the caller passes the time.

Vectors rank first: they know that `flat` and `apartment` mean the same. Exact terms (identifiers, quotations,
names) raise the memories that contain them, because vectors hardly distinguish `E4711` from `E4712`. Ranks are not
summed: a position in a list does not say how well its first entry fits."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from treadle.domain.events import RecalledBy
from treadle.domain.ids import Instant
from treadle.domain.memories import Memory, MemoryId
from treadle.memory.queries import MemoryQuery, stem
from treadle.ports.memory import FoundMemory
from treadle.ports.memory_index import MemoryHit

HALF_LIFE_SECONDS = 90 * 86_400.0
"""Half-life of the part of a score that decreases with age."""
MIN_AGE_FACTOR = 0.85
"""The factor for the oldest memory. An old memory fits no worse, it is only less likely to be meant."""
KEY_WEIGHT = 0.6
WORD_WEIGHT = 0.05
MIN_VECTOR_SCORE = 0.19
"""The score needed for recall when vectors were compared. Like all numbers here, it is tuned with the local
embedder on the `dev` half of bench/recall_questions.yaml. Other embedders place unrelated texts closer, and recall
more."""
MIN_WORD_SCORE = 0.25
"""The score needed for recall when only words were compared."""
MIN_SHARE_OF_BEST = 0.4
"""The share of the best score that another memory needs to be recalled as well."""
MIN_WORD_SHARE = 0.5
"""The share of matching words that is sufficient on its own, however different the vectors are."""
DEFAULT_LIKENESS = 0.15
"""The likeness of a memory that is not among the nearest."""


class Fit(Struct, frozen=True):
    """How well a memory fits, before its age is considered."""

    memory: Memory
    relevance: float
    by: RecalledBy
    enough: bool


class _PreparedQuery(Struct, frozen=True):
    """A query prepared for comparison with many memories."""

    keys: tuple[tuple[str, float], ...]
    """Each key enclosed in blanks, with its weight."""
    key_weight_sum: float
    stems: tuple[tuple[str, float], ...]
    """Each stem preceded by a blank, with its weight."""
    stem_weight_sum: float


def rank(
    asked: MemoryQuery,
    near: Sequence[MemoryHit] | None,
    by_word_search: Sequence[MemoryHit],
    now: Instant,
    limit: int,
    without: Collection[MemoryId] = (),
) -> tuple[FoundMemory, ...]:
    """Return the memories that fit, best first. `near` is None if vectors could not be compared."""
    sought = _prepare_query(asked)
    likeness = {hit.memory.memory_id: hit.likeness for hit in near or ()}
    word_terms = {hit.memory.memory_id for hit in by_word_search}
    candidates = {hit.memory.memory_id: hit for hit in (*(near or ()), *by_word_search)}
    fits: list[tuple[float, Fit]] = []
    for memory_id, hit in candidates.items():
        if memory_id not in without:
            fit = _score(sought, hit, likeness.get(memory_id), near is not None, memory_id in word_terms)
            if fit.enough:
                fits.append((fit.relevance * compute_age_factor(hit.memory, now), fit))
    fits.sort(
        key=lambda item: (item[0], len(item[1].memory.text)), reverse=True
    )  # for equal scores, the longer text first
    min_score = MIN_SHARE_OF_BEST * fits[0][0] if fits else 0.0
    return tuple([
        FoundMemory(fit.memory, max(0.0, min(1.0, score)), fit.by) for score, fit in fits[:limit]
        if score >= min_score
    ])  # fmt: skip


def compute_age_factor(memory: Memory, now: Instant) -> float:
    """Return the factor for the time since the memory was created or last used, from 1 down to a minimum."""
    if memory.pinned:
        return 1.0
    age = max(0.0, now - max(memory.created_at, memory.used_at or memory.created_at))
    return MIN_AGE_FACTOR + (1.0 - MIN_AGE_FACTOR) * 0.5 ** (age / HALF_LIFE_SECONDS)


def _prepare_query(asked: MemoryQuery) -> _PreparedQuery:
    keys = tuple([(f" {' '.join(key.tokens)} ", key.weight) for key in asked.keys])
    stems = tuple([(f" {stem(word)}", float(min(len(word), 10))) for word in asked.words])
    return _PreparedQuery(
        keys, max(1.0, sum([weight for _, weight in keys])), stems, sum([weight for _, weight in stems]) or 1.0
    )


def _score(
    sought: _PreparedQuery, hit: MemoryHit, likeness: float | None, by_vectors: bool, word_terms: bool
) -> Fit:
    line = hit.line
    keys = sum([weight for key, weight in sought.keys if key in line]) / sought.key_weight_sum
    words = (
        sum([weight for part, weight in sought.stems if part in line and _has_stem(line, part)])
        / sought.stem_weight_sum
    )
    if by_vectors:
        certain = (DEFAULT_LIKENESS if likeness is None else likeness) + KEY_WEIGHT * keys
        by: RecalledBy = "text" if likeness is None else "both" if word_terms and keys else "vectors"
        return Fit(
            hit.memory, certain + WORD_WEIGHT * words, by, certain >= MIN_VECTOR_SCORE or words >= MIN_WORD_SHARE
        )
    relevance = 0.5 * words + 0.5 * keys if sought.keys else words
    return Fit(hit.memory, relevance, "text", relevance >= MIN_WORD_SCORE)


def _has_stem(line: str, part: str) -> bool:
    """Return whether a word of the line has this stem, given with a leading blank. A word starts with its stem, so
    few words are compared."""
    expected, at = part[1:], line.find(part)
    while at >= 0:
        end = line.find(" ", at + 1)
        if stem(line[at + 1 : end]) == expected:
            return True
        at = line.find(part, end)
    return False
