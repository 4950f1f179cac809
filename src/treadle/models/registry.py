"""Which model a name stands for, and the client that speaks to it."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from treadle.domain.errors import MissingKey, UnknownModel, UsageError
from treadle.domain.providers import ProviderConfig
from treadle.domain.secret_refs import find_secret_names, make_secret_ref
from treadle.domain.suggestions import find_closest
from treadle.models.breaker import SHARED_BREAKERS, Breakers, BreakerState, CircuitBreaker
from treadle.models.catalog import Catalog, WindowSource
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import KeyRing, ProviderKey
from treadle.models.local.models import PROFILE as LOCAL_PROFILE
from treadle.models.local.models import PROVIDER as LOCAL
from treadle.models.local.models import LocalModels
from treadle.models.presets import build_presets
from treadle.models.windows import can_report_window, fetch_window
from treadle.ports.model import Model, Resolved

if TYPE_CHECKING:
    from treadle.models.http.transport import Connections
    from treadle.models.probe import Probe


WINDOW_RETRY_SECONDS = 60.0
"""How long a server that does not say how large a context window is stays unasked."""


class _ReadyProvider(NamedTuple):
    """A provider whose client is at hand."""

    api_mode: str
    client: Model
    config: ProviderConfig | None = None


class ModelRegistry:
    """The providers of one process. Their clients are made when they are first asked for and share their
    connections; a name that is added again replaces the one before."""

    def __init__(
        self,
        environment: Mapping[str, str],
        default_provider: str | None = None,
        catalog: Catalog | None = None,
        clock: Callable[[], float] = time.monotonic,
        weights: Path = Path("models"),
        secret: Callable[[str], str | None] = lambda name: None,
        default_model: str | None = None,
    ) -> None:
        self.catalog = catalog or Catalog()
        self._environment = environment
        self._secret = secret
        self._default = default_provider
        self._default_model = default_model
        self._clock = clock
        self._presets = build_presets(environment)
        self._configs = dict(self._presets)
        self.local = LocalModels(weights)
        self._ready: dict[str, _ReadyProvider] = {LOCAL: _ReadyProvider("chat_completions", self.local)}
        self._own_breakers = Breakers()
        self._settled: set[tuple[str, str]] = set()
        """Models whose server has said which context window they are loaded with."""
        self._ask_again: dict[tuple[str, str], float] = {}
        self._connections: Connections | None = None

    def add(self, name: str, config: ProviderConfig) -> None:
        """Make a provider known under a name. One that is built in keeps the settings that are not given."""
        _check_name(name)
        preset = self._presets.get(name)
        self._configs[name] = config if preset is None else _fill_from_preset(config, preset)
        self._ready.pop(name, None)
        self.catalog.forget(name)

    def add_model(self, name: str, model: Model, api_mode: str = "custom") -> None:
        """Make a ready client known as a provider: it answers for every model id."""
        _check_name(name)
        self._configs.pop(name, None)
        self._ready[name] = _ReadyProvider(api_mode, model)
        self.catalog.forget(name)

    @property
    def providers(self) -> Mapping[str, ProviderConfig | None]:
        """Every provider by its name; None: a client that was brought along."""
        return {name: self._configs.get(name) for name in sorted({*self._configs, *self._ready})}

    def missing(self, name: str) -> str | None:
        """The setting that a provider lacks before it can be asked; None when nothing."""
        config = self._configs.get(name)
        if config is None:
            return None
        try:
            self._keys(name, config)
        except MissingKey:
            return config.api_key_env or f"api_key of provider {name}"
        return None

    def key_problem(self, name: str) -> str | None:
        """Return why a provider cannot be called with the keys that are configured; None if it can."""
        config = self._configs.get(name)
        try:
            if config is not None:
                self._keys(name, config)
        except MissingKey as error:
            return str(error)
        return None

    def is_key_configured(self, name: str) -> bool:
        """Whether any key is given for a provider, usable or not."""
        config = self._configs.get(name)
        if config is None:
            return False
        variable = config.api_key_env or ""
        return bool(config.api_key or config.api_keys or self._secret(variable) or self._environment.get(variable))

    def key_settings(self, name: str) -> Sequence[str]:
        """Return where the keys come from that are sent to a provider. Raises MissingKey."""
        config = self._configs.get(name)
        return [] if config is None else [key.setting for key in self._keys(name, config)[0]]

    async def probe(self, name: str, timeout_seconds: float) -> "Probe":
        """Ask a provider for the listing of its models, which is free. Raises UsageError where a key is missing."""
        from treadle.models.formats import load_format
        from treadle.models.probe import probe_provider

        config = self._configs[name]
        return await probe_provider(
            self._endpoint(name, config, config.base_url), load_format(config.mode), timeout_seconds
        )

    def window_source(self, found: Resolved) -> WindowSource:
        """Return where the context window of a model that was resolved comes from."""
        return self.catalog.window_source(found.provider, found.model, self._configs.get(found.provider))

    def breakers(self) -> list[BreakerState]:
        """The breakers of all models that were called from this process."""
        return [*SHARED_BREAKERS.states(), *self._own_breakers.states()]

    def address(self, name: str) -> tuple[str, str | None, Mapping[str, str]]:
        """Where a provider answers, with which key and which headers: for calls that are not to its models. Raises
        UsageError."""
        config = self._configs.get(name)
        if config is None:
            raise UnknownModel(self._unknown_provider(name, set(self._configs)))
        keys, _ = self._keys(name, config)
        return config.base_url, keys[0].value if keys else None, config.headers

    def resolve(self, model: str, provider: str | None) -> Resolved:
        model = model or self._default_model or ""
        if not model:
            raise UnknownModel(
                "No model is set. Set `model` of the agent, "
                "or `defaults: {model: provider/model-id}` in config.yaml."
            )
        names = self._preferred(self.catalog.names(model))
        if provider and names != (model,):  # of those that an alias stands for, the ones of this provider
            of_provider = tuple(name for name in names if name.startswith(f"{provider}/"))
            names, provider = (of_provider, None) if of_provider else ((model,), provider)
        found, why_not = list[Resolved](), list[UsageError]()
        for name in names:
            try:
                found.append(self._resolve(name, provider))
            except UsageError as error:
                why_not.append(error)
            else:
                if not self._is_left_alone(found[-1]):
                    return self._explained(found[-1], found[:-1], model, names != (model,))
        if not found:
            raise why_not[0]
        return found[0]  # all are left alone: whoever calls will wait for this one

    def _preferred(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The models that a short name stands for, those of the default provider first."""
        prefix = f"{self._default}/"
        return tuple(sorted(names, key=lambda name: not name.startswith(prefix))) if self._default else names

    def _is_left_alone(self, model: Resolved) -> bool:
        breaker = model.breaker
        return isinstance(breaker, CircuitBreaker) and breaker.is_open(self._clock())

    def _explained(self, chosen: Resolved, passed_over: list[Resolved], model: str, is_alias: bool) -> Resolved:
        reasons = [chosen.reason]
        if is_alias:
            reasons.append(f"`{model}` stands for it")
        reasons += [f"{other.provider}/{other.model} is left alone" for other in passed_over]
        return msgspec.structs.replace(chosen, reason="; ".join(reasons)) if len(reasons) > 1 else chosen

    def _resolve(self, model: str, provider: str | None) -> Resolved:
        name, model_id, reason = self._split(model, provider)
        if not model_id:
            raise UnknownModel(f"`{model}` names no model; write {name}/ and the id of one of its models")
        ready = self._ready.get(name)
        if ready is None:
            ready = self._ready[name] = self._connect(name)
        if ready.client is self.local:
            model_id = self.local.find(model_id)
        config = ready.config
        breakers, address = (self._own_breakers, "") if config is None else (SHARED_BREAKERS, config.base_url)
        basis = LOCAL_PROFILE if ready.client is self.local else None
        profile = self.catalog.profile(name, model_id, config, basis)
        breaker = breakers.of(name, address, model_id)
        ask = self._window_asker(name, model_id, ready)
        return Resolved(name, model_id, ready.api_mode, reason, ready.client, breaker, profile, ask)

    def _window_asker(
        self, name: str, model: str, ready: _ReadyProvider
    ) -> Callable[[], Awaitable[int | None]] | None:
        """Return how the server can be asked for the window of a model; None if it need not or cannot be."""
        config = ready.config
        if config is None or (name, model) in self._settled:
            return None
        if (
            not can_report_window(config, getattr(ready.client, "server", None) or "")
            or self.catalog.window_source(name, model, config) == "config"
        ):
            return None
        return partial(self._ask_window, name, model)

    async def _ask_window(self, name: str, model: str) -> int | None:
        """Ask the server of a model for its context window, and keep what it says once it is settled. A server that
        does not say is asked again only after a while."""
        now = self._clock()
        if now < self._ask_again.get((name, model), now):
            return None
        base_url, key, headers = self.address(name)
        window = await fetch_window(
            base_url, model, {**({"Authorization": f"Bearer {key}"} if key else {}), **headers}
        )
        if window is None:
            self._ask_again[name, model] = now + WINDOW_RETRY_SECONDS
            return None
        self.catalog.learn_window(name, model, window.tokens)
        if window.in_force:
            self._settled.add((name, model))
        return window.tokens

    async def close(self) -> None:
        await self.local.close()
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
        near = find_closest(name, known)
        meant = f"; did you mean `{near}`?" if near else ";"
        return (
            f"no provider is called `{name}`{meant} Known providers: {', '.join(sorted(known))}. "
            f"Write provider/model-id with one of them, or add `{name}` under providers in config.yaml."
        )

    def _connect(self, name: str) -> _ReadyProvider:
        # Imported when the first call is made: the HTTP client is half of what starting a command costs.
        from treadle.models.formats import load_format
        from treadle.models.http.client import Client
        from treadle.models.http.transport import Connections

        config = self._configs[name]
        self._connections = self._connections or Connections()
        format_ = load_format(config.mode)
        endpoint = self._endpoint(name, config, _append_path(config.base_url, format_.path))
        return _ReadyProvider(config.mode, Client(format_, endpoint, self._connections), config)

    def _endpoint(self, name: str, config: ProviderConfig, url: str) -> Endpoint:
        keys, setting = self._keys(name, config)
        return Endpoint(
            provider=name,
            url=url,
            keys=KeyRing(keys, self._clock),
            key_setting=setting,
            headers=config.headers,
            timeouts=config.effective_timeouts,
        )

    def _keys(self, name: str, config: ProviderConfig) -> tuple[list[ProviderKey], str]:
        """The keys, and the setting or variable that they come from or would come from."""
        variable = config.api_key_env
        if config.api_key or not variable:
            given, setting = self._filled(config.api_key, name), f"api_key of provider {name}"
        elif kept := self._secret(variable):
            given, setting = kept, f"the secret {variable}"
        else:
            given, setting = self._environment.get(variable), f"the variable {variable}"
        keys = [ProviderKey(given.strip(), setting)] if given and given.strip() else []
        keys += [
            ProviderKey((self._filled(more, name) or "").strip(), f"api_keys[{place}] of provider {name}")
            for place, more in enumerate(config.api_keys)
        ]
        if not keys and config.needs_key:
            also = f", or `treadle vault set {variable}`, or api_key" if variable else ""
            raise MissingKey(
                f"provider {name} needs a key and none is set; "
                f"set {setting}{also} under providers.{name} in config.yaml"
            )
        for key in keys:
            if not (key.value and key.value.isascii() and key.value.isprintable()):
                raise MissingKey(f"{key.setting} holds characters that no key has; copy the key again")
        return keys, setting

    def _filled(self, key: str | None, provider: str) -> str | None:
        """The key itself, where a handle stands for it."""
        names = find_secret_names(key or "")
        if key is None or not names:
            return key
        value = self._secret(names[0])
        if value is None:
            raise MissingKey(
                f"provider {provider} takes its key from the secret {names[0]}, which is not set; "
                f"set it with `treadle vault set {names[0]}`"
            )
        return key.replace(make_secret_ref(names[0]), value)


def _fill_from_preset(config: ProviderConfig, preset: ProviderConfig) -> ProviderConfig:
    """Return the configuration of a built-in provider with what it leaves out: key variable, API mode, timeouts. At
    another address a missing key is not an error: a proxy may add its own."""
    has_key = config.api_key is not None or bool(config.api_keys)
    return msgspec.structs.replace(
        config,
        api_mode=config.api_mode or preset.mode,
        api_key_env=config.api_key_env or (None if has_key else preset.api_key_env),
        needs_key=config.needs_key or (config.base_url == preset.base_url and preset.needs_key),
        timeouts=config.timeouts or preset.timeouts,
        local=config.local or preset.local,
    )


def _append_path(base_url: str, path: str) -> str:
    """The address of a path below a base URL; a query stays behind it."""
    url = urlsplit(base_url)
    return url._replace(path=url.path.rstrip("/") + path).geturl()


def _check_name(name: str) -> None:
    if not name or "/" in name:
        raise UsageError(f"a provider cannot be called `{name}`; give it a name without a slash")
