"""The agent for one run, as far as whoever asks may have it otherwise: less than the agent has, never more."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct, structs

from treadle.domain.agents import AgentSpec
from treadle.domain.schemas import check_schema
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Level = Literal["low", "medium", "high"]
LEVELS: Final[Mapping[Effort, Level | None]] = {
    "none": None,
    "minimal": None,
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""What a model is asked for; None: what it does by itself."""
LEVEL_ORDER: Final[tuple[Level | None, ...]] = (None, "low", "medium", "high")
MAX_TEMPERATURE = 2.0


class JsonSchema(Struct, frozen=True):
    schema: dict[str, Any]
    name: str = ""


class Format(Struct, frozen=True):
    """How the answer is to look. Chat completions have the schema one level deeper than responses."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None


class RequestedSettings(Struct, frozen=True):
    """What is asked for, and the names under which it was."""

    max_tokens: int | None = None
    temperature: float | None = None
    effort: Effort | None = None
    format: Format | None = None
    names: tuple[str, str] = ("max_tokens", "response_format")


def apply_settings(agent: AgentSpec, wishes: RequestedSettings) -> AgentSpec:
    """Raises `Wrong` for what makes no sense."""
    settings, limits = agent.model_settings, agent.limits
    if wishes.max_tokens is not None:
        if wishes.max_tokens < 1:
            raise InvalidParameterValue(
                wishes.names[0], f"`{wishes.names[0]}` must be 1 or more, found {wishes.max_tokens}."
            )
        most = min(wishes.max_tokens, settings.max_tokens or wishes.max_tokens)
        settings = structs.replace(settings, max_tokens=most)
        limits = structs.replace(limits, max_continuations=0)  # an answer that is cut there is to be cut
    if wishes.temperature is not None:
        if not 0 <= wishes.temperature <= MAX_TEMPERATURE:
            raise InvalidParameterValue(
                "temperature", f"`temperature` must be from 0 to {MAX_TEMPERATURE:g}, found {wishes.temperature:g}."
            )
        settings = structs.replace(settings, temperature=wishes.temperature)
    if wishes.effort is not None:
        settings = structs.replace(settings, reasoning=_limit_effort(wishes.effort, settings.reasoning))
    output = agent.output if wishes.format is None else _output_schema(wishes.format, agent, wishes.names[1])
    return structs.replace(agent, model_settings=settings, limits=limits, output=output)


def _limit_effort(wanted: Effort, allowed: Level | None) -> Level | None:
    """An agent that says how much is not given more."""
    level = LEVELS[wanted]
    return level if allowed is None or LEVEL_ORDER.index(level) < LEVEL_ORDER.index(allowed) else allowed


def _output_schema(wanted: Format, agent: AgentSpec, name: str) -> dict[str, Any] | None:
    match wanted:
        case Format("text"):
            return agent.output
        case Format("json_object"):
            return agent.output or {"type": "object"}
        case Format(_, JsonSchema(schema)) | Format(_, None, dict(schema)):
            try:
                check_schema(schema)
            except ValueError as error:
                raise InvalidParameterValue(name, f"The schema of `{name}` is no JSON Schema: {error}") from None
            return schema
        case _:
            raise InvalidParameterValue(name, f"`{name}` of the type json_schema must have a schema.")
