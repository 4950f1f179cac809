"""The status, outcome and usage of a run."""

from collections.abc import Iterable
from typing import Any, Final, Literal

from msgspec import Struct

from treadle.domain.ids import RunId
from treadle.domain.quotas import Shortage

Status = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]

OutcomeKind = Literal[
    "completed",
    "silent",
    "truncated",
    "max_steps",
    "budget_exhausted",
    "quota_exceeded",
    "insufficient_credits",
    "deadline",
    "stuck",
    "empty",
    "refused",
    "context_overflow",
    "model_error",
    "tool_error",
    "approval_expired",
    "quarantined",
    "failed",
    "cancelled",
]


class RunPart(Struct, frozen=True, omit_defaults=True):
    """What a run did for one message: the part of its journal from there to the next message that it received while
    it waited, or to its end."""

    run_id: RunId
    after: int = 0
    """Sequence of the last event before it; 0: it is the first part."""


_LIMITS: Final = (
    "truncated",
    "max_steps",
    "budget_exhausted",
    "quota_exceeded",
    "insufficient_credits",
    "deadline",
)


def is_ended(status: Status) -> bool:
    return status in ("completed", "failed", "cancelled")


def outcome_status(kind: OutcomeKind) -> Status:
    """Return the status of a run with this outcome."""
    match kind:
        case "completed" | "silent":
            return "completed"
        case "cancelled":
            return "cancelled"
        case _:
            return "failed"


def outcome_exit_code(kind: OutcomeKind) -> int:
    """Return the exit code of `treadle run` for this outcome."""
    if kind in _LIMITS:
        return 3
    return {"completed": 0, "cancelled": 130, "failed": 1}[outcome_status(kind)]


class Outcome(Struct, frozen=True, omit_defaults=True):
    """How a run ended, and what it had produced by then."""

    kind: OutcomeKind
    text: str = ""
    reason: str = ""
    """What happened, for people."""
    next: str = ""
    """Whether and how to continue, for people."""
    unverified_claim: str = ""
    """What the answer claims to have done without a supporting call."""
    shortage: Shortage | None = None
    """The account whose limit ended the run."""
    mismatch: str = ""
    """Why the answer does not fit the output schema."""

    @property
    def status(self) -> Status:
        return outcome_status(self.kind)


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens of one model call. `input_tokens` counts the whole prompt, cached or not."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False
    """The provider reported nothing; these are estimates."""


class Metrics(Struct, frozen=True):
    """The usage of a run, derived from the journal. Every field is written, so that clients can rely on it."""

    steps: int = 0
    model_calls: int = 0
    """Requests sent, including failed attempts."""
    repeated_calls: int = 0
    """Requests sent again because a crash lost the reply. Each may have been charged twice."""
    actions: int = 0
    """Tool calls that were started."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False
    cost: float = 0.0
    """In dollars, including failed attempts, as far as prices are known."""
    credits: float = 0.0
    """The cost in credits."""
    unpriced_calls: int = 0
    """Calls of models without a known price, which `cost` does not include."""
    duration_ms: int = 0
    model_ms: int = 0
    tool_ms: int = 0
    first_token_ms: int | None = None

    @property
    def cache_hit_rate(self) -> float:
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def overhead_ms(self) -> int:
        """Time that was spent neither in the model nor in tools."""
        return max(0, self.duration_ms - self.model_ms - self.tool_ms)


class RunFacts(Struct, frozen=True, omit_defaults=True):
    """What lists show of a run besides its cost, tokens, steps and duration. Most is known when it has ended."""

    model: str = ""
    """The model that was resolved for it, as `provider/model`."""
    credits: float | None = None
    tool_calls: int | None = None
    model_calls: int = 0
    model_ms: int = 0
    """Time that was spent in the model."""
    tool_ms: int = 0
    """Time that was spent in tools."""
    unpriced_calls: int = 0
    """Calls of models without a known price."""
    score: float | None = None
    reason: str = ""
    """Why it ended, if it did not complete: the beginning, on one line."""


NO_FACTS = RunFacts()


def add_metrics(metrics: Iterable[Metrics]) -> Metrics:
    """Return the sums of the usage of several runs. Durations are added too, although runs may overlap."""
    total: dict[str, Any] = {}
    for each in metrics:
        for name in Metrics.__struct_fields__:
            if (value := getattr(each, name)) is not None and name != "first_token_ms":
                total[name] = total.get(name, 0) + value
    total["estimated"] = bool(total.get("estimated"))
    return Metrics(**total)
