"""The stores of finished evaluations, and of what people think of runs."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.evaluations import Evaluation
from treadle.domain.ids import Instant, RunId


class Feedback(Struct, frozen=True):
    """What a person thinks of a run. A person has one opinion of a run; a later one replaces it."""

    feedback_id: str
    run_id: RunId
    author: str
    score: float
    """From 0 (bad) to 1 (good)."""
    note: str
    at: Instant


class Evaluations(Protocol):
    async def put(self, evaluation: Evaluation) -> None: ...

    async def find(self, evaluation_id: str) -> Evaluation | None: ...

    async def latest(self, name: str) -> Evaluation | None:
        """Return the latest evaluation of this name."""
        ...

    async def recent(self, before: Instant | None, limit: int) -> Sequence[Evaluation]:
        """Return evaluations without their results, the newest first."""
        ...

    async def put_feedback(self, feedback: Feedback) -> None: ...

    async def feedback_of_run(self, run_id: RunId) -> Sequence[Feedback]: ...

    async def feedback(
        self, before: Instant | None, most: float | None, least: float | None, limit: int
    ) -> Sequence[Feedback]:
        """Return feedback, the newest first, with at most and at least these scores."""
        ...
