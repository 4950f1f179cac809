"""The runs that this process owns, and their uncommitted usage.

The usage of an advance is counted before the advance is sent, as if all of it were accepted. If it was not, the run
is dropped from the cache and rebuilt from the journal, which records how much usage is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.domain.envelope import Draft, Origin
from treadle.domain.events import CompactionFailed, ContextCompacted, LlmError, LlmResponse, RunEnd
from treadle.stores.postgres.projections import PROJECTIONS, project_end
from treadle.stores.usage_counts import CALL_ENDS, COUNTERS, Payer, Rows

Projections = list[dict[str, Any]]


@dataclass(slots=True)
class HeldRun:
    """A run that this process owns."""

    origin: Origin
    number: int
    """The number of the run in the database."""
    payer: Payer

    def count(self, drafts: Sequence[Draft]) -> Projections:
        """Count the usage of these events, and return the projections to write with them."""
        projections = Projections()
        for draft in drafts:
            if isinstance(draft.data, RunEnd):
                projections.append(project_end(draft.data, self.payer.model))
            elif draft.type in PROJECTIONS:
                projections += PROJECTIONS[draft.type](draft)
            if draft.type in COUNTERS:
                COUNTERS[draft.type](self.payer, draft.data, draft.timestamp)
                if self.payer.is_bounded and draft.type in CALL_ENDS:
                    projections.append(_build_settlement(draft, self.payer.rate))
        return projections

    def take_usage(self) -> Rows:
        """Return the usage rows to write now."""
        return self.payer.take()


def has_counted_events(drafts: Sequence[Draft]) -> bool:
    return any(draft.type in COUNTERS for draft in drafts)


def _build_settlement(draft: Draft, rate: float) -> dict[str, Any]:
    """Return the settlement of a model call that ended: its usage replaces the reservation."""
    data = draft.data
    assert isinstance(data, LlmResponse | LlmError | ContextCompacted | CompactionFailed)
    cost, tokens = data.cost or 0.0, data.usage.input_tokens + data.usage.output_tokens
    return {"as": "settled", "tokens": tokens, "cost": cost, "credits": cost * rate}
