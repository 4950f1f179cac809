"""Which model a name stands for, and the client that speaks to it."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from treadle.domain.errors import MissingKey, UnknownModel, UsageError
from treadle.domain.providers import ProviderConfig
from treadle.models.endpoint import Endpoint
from treadle.models.presets import presets
from treadle.ports.model import Model, Resolved

if TYPE_CHECKING:
    from treadle.models.transport import Connections


class _Ready(NamedTuple):
    """A provider whose client is at hand."""

    api_mode: str
    client: Model


class ModelRegistry:
    """The providers of one process. Their clients are made when they are first asked for and share their
    connections; a name that is added again replaces the one before."""

    def __init__(self, environment: Mapping[str, str], default_provider: str | None = None) -> None:
        self._environment = environment
        self._default = default_provider
        self._configs = presets(environment)
        self._ready: dict[str, _Ready] = {}
        self._connections: Connections | None = None

    def add(self, name: str, config: ProviderConfig) -> None:
        """Make a provider known under a name."""
        _check_name(name)
        self._configs[name] = config
        self._ready.pop(name, None)

    def add_model(self, name: str, model: Model, api_mode: str = "custom") -> None:
        """Make a ready client known as a provider: it answers for every model id."""
        _check_name(name)
        self._configs.pop(name, None)
        self._ready[name] = _Ready(api_mode, model)

    def resolve(self, model: str, provider: str | None) -> Resolved:
        name, model_id, reason = self._split(model, provider)
        if not model_id:
            raise UnknownModel(f"`{model}` names no model; write {name}/ and the id of one of its models")
        ready = self._ready.get(name)
        if ready is None:
            ready = self._ready[name] = self._connect(name)
        return Resolved(name, model_id, ready.api_mode, reason, ready.client)

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.close()

    def _split(self, model: str, provider: str | None) -> tuple[str, str, str]:
        """The provider, the id by which it knows the model, and how the provider was found."""
        known = {*self._configs, *self._ready}
        if provider:
            if provider not in known:
                raise UnknownModel(self._unknown_provider(provider, known))
            return provider, model, "the provider was given"
        head, slash, rest = model.partition("/")
        if slash and head in known:
            return head, rest, "the model names its provider"
        if self._default:
            if self._default not in known:
                raise UnknownModel(self._unknown_provider(self._default, known))
            return self._default, model, "the default provider"
        if slash:
            raise UnknownModel(self._unknown_provider(head, known))
        raise UnknownModel(
            f"`{model}` does not say which provider it is from; write provider/{model or 'model-id'}, "
            f"or set provider; known providers: {', '.join(sorted(known))}"
        )

    def _unknown_provider(self, name: str, known: set[str]) -> str:
        near = get_close_matches(name, known, n=1)
        meant = f"; did you mean `{near[0]}`?" if near else ";"
        return (
            f"no provider is called `{name}`{meant} Known providers: {', '.join(sorted(known))}. "
            f"Write provider/model-id with one of them, or add `{name}` under providers in config.yaml."
        )

    def _connect(self, name: str) -> _Ready:
        # Imported when the first call is made: the HTTP client is half of what starting a command costs.
        from treadle.models.chat_completions import ChatCompletions
        from treadle.models.transport import Connections

        config = self._configs[name]
        self._connections = self._connections or Connections()
        key, setting = self._key(name, config)
        endpoint = Endpoint(
            provider=name,
            url=config.base_url.rstrip("/") + "/chat/completions",
            api_key=key,
            key_setting=setting,
            headers=config.headers,
            timeouts=config.timeouts,
        )
        return _Ready(config.api_mode, ChatCompletions(endpoint, self._connections))

    def _key(self, name: str, config: ProviderConfig) -> tuple[str | None, str]:
        """The key, and the setting or variable that it comes from or would come from."""
        variable = config.api_key_env
        if config.api_key or not variable:
            key, setting = config.api_key, f"api_key of provider {name}"
        else:
            key, setting = self._environment.get(variable), f"the variable {variable}"
        key = (key or "").strip()
        if not key and config.needs_key:
            also = f" or api_key under providers.{name} in config.yaml" if variable else " in config.yaml"
            raise MissingKey(f"provider {name} needs a key and none is set; set {setting}{also}")
        if not (key.isascii() and key.isprintable()):
            raise MissingKey(f"{setting} holds characters that no key has; copy the key again")
        return key or None, setting


def _check_name(name: str) -> None:
    if not name or "/" in name:
        raise UsageError(f"a provider cannot be called `{name}`; give it a name without a slash")
