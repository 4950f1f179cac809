"""What becomes of a run: its status, its outcome and what it used."""

from typing import Final, Literal

from msgspec import Struct

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
    "context_overflow",
    "model_error",
    "tool_error",
    "approval_expired",
    "quarantined",
    "failed",
    "cancelled",
]

_LIMITS: Final = (
    "truncated",
    "max_steps",
    "budget_exhausted",
    "quota_exceeded",
    "insufficient_credits",
    "deadline",
)


def outcome_status(kind: OutcomeKind) -> Status:
    """The status in which an outcome leaves its run."""
    match kind:
        case "completed" | "silent":
            return "completed"
        case "cancelled":
            return "cancelled"
        case _:
            return "failed"


def outcome_exit_code(kind: OutcomeKind) -> int:
    """What `treadle run` answers its shell."""
    if kind in _LIMITS:
        return 3
    return {"completed": 0, "cancelled": 130, "failed": 1}[outcome_status(kind)]


class Outcome(Struct, frozen=True, omit_defaults=True):
    """How a run ended, with what it had produced by then."""

    kind: OutcomeKind
    text: str = ""
    reason: str = ""
    """What happened, for a person."""
    next: str = ""
    """Whether and how to go on, for a person."""
    unverified_claim: str = ""
    """What the answer claims to have done and no call bears out."""

    @property
    def status(self) -> Status:
        return outcome_status(self.kind)

    @property
    def exit_code(self) -> int:
        return outcome_exit_code(self.kind)


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens of one model call. `input_tokens` counts all of the prompt, cached or not."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False
    """The provider did not say; these figures are ours."""


class Metrics(Struct, frozen=True):
    """What a run used, all of it from the journal. Every field is written, so that a client can rely on it."""

    steps: int = 0
    model_calls: int = 0
    """Requests sent, failed attempts included."""
    repeated_calls: int = 0
    """Requests sent again because a crash hid the reply: each may have been charged twice."""
    actions: int = 0
    """Tool calls that were started."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False
    cost: float = 0.0
    """Dollars, failed attempts included, as far as prices are known."""
    credits: float = 0.0
    """The cost, in the home's own money."""
    unpriced_calls: int = 0
    """Calls whose model has no known price: what they cost is not in `cost`."""
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
