"""Applies the settings in an OpenAI request to an agent. They can lower the agent's limits, never raise them."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct, structs

from treadle.domain.agents import AgentSpec
from treadle.domain.schemas import check_schema
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Level = Literal["minimal", "low", "medium", "high", "xhigh"]
LEVELS: Final[Mapping[Effort, Level | None]] = {
    "none": None,
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "xhigh",
}
"""The reasoning level for each effort; None: the default of the model."""
LEVEL_ORDER: Final[tuple[Level | None, ...]] = (None, "minimal", "low", "medium", "high", "xhigh")
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
}
"""The values that a parameter may have."""
MIN_TOP_P = 1e-6


class JsonSchema(Struct, frozen=True):
    schema: dict[str, Any]
    name: str = ""


class OutputFormat(Struct, frozen=True):
    """The requested output format. Chat completions nest the schema one level deeper than responses."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None


class Sampling(Struct, frozen=True):
    """How a client wants the model to write. Each field is a parameter of this name."""

    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    logit_bias: dict[str, float] | None = None
    stop: str | tuple[str, ...] | None = None


class RequestedSettings(Struct, frozen=True):
    """The settings in a request, and the names of their parameters."""

    sampling: Sampling
    max_tokens: int | None = None
    effort: Effort | None = None
    format: OutputFormat | None = None
    names: tuple[str, str] = ("max_tokens", "response_format")
    parallel_calls: bool | None = None


def apply_settings(agent: AgentSpec, requested: RequestedSettings) -> AgentSpec:
    """Return the agent with the requested settings. Raise InvalidParameterValue for invalid ones."""
    settings, limits = agent.model_settings, agent.limits
    if requested.max_tokens is not None:
        if requested.max_tokens < 1:
            raise InvalidParameterValue(
                requested.names[0], f"`{requested.names[0]}` must be 1 or more, found {requested.max_tokens}."
            )
        limit = min(requested.max_tokens, settings.max_tokens or requested.max_tokens)
        settings = structs.replace(settings, max_tokens=limit)
        limits = structs.replace(limits, max_continuations=0)  # do not continue an answer that reaches this limit
    settings = structs.replace(settings, **_read_sampling(requested.sampling))
    if requested.parallel_calls is not None:
        settings = structs.replace(settings, parallel_tool_calls=requested.parallel_calls)
    if requested.effort is not None:
        settings = structs.replace(settings, reasoning=_limit_effort(requested.effort, settings.reasoning))
    output = (
        agent.output if requested.format is None else _output_schema(requested.format, agent, requested.names[1])
    )
    return structs.replace(agent, model_settings=settings, limits=limits, output=output)


def _read_sampling(sampling: Sampling) -> dict[str, Any]:
    """Return the model settings that a request sets. Raise InvalidParameterValue for invalid ones."""
    given = {name: value for name, value in structs.asdict(sampling).items() if value is not None}
    for name, (least, most) in BOUNDS.items():
        value = given.get(name)
        if value is not None and not least <= value <= most:
            raise InvalidParameterValue(name, f"`{name}` must be from {least:g} to {most:g}, found {value:g}.")
    if given.get("top_p") == 0:  # the likeliest token, as OpenAI takes it
        given["top_p"] = MIN_TOP_P
    stop = given.get("stop")
    if stop is not None:
        texts = (stop,) if isinstance(stop, str) else stop
        given["stop"] = tuple([text for text in texts if text])
    return given


def _limit_effort(requested: Effort, allowed: Level | None) -> Level | None:
    """Return the requested level, at most the agent's own."""
    level = LEVELS[requested]
    return level if allowed is None or LEVEL_ORDER.index(level) < LEVEL_ORDER.index(allowed) else allowed


def _output_schema(requested: OutputFormat, agent: AgentSpec, name: str) -> dict[str, Any] | None:
    match requested:
        case OutputFormat("text"):
            return agent.output
        case OutputFormat("json_object"):
            return agent.output or {"type": "object"}
        case OutputFormat(_, JsonSchema(schema)) | OutputFormat(_, None, dict(schema)):
            try:
                check_schema(schema)
            except ValueError as error:
                raise InvalidParameterValue(
                    name, f"The schema of `{name}` is not a valid JSON Schema: {error}"
                ) from None
            return schema
        case _:
            raise InvalidParameterValue(name, f"`{name}` of the type json_schema must have a schema.")
