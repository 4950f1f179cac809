"""How hits by vectors and by words become one list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.domain.ids import AgentId
from treadle.domain.memories import Memory
from treadle.domain.text import fold_words
from treadle.memory.queries import parse_query
from treadle.memory.ranking import HALF_LIFE_SECONDS, MIN_AGE_FACTOR, compute_age_factor, rank
from treadle.ports.memory_index import MemoryHit

NOW = 2_000_000_000.0
DAY = 86_400.0


def memory(name: str, text: str, age: float = 0.0, pinned: bool = False, used: float | None = None) -> Memory:
    used_at = None if used is None else NOW - used * DAY
    return Memory(name, AgentId("a"), "long_term", text, NOW - age * DAY, used_at=used_at, pinned=pinned)


def near_to(item: Memory, likeness: float | None = None) -> MemoryHit:
    return MemoryHit(item, f" {' '.join(fold_words(item.text))} ", likeness)


def test_vectors_rank_first_and_a_matching_identifier_raises_the_score() -> None:
    like, exact = memory("like", "The tunnel was closed."), memory("exact", "E4711: see the wiki")
    near = [near_to(like, 0.55), near_to(exact, 0.3)]
    plain = rank(parse_query("why was the connection lost?"), near, [], NOW, 5)
    assert [(item.memory.memory_id, item.by) for item in plain] == [("like", "vectors"), ("exact", "vectors")]
    named = rank(parse_query("what is E4711?"), near, [near_to(exact)], NOW, 5)
    assert [(item.memory.memory_id, item.by) for item in named] == [("exact", "both"), ("like", "vectors")]


def test_a_hit_by_words_alone_is_kept() -> None:
    far = memory("far", "E4711: see the wiki")
    (found,) = rank(parse_query("what is E4711?"), [], [near_to(far)], NOW, 5)
    assert (found.memory, found.by) == (far, "text")


def test_nothing_is_recalled_if_nothing_matches() -> None:
    near = [near_to(memory("a", "The cat sleeps."), 0.1), near_to(memory("b", "Tea is ready."), -0.2)]
    assert rank(parse_query("square root of 1764"), near, [], NOW, 5) == ()
    assert (
        rank(
            parse_query("how do black holes evaporate over time"),
            None,
            [near_to(memory("c", "time flies"))],
            NOW,
            5,
        )
        == ()
    )


def test_memories_far_below_the_best_score_are_left_out() -> None:
    near = [near_to(memory("a", "x"), 0.9), near_to(memory("b", "y"), 0.8), near_to(memory("c", "z"), 0.25)]
    assert [item.memory.memory_id for item in rank(parse_query("question here"), near, [], NOW, 5)] == ["a", "b"]


def test_hits_are_ranked_by_words_if_there_are_no_vectors() -> None:
    best, worse = (
        memory("best", "The invoices of Halvorsen are late."),
        memory("worse", "Halvorsen delivers steel."),
    )
    found = rank(
        parse_query("are the invoices from Halvorsen late?"), None, [near_to(worse), near_to(best)], NOW, 5
    )
    assert [item.memory.memory_id for item in found] == ["best", "worse"]
    assert {item.by for item in found} == {"text"}


def test_age_decides_only_between_equal_scores() -> None:
    old, new = memory("old", "x", age=400), memory("new", "y", age=1)
    question = parse_query("some question")
    equal = rank(question, [near_to(old, 0.5), near_to(new, 0.5)], [], NOW, 5)
    assert [item.memory.memory_id for item in equal] == ["new", "old"]
    clear = rank(question, [near_to(old, 0.7), near_to(new, 0.45)], [], NOW, 5)
    assert [item.memory.memory_id for item in clear] == ["old", "new"]
    pinned = memory("pinned", "z", age=4000, pinned=True)
    kept = rank(question, [near_to(pinned, 0.5), near_to(new, 0.5)], [], NOW, 5)
    assert kept[0].memory is pinned


def test_memories_fade_with_age_unless_used_or_pinned() -> None:
    assert compute_age_factor(memory("a", "x"), NOW) == 1.0
    assert compute_age_factor(memory("a", "x", age=HALF_LIFE_SECONDS / DAY), NOW) == pytest.approx(
        (1 + MIN_AGE_FACTOR) / 2
    )
    assert compute_age_factor(memory("a", "x", age=10**6), NOW) == pytest.approx(MIN_AGE_FACTOR)
    assert compute_age_factor(memory("a", "x", age=900, used=0), NOW) == 1.0, "of use a moment ago"
    assert compute_age_factor(memory("a", "x", age=900, pinned=True), NOW) == 1.0
    assert compute_age_factor(memory("a", "x", age=-5), NOW) == 1.0, "a clock that was wrong"


@given(
    st.text(max_size=60),
    st.lists(st.tuples(st.text(max_size=30), st.floats(-1, 1), st.floats(-10, 4000), st.booleans()), max_size=12),
    st.integers(1, 6),
)
def test_hits_are_in_order_and_within_bounds(
    message: str, hits: list[tuple[str, float, float, bool]], limit: int
) -> None:
    made = [(memory(f"m{n}", text, age, pin), likeness) for n, (text, likeness, age, pin) in enumerate(hits)]
    near, worded = [near_to(item, likeness) for item, likeness in made[::2]], [near_to(item) for item, _ in made]
    for vectors in (near, None):
        found = rank(parse_query(message), vectors, worded, NOW, limit, without={"m0"})
        scores = [item.score for item in found]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert len(found) <= limit
        assert "m0" not in {item.memory.memory_id for item in found}
        assert len({item.memory.memory_id for item in found}) == len(found)
