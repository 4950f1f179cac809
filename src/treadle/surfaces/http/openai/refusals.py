"""What is refused at these routes, and how a run that did not end well is told of."""

from collections.abc import Mapping
from typing import Final

from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId
from treadle.domain.runs import OutcomeKind
from treadle.operations.refusal import Refusal

OUTCOME_STATUS: Final[Mapping[OutcomeKind, int]] = {
    "quota_exceeded": 429,
    "insufficient_credits": 429,
    "context_overflow": 400,
    "model_error": 502,
    "deadline": 504,
    "cancelled": 409,
}
"""Of an answer that tells of a run which ended so; of any other, 500."""
ANSWERED_OUTCOMES: Final[tuple[OutcomeKind, ...]] = ("completed", "silent", "truncated")


class InvalidParameterValue(Refusal):
    """A parameter that cannot be obeyed."""

    def __init__(self, param: str, detail: str, kind: str = "InvalidValue") -> None:
        super().__init__(400, kind, detail)
        self.param = param


class Unsupported(InvalidParameterValue):
    """A parameter that an agent has no use for."""

    def __init__(self, param: str, why: str) -> None:
        super().__init__(param, f"`{param}` cannot be asked of an agent: {why}", "UnsupportedParameter")


class RunFailed(Refusal):
    """The run has ended, and not with an answer."""

    final = True
    """It was tried as often as the agent allows; to ask again is another run."""

    def __init__(self, run_id: RunId, end: RunEnd) -> None:
        words = [end.reason or f"The run ended as {end.outcome}.", end.next, f"({run_id}, {end.outcome})"]
        super().__init__(OUTCOME_STATUS.get(end.outcome, 500), end.outcome, " ".join(filter(None, words)))


def find_run_failure(run_id: RunId, end: RunEnd) -> RunFailed | None:
    """None: it has an answer."""
    return None if end.outcome in ANSWERED_OUTCOMES else RunFailed(run_id, end)
