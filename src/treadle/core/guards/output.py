"""Guard against answers that do not match the output schema. The model is told what is wrong, a limited number of
times."""

from treadle.core.guards.verdict import StopVerdict, WarnModel
from treadle.core.state import RunState, has_text
from treadle.domain.events import OutputRejected
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome
from treadle.domain.schemas import find_mismatch

MAX_ATTEMPTS = 3


def judge(state: RunState, now: Instant) -> WarnModel | StopVerdict | None:
    if (
        state.agent.output is None
        or state.turn.reply is None
        or state.turn.reply.stop in ("interrupted", "max_tokens")
    ):
        return None
    if not has_text(state.turn.reply):
        return None  # another guard handles it
    error = find_mismatch(state.answer, state.agent.output)
    return None if error is None else reject(state, error)


def reject(state: RunState, error: str) -> WarnModel | StopVerdict:
    """Return the verdict on an answer that does not fit."""
    count = state.guards.rejected_outputs + 1
    if count >= MAX_ATTEMPTS:
        return StopVerdict(
            Outcome(
                "failed",
                state.answer,
                reason=f"The answer did not fit the output schema in {count} attempts: {error}",
                next="Simplify the schema, say more in the persona, or try another model.",
                mismatch=error,
            )
        )
    note = f"Your answer does not fit the JSON Schema: {error}. Answer again with the JSON value alone."
    return WarnModel((OutputRejected(count, error, note),))
