"""Facts about models: limits, capabilities and prices."""

from typing import Final, Literal

from msgspec import Struct

from treadle.domain.runs import Usage

UNKNOWN_WINDOW = 200_000
"""The assumed context window of an unknown model."""

SMALL_MODEL_PARAMETERS = 1_000_000_000
"""A model with fewer parameters is small: with tools it answers slowly and mostly wrong."""

ToolStyle = Literal["native", "schema", "fenced"]
"""How a model calls tools: in its wire format; as a reply constrained by a JSON schema; or as fenced JSON in its
text, which is read for allowed tools only."""

ReasoningBack = Literal["never", "tool_loop", "always"]
"""When reasoning is sent back. `tool_loop`: with the calls that it led to and the reply to their results, for as
long as these are in the transcript. `always`: with every reply. It is never sent to another provider or model."""
StructuredOutput = Literal["never", "without_tools", "always"]
"""When a request carries the output schema, so that the provider constrains the reply. `without_tools`: only if no
tool may be called. `always`: with tools too. The schema is in the prompt in any case."""
CallSetting = Literal["temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "logit_bias", "stop"]
"""A setting of a model call that some models do not take."""
CallDialect = Literal["hermes", "deepseek", "kimi", "llama", "mistral"]
"""How a model writes a call as text instead of in the wire format. Qwen and others use `hermes`."""


def _check_prices(prices: "LongPrices | Prices") -> None:
    for name in ("input", "output", "cache_read", "cache_write"):
        value = getattr(prices, name)
        if value is not None and value < 0:
            raise ValueError(f"{name} must be 0 or more, found {value}")


class LongPrices(Struct, frozen=True, omit_defaults=True):
    """Prices of a request whose prompt is longer than `above` tokens."""

    above: int
    """Length of the prompt in tokens above which these prices apply."""
    input: float
    """Prompt tokens."""
    output: float
    """Reply tokens."""
    cache_read: float | None = None
    """Prompt tokens that are read from a cache."""
    cache_write: float | None = None
    """Prompt tokens that are written to a cache."""

    def __post_init__(self) -> None:
        _check_prices(self)


class Prices(Struct, frozen=True, omit_defaults=True):
    """Prices in dollars per million tokens. A missing cache price is the price of the input."""

    input: float
    """Prompt tokens."""
    output: float
    """Reply tokens."""
    cache_read: float | None = None
    """Prompt tokens that are read from a cache."""
    cache_write: float | None = None
    """Prompt tokens that are written to a cache."""
    long: tuple[LongPrices, ...] = ()
    """Other prices for long prompts."""

    def __post_init__(self) -> None:
        _check_prices(self)

    def cost(self, usage: Usage) -> float:
        """Return the cost of this usage in dollars."""
        rates: Prices | LongPrices = self
        for longer in self.long:
            if usage.input_tokens > longer.above:
                rates = longer
        read, written = usage.cache_read_tokens, usage.cache_write_tokens
        fresh = max(0, usage.input_tokens - read - written)
        return (
            fresh * rates.input
            + read * (rates.input if rates.cache_read is None else rates.cache_read)
            + written * (rates.input if rates.cache_write is None else rates.cache_write)
            + usage.output_tokens * rates.output
        ) / 1_000_000


Effort = Literal["minimal", "low", "medium", "high", "xhigh"]
_NEAREST: Final[dict[Effort, Effort]] = {"minimal": "low", "xhigh": "high"}
"""What models without an effort get instead. All models that reason have the others."""


class Profile(Struct, frozen=True, omit_defaults=True):
    """The facts about one model of one provider. These facts decide; the name of a provider never does."""

    context_window: int = UNKNOWN_WINDOW
    max_output: int | None = None
    """Maximum number of tokens in one reply, if known."""
    prices: Prices | None = None
    tools: ToolStyle = "native"
    thinking: Literal["adaptive", "budget"] = "adaptive"
    """How to request thinking from a model that can: by effort, or by a budget of tokens."""
    sealed_reasoning: bool = False
    """Its reasoning is available in a sealed form, and must be sent back."""
    reasoning_back: ReasoningBack = "tool_loop"
    """When its reasoning is sent back, if it is neither signed nor sealed."""
    alternating_roles: bool = False
    """Its chat template rejects consecutive user messages, so they are sent as one."""
    call_dialect: CallDialect | None = None
    """Its server leaves calls in the text of the reply, so they are parsed there, in this dialect."""
    structured_output: StructuredOutput = "never"
    """When its server accepts the output schema with a request."""
    image_results: bool = False
    """It sees images, so those in tool results are sent in the `chat_completions` format, in a user message after
    the results. The other formats send them in the results."""
    patches: bool = False
    """It was trained to change files by patches: it gets `apply_patch` in the place of `edit_file`."""
    local: bool = False
    """It runs on the user's own machine: it costs nothing, and may be slow."""
    parameters: int | None = None
    """Number of its parameters, if known."""
    sampling: dict[str, int | float] = {}
    """Sampling parameters for its server, by the names that the server uses. The settings of the agent override
    them. Only the `chat_completions` format sends them."""
    efforts: tuple[Effort, ...] = ()
    """The reasoning efforts that it has besides `low`, `medium` and `high`."""
    refuses: tuple[CallSetting, ...] = ()
    """Settings of a call that its server rejects. They are not sent."""

    @property
    def is_small(self) -> bool:
        """Return whether it is known to have fewer than one billion parameters."""
        return self.parameters is not None and self.parameters < SMALL_MODEL_PARAMETERS

    def fit_effort(self, effort: Effort | None) -> Effort | None:
        """Return the effort, or the nearest one that the model has."""
        if effort is None or effort in self.efforts:
            return effort
        return _NEAREST.get(effort, effort)

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of a call in dollars, or None if no price is known."""
        if self.local:
            return 0.0
        return None if self.prices is None else self.prices.cost(usage)


class ModelFacts(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An entry under `models` of `config.yaml`, by `provider/model-id`. It overrides the built-in catalog."""

    context_window: int | None = None
    """Context window in tokens."""
    max_output: int | None = None
    """Maximum tokens of one reply."""
    prices: Prices | None = None
    """Prices in dollars per million tokens."""
    tools: ToolStyle | None = None
    """How the model calls tools: in its wire format (`native`), as a reply that matches a JSON Schema (`schema`),
    or as fenced JSON in its text (`fenced`)."""
    thinking: Literal["adaptive", "budget"] | None = None
    """How reasoning is requested: by effort, or by a budget of tokens."""
    reasoning_back: ReasoningBack | None = None
    """When reasoning that is neither signed nor sealed is sent back to the model."""
    alternating_roles: bool | None = None
    """The chat template of the model rejects two user messages in a row; they are sent as one."""
    call_dialect: CallDialect | None = None
    """The server leaves tool calls in the text of the reply; they are read there in this dialect."""
    structured_output: StructuredOutput | None = None
    """When requests carry the output schema of an agent, so that the provider constrains the answer: `never`,
    `without_tools` (only if no tool may be called), or `always`. Null: what the catalog knows, else `never`."""
    image_results: bool | None = None
    """The model sees images: those that tools return are sent to it in chat completions."""
    parameters: int | None = None
    """Number of parameters. `small_models` of an agent applies below one billion."""
    sampling: dict[str, int | float] | None = None
    """Sampling parameters for the server, such as `{min_p: 0.1}`. Only chat completions send them."""

    refuses: tuple[CallSetting, ...] | None = None
    """Model settings that the server rejects, such as `[temperature, top_p]`. They are not sent. Null: what the
    catalog knows."""
    patches: bool | None = None
    """The model changes files by patches: it gets `apply_patch` in the place of `edit_file`."""

    def __post_init__(self) -> None:
        for name in ("context_window", "max_output", "parameters"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, found {value}")
