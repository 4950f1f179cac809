"""Resource usage of a run and of its current step."""

from dataclasses import dataclass

from treadle.domain.ids import Instant


@dataclass(slots=True)
class RunUsage:
    """What the run has used so far. `Metrics` is its public form."""

    model_calls: int = 0
    repeated_calls: int = 0
    actions: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False
    cost: float = 0.0
    unpriced_calls: int = 0
    model_ms: int = 0
    tool_ms: int = 0
    first_token_ms: int | None = None


@dataclass(slots=True)
class StepUsage:
    """The current step."""

    number: int = 0
    is_open: bool = False
    began_at: Instant = 0.0
    attempts: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    has_news: bool = False
    """True if it brought a new result or text."""
    interrupted: bool = False
    """True if one of its calls lost its result because the worker died."""
