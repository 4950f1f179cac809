"""Known facts about models: short names, context windows, capabilities, prices. Configuration overrides them."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from treadle.domain.models import CallSetting, Effort, ModelFacts, Profile, ReasoningBack
from treadle.domain.providers import ProviderConfig
from treadle.models.structured_output import find_structured_output

_BUDGET_THINKING_MODELS = re.compile(r"claude-(?:[23]|4-|(?:opus|sonnet|haiku)-4(?:-[015])?(?:$|[-@]\d{8}))")
"""Models whose thinking is limited by a token budget. Later models take an effort level."""
_OPENAI_REASONING_MODELS = re.compile(r"(?:openai/)?(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*chat)|codex)")
"""OpenAI models that reason and return their reasoning encrypted."""
_SETTINGS_REFUSED_BY_REASONING: tuple[CallSetting, ...] = (
    "temperature", "top_p", "frequency_penalty", "presence_penalty", "logit_bias", "stop",
)  # fmt: skip
"""What the servers of OpenAI and Azure reject for their models that reason."""
_OPENAI_HOSTS = re.compile(r"(?:^|\.)(?:openai\.com|azure\.com)$")
_MINIMAL_EFFORT_MODELS = re.compile(r"(?:^|/)(?:gpt-5(?!\.|\d|.*(?:codex|pro|chat))|gemini-(?:[3-9]|\d\d).*flash)")
_HIGHEST_EFFORT_MODELS = re.compile(
    r"(?:^|[/.])(?:gpt-5\.1-codex-max|gpt-(?:5\.(?:[2-9]|\d\d)|[6-9]|\d\d)(?!.*chat)"
    r"|claude-opus-(?:4[-.](?:[7-9]|\d\d)|[5-9])(?!\d)|claude-(?:sonnet|fable|mythos)-[5-9])"
)
"""Models with the reasoning efforts `minimal` and `xhigh`."""
_REASONING_RETURNED_MODELS = re.compile(r"(?:^|[/.])(?:kimi|glm|minimax|moonshot)", re.IGNORECASE)
"""Models whose providers require all of their reasoning to be sent back: Moonshot, Z.ai, MiniMax. DeepSeek
requires the reasoning of turns with tool calls, which is the default for unknown models."""
_HOSTS_REFUSING_REASONING = re.compile(
    r"(?:^|\.)(?:anthropic\.com|openai\.com|azure\.com|mistral\.ai|cerebras\.ai)$"
)
"""Hosts that refuse reasoning in a `chat_completions` request, and unsigned or unsealed reasoning in the other
formats."""
_ALTERNATING_ROLE_MODELS = re.compile(
    r"gemma-?[12](?!\d)|mixtral|mistral-?7b|mistral:|llama-?2(?!\d)|codellama", re.IGNORECASE
)
"""Models whose chat templates refuse two user messages in a row."""
_VISION_MODELS = re.compile(
    r"claude-|gpt-(?:4o|4\.1|4\.5|[5-9]|\d\d)|(?:^|/)o[134](?!-mini-2024)|gemini|gemma-?[3-9]|llava|pixtral|"
    r"(?<![a-z])vl(?![a-z])|vision|llama-?4|kimi-k2\.[5-9]|glm-\d[\d.]*v|grok-[4-9]|mistral-(?:small|medium|large)-?3",
    re.IGNORECASE,
)
"""Models that see images. Others may refuse a request with one, so images of tools are not sent to them."""
_PATCH_MODELS = re.compile(r"(?:^|/)(?:gpt-(?:4\.1|[5-9]|\d\d)(?!.*chat)|gpt-oss|codex)", re.IGNORECASE)
"""Models that are trained on the patches of `apply_patch`."""
_PARAMETERS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(m|b)(?![a-z0-9])", re.IGNORECASE)
"""The size in the name of a model, such as `0.6b` or `135M`."""
_LEAST_MILLIONS = 30
"""A lower number of millions is a context window, as in `[1m]`."""
_LOOPBACK_HOST = re.compile(r"localhost|127\.[\d.]+|::1")

ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "opus": ("anthropic/claude-opus-5-5", "openrouter/anthropic/claude-opus-5.5"),
        "sonnet": ("anthropic/claude-sonnet-5-5", "openrouter/anthropic/claude-sonnet-5.5"),
        "haiku": ("anthropic/claude-haiku-5-5", "openrouter/anthropic/claude-haiku-5.5"),
        "gpt": ("openai/gpt-6-sol", "openrouter/openai/gpt-6-sol"),
        "gpt-mini": ("openai/gpt-6-luna", "openrouter/openai/gpt-6-luna"),
        "smollm2": ("local/smollm2",),
    }
)
"""Short names, each with its candidate models. The first whose provider has a key and answers is used."""


WindowSource = Literal["config", "catalog", "local", "server", "assumed"]
"""Where a context window comes from. `config`: `models` in config.yaml. `catalog`: the built-in catalog. `local`:
the size with which a model on this machine is started. `server`: reported by the server. `assumed`: unknown, so
the default is assumed."""
LOCAL_PROVIDER = "local"


class Catalog:
    """Looks up each model once and caches its profile."""

    def __init__(
        self, aliases: Mapping[str, tuple[str, ...]] | None = None, models: Mapping[str, ModelFacts] | None = None
    ) -> None:
        self.aliases: dict[str, tuple[str, ...]] = {**ALIASES, **(aliases or {})}
        self._models = dict(models or {})
        self._profiles: dict[tuple[str, str], Profile] = {}
        self._reported: set[tuple[str, str]] = set()
        """Models whose server has reported their context window."""

    def names(self, model: str) -> tuple[str, ...]:
        """Return the models that a short name stands for, or the name itself."""
        return self.aliases.get(model, (model,))

    def profile(
        self, provider: str, model: str, config: ProviderConfig | None, default: Profile | None = None
    ) -> Profile:
        """Return the facts about a model. Without a `config`, for a client passed in by a caller, start from
        `default`."""
        profile = self._profiles.get((provider, model))
        if profile is None:
            base = (default or Profile()) if config is None else _build_profile(provider, model, config)
            profile = self._profiles[provider, model] = self._apply_overrides(f"{provider}/{model}", base)
        return profile

    def window_source(self, provider: str, model: str, config: ProviderConfig | None) -> WindowSource:
        """Return where the context window in the profile of a model comes from."""
        override = self._models.get(f"{provider}/{model}")
        if override is not None and override.context_window is not None:
            return "config"
        if (provider, model) in self._reported:
            return "server"
        if config is None:
            return "local" if provider == LOCAL_PROVIDER else "assumed"
        return "catalog" if _find_catalog_window(provider, model, config) else "assumed"

    def record_window(self, provider: str, model: str, tokens: int) -> None:
        """Record the context window that the server of a model reports."""
        profile = self._profiles.get((provider, model), Profile())
        self._profiles[provider, model] = msgspec.structs.replace(profile, context_window=tokens)
        self._reported.add((provider, model))

    def reconfigure(self, aliases: Mapping[str, tuple[str, ...]], models: Mapping[str, ModelFacts]) -> None:
        """Use other settings for short names and facts."""
        self.aliases, self._models = {**ALIASES, **aliases}, dict(models)
        self._profiles = {key: found for key, found in self._profiles.items() if key in self._reported}

    def forget(self, provider: str) -> None:
        """Drop the cached facts of a provider whose configuration was replaced."""
        self._reported = {key for key in self._reported if key[0] != provider}
        self._profiles = {key: found for key, found in self._profiles.items() if key[0] != provider}

    def _apply_overrides(self, name: str, profile: Profile) -> Profile:
        """Return the profile with the values that config.yaml sets for the model."""
        override = self._models.get(name)
        if override is None:
            return profile
        stated = {name: value for name, value in msgspec.structs.asdict(override).items() if value is not None}
        return msgspec.structs.replace(profile, **stated)


def _find_catalog_window(provider: str, model: str, config: ProviderConfig) -> int | None:
    if config.local or is_loopback(config):
        return None
    from treadle.models.prices import find_public_facts

    return find_public_facts(provider, config.base_url, model).context_window


def is_loopback(config: ProviderConfig) -> bool:
    """Return whether a provider's address is on this machine."""
    return _LOOPBACK_HOST.fullmatch(urlsplit(config.base_url).hostname or "") is not None


