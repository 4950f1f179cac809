"""The sampling options of `chat_completions`, besides the temperature."""

from typing import Any

from treadle.domain.agents import ModelSettings

_MAX_STOP_TEXTS = 4
"""OpenAI refuses more. The engine applies all of them."""


def encode_sampling(settings: ModelSettings) -> dict[str, Any]:
    """Return the options by name; None for those that are not set."""
    return {
        "top_p": settings.top_p,
        "frequency_penalty": settings.frequency_penalty,
        "presence_penalty": settings.presence_penalty,
        "seed": settings.seed,
        "logit_bias": settings.logit_bias or None,
        "stop": settings.stop[:_MAX_STOP_TEXTS] or None,
    }
