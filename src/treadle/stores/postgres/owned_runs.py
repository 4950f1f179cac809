"""The runs that this process owns: whose they are, and for whom they count what they use.

What an advance uses is counted before it is sent, as if it were taken whole. Where it was not, the run is
forgotten, and learned anew from the journal: that knows how far what was used is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.domain.envelope import Draft, Origin
from treadle.domain.events import CompactionFailed, ContextCompacted, LlmError, LlmResponse
from treadle.stores.postgres.projections import PROJECTIONS
from treadle.stores.usage_counts import CALL_ENDS, COUNTERS, Payer

Projections = list[dict[str, Any]]


@dataclass(slots=True)
class HeldRun:
    """A run that is owned here."""

    origin: Origin
    number: int
    """Of the run, in the database."""
    payer: Payer

    def count(self, drafts: Sequence[Draft]) -> Projections:
        """Count what these events say, and return what is to be written beside them."""
        beside = Projections()
        for draft in drafts:
            if draft.type in PROJECTIONS:
                beside += PROJECTIONS[draft.type](draft)
            if draft.type in COUNTERS:
                COUNTERS[draft.type](self.payer, draft.data, draft.timestamp)
                if self.payer.is_bounded and draft.type in CALL_ENDS:
                    beside.append(_build_settlement(draft, self.payer.rate))
        return beside

    def used(self) -> list[list[Any]]:
        """What is to be written now of what was counted."""
        return [[*key, *sums] for key, sums in self.payer.take().items()]


def has_counted_events(drafts: Sequence[Draft]) -> bool:
    return any(draft.type in COUNTERS for draft in drafts)


def _build_settlement(draft: Draft, rate: float) -> dict[str, Any]:
    """A model call of the run has ended: what it has used takes the place of what was reserved."""
    data = draft.data
    assert isinstance(data, LlmResponse | LlmError | ContextCompacted | CompactionFailed)
    cost, tokens = data.cost or 0.0, data.usage.input_tokens + data.usage.output_tokens
    return {"as": "settled", "tokens": tokens, "cost": cost, "credits": cost * rate}
