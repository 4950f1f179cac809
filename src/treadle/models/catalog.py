"""What is known about models: short names, context windows, abilities, prices. A home may know better."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from treadle.domain.models import ModelFacts, Profile, ReasoningBack
from treadle.domain.providers import ProviderConfig

_BUDGET_THINKING_MODELS = re.compile(r"claude-(?:[23]|4-|(?:opus|sonnet|haiku)-4(?:-[015])?(?:$|[-@]\d{8}))")
"""Models that think by a budget of tokens; later ones are told how hard to try."""
_OPENAI_REASONING_MODELS = re.compile(r"(?:openai/)?(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*chat)|codex)")
"""Models of OpenAI that reason, and give their reasoning in a sealed form."""
_REASONING_RETURNED_MODELS = re.compile(r"(?:^|[/.])(?:kimi|glm|minimax|moonshot)", re.IGNORECASE)
"""Models whose providers want all of their reasoning back: Moonshot, Z.ai, MiniMax. DeepSeek wants that of turns
with calls, which is what unknown models get."""
_HOSTS_REFUSING_REASONING = re.compile(r"(?:^|\.)(?:openai\.com|azure\.com|mistral\.ai|cerebras\.ai)$")
"""Hosts that refuse reasoning in a request of the `chat_completions` format."""
_ALTERNATING_ROLE_MODELS = re.compile(
    r"gemma-?[12](?!\d)|mixtral|mistral-?7b|mistral:|llama-?2(?!\d)|codellama", re.IGNORECASE
)
"""Models whose chat templates refuse two messages of the user in a row."""
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
"""Short names, each with the models it stands for: the first whose provider has a key and answers."""


WindowSource = Literal["config", "catalog", "local", "server", "assumed"]
"""Where a context window comes from: `models` in config.yaml; the built-in catalog; what a model on this machine is
started with; what its server says; or nowhere, so that it is an assumption."""
LOCAL_PROVIDER = "local"


class Catalog:
    """Looks models up, each once."""

    def __init__(
        self, aliases: Mapping[str, tuple[str, ...]] | None = None, models: Mapping[str, ModelFacts] | None = None
    ) -> None:
        self.aliases: dict[str, tuple[str, ...]] = {**ALIASES, **(aliases or {})}
        self._models = dict(models or {})
        self._profiles: dict[tuple[str, str], Profile] = {}
        self._told: set[tuple[str, str]] = set()
        """Models whose server has told their context window."""

    def names(self, model: str) -> tuple[str, ...]:
        """Return the models that a short name stands for, or the name itself."""
        return self.aliases.get(model, (model,))

    def profile(
        self, provider: str, model: str, config: ProviderConfig | None, basis: Profile | None = None
    ) -> Profile:
        """The facts about a model. Without a `config`, for a client that came along, they are the `basis`."""
        found = self._profiles.get((provider, model))
        if found is None:
            known = (basis or Profile()) if config is None else _build_profile(provider, model, config)
            found = self._profiles[provider, model] = self._corrected(f"{provider}/{model}", known)
        return found

    def window_source(self, provider: str, model: str, config: ProviderConfig | None) -> WindowSource:
        """Return where the context window in the profile of a model comes from."""
        said = self._models.get(f"{provider}/{model}")
        if said is not None and said.context_window is not None:
            return "config"
        if (provider, model) in self._told:
            return "server"
        if config is None:
            return "local" if provider == LOCAL_PROVIDER else "assumed"
        return "catalog" if _find_catalog_window(provider, model, config) else "assumed"

    def learn_window(self, provider: str, model: str, tokens: int) -> None:
        """Take the context window that the server of a model states."""
        profile = self._profiles.get((provider, model), Profile())
        self._profiles[provider, model] = msgspec.structs.replace(profile, context_window=tokens)
        self._told.add((provider, model))

    def forget(self, provider: str) -> None:
        """Another provider goes by this name now."""
        self._told = {key for key in self._told if key[0] != provider}
        self._profiles = {key: found for key, found in self._profiles.items() if key[0] != provider}

    def _corrected(self, name: str, profile: Profile) -> Profile:
        """The profile with what the home says of the model."""
        said = self._models.get(name)
        if said is None:
            return profile
        stated = {name: value for name, value in msgspec.structs.asdict(said).items() if value is not None}
        return msgspec.structs.replace(profile, **stated)


def _find_catalog_window(provider: str, model: str, config: ProviderConfig) -> int | None:
    if config.local or is_loopback(config):
        return None
    from treadle.models.prices import find_public_facts

    return find_public_facts(provider, config.base_url, model).context_window


def is_loopback(config: ProviderConfig) -> bool:
    """Whether a provider is configured on this machine."""
    return _LOOPBACK_HOST.fullmatch(urlsplit(config.base_url).hostname or "") is not None


def _build_profile(provider: str, model: str, config: ProviderConfig) -> Profile:
    ways = _conversation_profile(model, config)
    if config.local:
        return msgspec.structs.replace(ways, local=True)
    if is_loopback(config):
        return ways  # its price is not public
    from treadle.models.prices import find_public_facts

    found = find_public_facts(provider, config.base_url, model)
    profile = msgspec.structs.replace(
        ways,
        prices=found.prices,
        thinking="budget" if _BUDGET_THINKING_MODELS.search(model) else "adaptive",
        sealed_reasoning=_OPENAI_REASONING_MODELS.match(model) is not None,
    )
    if found.context_window is not None:
        profile = msgspec.structs.replace(profile, context_window=found.context_window)
    return profile


def _conversation_profile(model: str, config: ProviderConfig) -> Profile:
    """Return what a model and its provider do with a conversation, by their names."""
    back: ReasoningBack = "tool_loop"
    if _HOSTS_REFUSING_REASONING.search(urlsplit(config.base_url).hostname or ""):
        back = "never"
    elif _REASONING_RETURNED_MODELS.search(model):
        back = "always"
    return Profile(reasoning_back=back, alternating_roles=_ALTERNATING_ROLE_MODELS.search(model) is not None)
