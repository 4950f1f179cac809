"""Which model settings a request can carry: those of its wire format that the model does not refuse."""

from collections.abc import Mapping
from typing import Final, get_args

from msgspec import structs

from treadle.domain.agents import ModelSettings
from treadle.domain.models import CallSetting, Profile

_UNSET: Final[Mapping[str, object]] = structs.asdict(ModelSettings())
_ALL: Final[tuple[CallSetting, ...]] = get_args(CallSetting)
_TAKEN: Final[Mapping[str, tuple[CallSetting, ...]]] = {
    "anthropic_messages": ("temperature", "top_p", "stop"),
    "responses": ("temperature", "top_p"),
}
"""The settings that a wire format has; of the others, all."""


def fit_settings(settings: ModelSettings, api_mode: str, profile: Profile) -> ModelSettings:
    """Return the settings that a request to this model carries."""
    left_out = list_unsent(settings, api_mode, profile)
    if not left_out:
        return settings
    return structs.replace(settings, **{name: _UNSET[name] for name in left_out})


def list_unsent(settings: ModelSettings, api_mode: str, profile: Profile) -> tuple[CallSetting, ...]:
    """Return the settings that a request to this model does not carry, in their order."""
    taken = _TAKEN.get(api_mode, _ALL)
    left_out: list[CallSetting] = []
    for name in _ALL:
        value = getattr(settings, name)
        if (value is not None and value != () and value != {}) and (name not in taken or name in profile.refuses):
            left_out.append(name)
    if api_mode == "anthropic_messages" and _cannot_take_top_p(settings, profile):
        left_out.append("top_p")
    return tuple(left_out)


def _cannot_take_top_p(settings: ModelSettings, profile: Profile) -> bool:
    """Return whether `top_p` is sent with neither a temperature nor reasoning, which exclude it in this format."""
    if settings.top_p is None or "top_p" in profile.refuses:
        return False
    return settings.temperature is not None or settings.reasoning is not None
