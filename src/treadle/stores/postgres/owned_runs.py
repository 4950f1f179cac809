"""The runs that this process owns: whose they are, and for whom they count what they use.

What an advance uses is counted before it is sent, as if it were taken whole. Where it was not, the run is
forgotten, and learned anew from the journal: that knows how far what was used is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.domain.envelope import Draft, Origin
from treadle.domain.events import CompactionFailed, ContextCompacted, LlmError, LlmResponse
from treadle.stores.postgres.projections import PROJECTIONS
from treadle.stores.usage_counts import ANSWERING, COUNTED, Payer

Beside = list[dict[str, Any]]


@dataclass(slots=True)
class Held:
    """A run that is owned here."""

    origin: Origin
    number: int
    """Of the run, in the database."""
    payer: Payer

    def count(self, drafts: Sequence[Draft]) -> Beside:
        """Count what these events say, and return what is to be written beside them."""
        beside = Beside()
        for made in drafts:
            if made.type in PROJECTIONS:
                beside += PROJECTIONS[made.type](made)
            if made.type in COUNTED:
                COUNTED[made.type](self.payer, made.data, made.timestamp)
                if self.payer.is_bounded and made.type in ANSWERING:
                    beside.append(_settled(made, self.payer.rate))
        return beside

    def used(self) -> list[list[Any]]:
        """What is to be written now of what was counted."""
        return [[*key, *sums] for key, sums in self.payer.take().items()]


def is_counted(drafts: Sequence[Draft]) -> bool:
    return any(made.type in COUNTED for made in drafts)


def _settled(made: Draft, rate: float) -> dict[str, Any]:
    """A model call of the run has ended: what it has used takes the place of what was reserved."""
    data = made.data
    assert isinstance(data, LlmResponse | LlmError | ContextCompacted | CompactionFailed)
    cost, tokens = data.cost or 0.0, data.usage.input_tokens + data.usage.output_tokens
    return {"as": "settled", "tokens": tokens, "cost": cost, "credits": cost * rate}
