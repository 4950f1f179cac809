"""The engine's estimates against what a real model counts, over sessions with tools."""

import asyncio
import statistics
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.embedded import weights
from tests.tokens.measure import Measured, counter, replay
from tests.tokens.sessions import CHECK, FIT, KINDS, sessions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path() -> Path:
    return weights()


@pytest.fixture(scope="module")
def found(path: Path) -> list[Measured]:
    """Every request of every session."""

    async def measure() -> list[Measured]:
        async with counter(path) as count:
            return [request for session in sessions() for request in await replay(session, count)]

    return asyncio.run(measure())


def mean(some: Iterable[Measured]) -> float:
    return statistics.mean(request.error for request in some)


@pytest.mark.parametrize("half", [FIT, CHECK])
def test_the_mean_error_is_under_five_percent(found: list[Measured], half: int) -> None:
    errors = sorted(request.error for request in found if request.session.half == half)
    assert statistics.mean(errors) < 0.05
    assert errors[int(len(errors) * 0.95)] < 0.10
    assert errors[-1] < 0.20


def test_so_it_is_for_first_requests_of_which_nothing_was_counted(found: list[Measured]) -> None:
    first = [request for request in found if request.number == 0]
    assert mean(first) < 0.05
    assert max(request.error for request in first) < 0.15


@pytest.mark.parametrize("kind", KINDS)
def test_so_it_is_for_every_kind_of_text(found: list[Measured], kind: str) -> None:
    assert mean(request for request in found if request.session.kind == kind) < 0.05


def test_the_server_reports_what_was_counted(path: Path, found: list[Measured]) -> None:
    """The first requests of the smallest sessions are sent: prompts are read slowly here."""
    smallest = sorted((request for request in found if request.number == 0), key=lambda request: request.counted)

    async def ask() -> list[int]:
        async with counter(path) as count:
            return [await count.reported(request.request) for request in smallest[:3]]

    assert asyncio.run(ask()) == [request.counted for request in smallest[:3]]


def test_the_sessions_are_what_they_should_be(found: list[Measured]) -> None:
    every = sessions()
    lengths = [max(len(r.messages) for r in found if r.session == session) + 1 for session in every]
    assert len(every) >= 50
    assert min(lengths) >= 4
    assert max(lengths) >= 40
    assert max(request.counted + request.replied for request in found) < 8192
    assert sum(bool(turn.asked) for session in every for turn in session.turns) > 1.5 * len(every)
    assert sessions() == every