def _build_profile(provider: str, model: str, config: ProviderConfig) -> Profile:
    profile = _conversation_profile(model, config)
    if config.local:
        return msgspec.structs.replace(profile, local=True)
    if is_loopback(config):
        return profile  # its price is not public
    from treadle.models.prices import find_public_facts

    facts = find_public_facts(provider, config.base_url, model)
    profile = msgspec.structs.replace(
        profile,
        prices=facts.prices,
        thinking="budget" if _BUDGET_THINKING_MODELS.search(model) else "adaptive",
        sealed_reasoning=_OPENAI_REASONING_MODELS.match(model) is not None,
    )
    if facts.context_window is not None:
        profile = msgspec.structs.replace(profile, context_window=facts.context_window)
    return profile


def _conversation_profile(model: str, config: ProviderConfig) -> Profile:
    """Return how a model and its provider handle a conversation, judged by their names."""
    back: ReasoningBack = "tool_loop"
    host = urlsplit(config.base_url).hostname or ""
    refuses = _OPENAI_HOSTS.search(host) is not None and _OPENAI_REASONING_MODELS.match(model) is not None
    if _HOSTS_REFUSING_REASONING.search(host):
        back = "never"
    elif config.mode != "chat_completions" or _REASONING_RETURNED_MODELS.search(model):
        back = "always"
    return Profile(
        reasoning_back=back,
        alternating_roles=_ALTERNATING_ROLE_MODELS.search(model) is not None,
        structured_output=find_structured_output(model, config),
        image_results=_VISION_MODELS.search(model) is not None,
        patches=_PATCH_MODELS.search(model) is not None,
        parameters=find_parameters(model),
        efforts=_find_efforts(model),
        refuses=_SETTINGS_REFUSED_BY_REASONING if refuses else (),
    )


def find_parameters(model: str) -> int | None:
    """Return the number of parameters that the name of a model states, or None.

    Of a fine-tuned model, `ft:BASE:OWNER:…`, only the base counts, and no folder or owner before the name."""
    name = model.rpartition("/")[2]
    if name.startswith("ft:"):
        name = name.split(":")[1]
    billions = [
        float(number) / (1000 if unit in "mM" else 1)
        for number, unit in _PARAMETERS.findall(name)
        if unit in "bB" or float(number) >= _LEAST_MILLIONS
    ]
    return round(max(billions) * 1_000_000_000) or None if billions else None


def _find_efforts(model: str) -> tuple[Effort, ...]:
    minimal: tuple[Effort, ...] = ("minimal",) if _MINIMAL_EFFORT_MODELS.search(model) else ()
    return (*minimal, "xhigh") if _HIGHEST_EFFORT_MODELS.search(model) else minimal
