"""IDs are a prefix and a UUIDv7, and sort by time."""

import time
import uuid
from itertools import pairwise

import pytest

from treadle.ports.clock import Ids
from treadle.system.clock import TimeOrderedIds, make_worker_name
from treadle.testing.time import CountingIds


def test_an_id_is_its_prefix_and_a_uuid_of_version_7() -> None:
    prefix, _, rest = TimeOrderedIds()("run").partition("_")
    found = uuid.UUID(hex=rest)
    assert prefix == "run"
    assert (found.version, found.variant) == (7, uuid.RFC_4122)


@pytest.mark.parametrize("ids", [TimeOrderedIds(), CountingIds()], ids=["real", "counting"])
def test_later_ids_sort_later(ids: Ids) -> None:
    made = [ids("evt") for _ in range(20_000)]
    assert all(before < after for before, after in pairwise(made))


def test_counted_ids_have_the_form_of_real_ones_and_are_reproducible() -> None:
    first, second = CountingIds(), CountingIds()
    found = uuid.UUID(hex=first("ses").removeprefix("ses_"))
    assert (found.version, found.variant) == (7, uuid.RFC_4122)
    assert first("run").removeprefix("run_") != found.hex
    assert second("ses").removeprefix("ses_") == found.hex


def test_an_id_says_when_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    milliseconds = uuid.UUID(hex=TimeOrderedIds()("run")[4:]).int >> 80
    assert before <= milliseconds <= time.time_ns() // 1_000_000


def test_worker_names_are_unique() -> None:
    assert make_worker_name() != make_worker_name()
