"""What the environment says about the next step of a run: facts that the journal does not hold."""

from msgspec import Struct

from treadle.domain.ids import Instant
from treadle.domain.quotas import Shortage


class OpenBreaker(Struct, frozen=True, gc=False):
    """The circuit breaker of the run's model does not admit a call now."""

    model: str
    """`provider/model`."""
    seconds: float
    """How long it stays open."""
    has_alternative: bool
    """Whether the same model name can be served by another model."""


class Environment(Struct, frozen=True, gc=False):
    """The facts that `decide` takes in addition to the state."""

    now: Instant
    refused: Shortage | None = None
    """The account that refused to reserve what the last intent needed."""
    missing: str | None = None
    """What this worker lacks to execute the run: its model or a tool."""
    breaker: OpenBreaker | None = None
    answer_error: str | None = None
    """Why the Python type of the answer refuses the latest one, although it fits the schema."""
