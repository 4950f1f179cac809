"""Refusals of the OpenAI-compatible routes, and the errors for runs that failed."""

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
"""The HTTP status for each outcome of a run; 500 for any other."""
ANSWERED_OUTCOMES: Final[tuple[OutcomeKind, ...]] = ("completed", "silent", "truncated", "refused")


class InvalidParameterValue(Refusal):
    """A parameter whose value cannot be used."""

    def __init__(self, param: str, detail: str, kind: str = "InvalidValue") -> None:
        super().__init__(400, kind, detail, param)


class Unsupported(InvalidParameterValue):
    """A parameter that agents do not support."""

    def __init__(self, param: str, why: str) -> None:
        super().__init__(param, f"`{param}` is not supported for agents: {why}", "UnsupportedParameter")


class NoAnswer(Refusal):
    """The run ended without an answer."""

    final = True
    """The agent's own retries are used up. Sending the request again starts another run."""

    def __init__(self, run_id: RunId, end: RunEnd) -> None:
        reason = end.reason or f"The run ended as {end.outcome}."
        if not reason.endswith((".", "!", "?")):
            reason += "."
        words = [reason, end.next, f"({run_id}, {end.outcome})"]
        super().__init__(OUTCOME_STATUS.get(end.outcome, 500), end.outcome, " ".join(filter(None, words)))


def find_run_failure(run_id: RunId, end: RunEnd) -> NoAnswer | None:
    """Return the failure of a run, or None if it has an answer."""
    return None if end.outcome in ANSWERED_OUTCOMES else NoAnswer(run_id, end)
