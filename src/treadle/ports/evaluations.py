"""The stores of suites, of finished evaluations, and of what people think of runs."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.evaluations import Evaluation
from treadle.domain.ids import Instant, RunId
from treadle.domain.suites import Case, Suite


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

    async def recent(self, before: Instant | None, limit: int, name: str | None = None) -> Sequence[Evaluation]:
        """Return evaluations without their results, the newest first, perhaps only those of a name."""
        ...

    async def put_feedback(self, feedback: Feedback) -> None: ...

    async def feedback_of_run(self, run_id: RunId) -> Sequence[Feedback]: ...

    async def feedback(
        self, before: Instant | None, most: float | None, least: float | None, limit: int
    ) -> Sequence[Feedback]:
        """Return feedback, the newest first, with at most and at least these scores."""
        ...


class StoredSuite(Struct, frozen=True):
    """A suite of a home."""

    name: str
    changed_at: Instant
    suite: Suite | None
    error: str = ""
    """Why it cannot be used."""


class Suites(Protocol):
    """The suites of a home: the files `evals/NAME.yaml` in it."""

    def list(self) -> Sequence[StoredSuite]:
        """Return all suites by name."""
        ...

    def find(self, name: str) -> StoredSuite | None: ...

    def add(self, name: str, agent: str, case: Case) -> str:
        """Add a case to a suite, which is created for the agent if it is missing. Return the name that the case has
        there. Raises UsageError if the file cannot be extended."""
        ...
