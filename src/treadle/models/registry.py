"""Resolves model names to providers, and creates and caches the client of each provider."""

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
from treadle.models.local.models import PROVIDER as LOCAL
from treadle.models.local.models import LocalModels
from treadle.models.presets import build_presets
from treadle.models.windows import can_report_window, fetch_window
from treadle.ports.model import Model, Resolved

if TYPE_CHECKING:
    from treadle.models.http.transport import Connections
    from treadle.models.probe import Probe


WINDOW_RETRY_SECONDS = 60.0
"""How long to wait before asking a server again that did not report a context window."""


class _ReadyProvider(NamedTuple):
    """A provider whose client has been created."""

    api_mode: str
    client: Model
    config: ProviderConfig | None = None


class ModelRegistry:
    """The providers of one process. Clients are created on first use and share their connections. Adding a name
    again replaces the earlier provider."""

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
        self._configured: set[str] = set()
        """Providers of the home's settings."""
        self.local = LocalModels(weights)
        self._ready: dict[str, _ReadyProvider] = {LOCAL: _ReadyProvider("chat_completions", self.local)}
        self._own_breakers = Breakers()
        self._settled: set[tuple[str, str]] = set()
        """Models whose server has reported the window with which they are loaded."""
        self._window_retry_at: dict[tuple[str, str], float] = {}
        self._connections: Connections | None = None

    def add(self, name: str, config: ProviderConfig) -> None:
        """Register a provider under a name. A built-in provider keeps the settings that `config` leaves out."""
        _check_name(name)
        preset = self._presets.get(name)
        self._configs[name] = config if preset is None else _fill_from_preset(config, preset)
        self._ready.pop(name, None)
        self.catalog.forget(name)

    def reconfigure(
        self, providers: Mapping[str, ProviderConfig], default_provider: str | None, default_model: str | None
    ) -> None:
        """Use other settings of the home from the next request on. Providers that a program has added stay."""
        self._default, self._default_model = default_provider, default_model
        for name in self._configured - set(providers):
            self._configured.discard(name)
            self._configs.pop(name, None)
            self._ready.pop(name, None)
            if name in self._presets:
                self._configs[name] = self._presets[name]
            self.catalog.forget(name)
        for name, config in providers.items():
            self.configure(name, config)

    def configure(self, name: str, config: ProviderConfig) -> None:
        """Register a provider of the home's settings. Its client stays if nothing has changed."""
        preset = self._presets.get(name)
        if self._configs.get(name) != (config if preset is None else _fill_from_preset(config, preset)):
            self.add(name, config)
        self._configured.add(name)

    def add_model(self, name: str, model: Model, api_mode: str = "custom") -> None:
        """Register an existing client as a provider. It serves every model id."""
        _check_name(name)
        self._configs.pop(name, None)
        self._ready[name] = _ReadyProvider(api_mode, model)
        self.catalog.forget(name)

    @property
    def providers(self) -> Mapping[str, ProviderConfig | None]:
        """Return every provider by name. None: a client that was registered with `add_model`."""
        return {name: self._configs.get(name) for name in sorted({*self._configs, *self._ready})}

    def find_missing_key(self, name: str) -> str | None:
        """Return the setting that a provider lacks before it can be called, or None."""
        config = self._configs.get(name)
        if config is None:
            return None
        try:
            self._keys(name, config)
        except MissingKey:
            return config.api_key_env or f"api_key of provider {name}"
        return None

    def explain_key_problem(self, name: str) -> str | None:
        """Return why a provider cannot be called with the configured keys, or None if it can."""
        config = self._configs.get(name)
        try:
            if config is not None:
                self._keys(name, config)
        except MissingKey as error:
            return str(error)
        return None

    def is_key_configured(self, name: str) -> bool:
        """Return whether any key is configured for a provider, valid or not."""
        config = self._configs.get(name)
        if config is None:
            return False
        variable = config.api_key_env or ""
        return bool(config.api_key or config.api_keys or self._secret(variable) or self._environment.get(variable))

    def key_settings(self, name: str) -> Sequence[str]:
        """Return where the keys sent to a provider come from. Raise MissingKey if a required key is missing."""
        config = self._configs.get(name)
        return [] if config is None else [key.setting for key in self._keys(name, config)[0]]

    async def probe(self, name: str, timeout_seconds: float) -> "Probe":
        """Request the model listing of a provider, which is free. Raise UsageError if a key is missing."""
        from treadle.models.formats import load_format
        from treadle.models.probe import probe_provider

        config = self._configs[name]
        return await probe_provider(
            self._endpoint(name, config, config.base_url), load_format(config.mode), timeout_seconds
        )

    def window_source(self, found: Resolved) -> WindowSource:
        """Return where the context window of a resolved model comes from."""
        return self.catalog.window_source(found.provider, found.model, self._configs.get(found.provider))

    def breakers(self) -> list[BreakerState]:
        """Return the breakers of all models called from this process."""
        return [*SHARED_BREAKERS.states(), *self._own_breakers.states()]

    def address(self, name: str) -> tuple[str, str | None, Mapping[str, str]]:
        """Return the base URL, key and headers of a provider, for requests other than model calls. Raise
        UsageError if the provider is unknown or lacks a key."""
        config = self._configs.get(name)
        if config is None:
            raise UnknownModel(self._describe_unknown_provider(name, set(self._configs)))
        keys, _ = self._keys(name, config)
        return config.base_url, keys[0].value if keys else None, config.headers

    def resolve(self, model: str, provider: str | None) -> Resolved:
        model = model or self._default_model or ""
        if not model:
            raise UnknownModel(
                "No model is set. Set `model` of the agent, "
                "or `defaults: {model: provider/model-id}` in config.yaml."
            )
        names = self._sort_by_default(self.catalog.names(model))
        if provider and names != (model,):  # keep only the alias's models of this provider
            of_provider = tuple(name for name in names if name.startswith(f"{provider}/"))
            names, provider = (of_provider, None) if of_provider else ((model,), provider)
        found, errors = list[Resolved](), list[UsageError]()
        for name in names:
            try:
                found.append(self._resolve(name, provider))
            except UsageError as error:
                errors.append(error)
            else:
                if not self._is_breaker_open(found[-1]):
                    return self._add_reasons(found[-1], found[:-1], model, names != (model,))
        if not found:
            raise errors[0]
        return found[0]  # every breaker is open: the caller waits for the first model

    def _sort_by_default(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the candidate models of an alias with those of the default provider first."""
        prefix = f"{self._default}/"
        return tuple(sorted(names, key=lambda name: not name.startswith(prefix))) if self._default else names

    def _is_breaker_open(self, model: Resolved) -> bool:
        breaker = model.breaker
        return isinstance(breaker, CircuitBreaker) and breaker.is_open(self._clock())

    def _add_reasons(self, chosen: Resolved, skipped: list[Resolved], model: str, is_alias: bool) -> Resolved:
        reasons = [chosen.reason]
        if is_alias:
            reasons.append(f"`{model}` stands for it")
        reasons += [f"{other.provider}/{other.model} is left alone" for other in skipped]
        return msgspec.structs.replace(chosen, reason="; ".join(reasons)) if len(reasons) > 1 else chosen

    def _resolve(self, model: str, provider: str | None) -> Resolved:
        name, model_id, reason = self._split_name(model, provider)
        if not model_id:
            raise UnknownModel(
                f"`{model}` does not name a model. Write {name}/ followed by the id of one of its models"
            )
        ready = self._ready.get(name)
        if ready is None:
            ready = self._ready[name] = self._connect(name)
        if ready.client is self.local:
            model_id = self.local.find(model_id)
        config = ready.config
        breakers, address = (self._own_breakers, "") if config is None else (SHARED_BREAKERS, config.base_url)
        basis = self.local.profile(model_id) if ready.client is self.local else None
        profile = self.catalog.profile(name, model_id, config, basis)
        breaker = breakers.get(name, address, model_id)
        fetch = self._make_window_fetcher(name, model_id, ready)
        return Resolved(
            provider=name,
            model=model_id,
            api_mode=ready.api_mode,
            reason=reason,
            client=ready.client,
            breaker=breaker,
            profile=profile,
            query_window=fetch,
        )

    def _make_window_fetcher(
        self, name: str, model: str, ready: _ReadyProvider
    ) -> Callable[[], Awaitable[int | None]] | None:
        """Return a function that asks the server for the window of a model, or None if it need not or cannot be
        asked."""
        config = ready.config
        if config is None or (name, model) in self._settled:
            return None
        if (
            not can_report_window(config, getattr(ready.client, "server", None) or "")
            or self.catalog.window_source(name, model, config) == "config"
        ):
            return None
        return partial(self._fetch_window, name, model)

    async def _fetch_window(self, name: str, model: str) -> int | None:
        """Ask the server of a model for its context window, and store the answer. A server that does not report
        one is asked again only after WINDOW_RETRY_SECONDS."""
        now = self._clock()
        if now < self._window_retry_at.get((name, model), now):
            return None
        base_url, key, headers = self.address(name)
        window = await fetch_window(
            base_url, model, {**({"Authorization": f"Bearer {key}"} if key else {}), **headers}
        )
        if window is None:
            self._window_retry_at[name, model] = now + WINDOW_RETRY_SECONDS
            return None
        self.catalog.record_window(name, model, window.tokens)
        if window.in_force:
            self._settled.add((name, model))
        return window.tokens

    async def close(self) -> None:
        await self.local.close()
        if self._connections is not None:
            await self._connections.close()

    def _split_name(self, model: str, provider: str | None) -> tuple[str, str, str]:
        """Return the provider, the model id at that provider, and how the provider was chosen."""
        known = {*self._configs, *self._ready}
        if provider:
            if provider not in known:
                raise UnknownModel(self._describe_unknown_provider(provider, known))
            return provider, model, "the provider was given"
        head, slash, rest = model.partition("/")
        if slash and head in known:
            return head, rest, "the model names its provider"
        before, colon, after = model.partition(":")  # as other libraries write it
        if colon and "/" not in before and before in known:
            return before, after, "the model names its provider"
        if self._default:
            if self._default not in known:
                raise UnknownModel(self._describe_unknown_provider(self._default, known))
            return self._default, model, "the default provider"
        if slash and not head:
            raise UnknownModel(f"`{model}` has no provider before the slash; write provider/model-id")
        if slash:
            raise UnknownModel(self._describe_unknown_provider(head, known))
        near = find_closest(model, self.catalog.aliases)
        meant = f"did you mean `{near}`? Otherwise write" if near else "write"
        raise UnknownModel(
            f"`{model}` does not say which provider it is from; {meant} provider/{model or 'model-id'}, "
            f"or set provider; known providers: {', '.join(sorted(known))}"
        )

    def _describe_unknown_provider(self, name: str, known: set[str]) -> str:
        near = find_closest(name, known)
        meant = f"; did you mean `{near}`?" if near else "."
        return (
            f"no provider is called `{name}`{meant} Known providers: {', '.join(sorted(known))}. "
            f"Write provider/model-id with one of them, or add `{name}` under providers in config.yaml."
        )

    def _connect(self, name: str) -> _ReadyProvider:
        # Imported at the first call: the HTTP client is half of the start-up time of a command.
        from treadle.models.formats import load_format
        from treadle.models.http.client import ModelClient
        from treadle.models.http.transport import Connections

        config = self._configs[name]
        self._connections = self._connections or Connections()
        format_ = load_format(config.mode)
        endpoint = self._endpoint(name, config, _append_path(config.base_url, format_.path))
        return _ReadyProvider(config.mode, ModelClient(format_, endpoint, self._connections), config)

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
        """Return the keys, and the setting or variable that they come from or would come from."""
        variable = config.api_key_env
        if config.api_key or not variable:
            given, setting = self._fill_secret_ref(config.api_key, name), f"api_key of provider {name}"
        elif secret := self._secret(variable):
            given, setting = secret, f"the secret {variable}"
        else:
            given, setting = self._environment.get(variable), f"the variable {variable}"
        keys = [ProviderKey(given.strip(), setting)] if given and given.strip() else []
        keys += [
            ProviderKey(
                (self._fill_secret_ref(key_text, name) or "").strip(), f"api_keys[{place}] of provider {name}"
            )
            for place, key_text in enumerate(config.api_keys)
        ]
        if not keys and config.needs_key:
            also = f", or `treadle vault set {variable}`, or api_key" if variable else ""
            raise MissingKey(
                f"provider {name} needs a key and none is set; "
                f"set {setting}{also} under providers.{name} in config.yaml"
            )
        for key in keys:
            if not (key.value and key.value.isascii() and key.value.isprintable()):
                raise MissingKey(f"{key.setting} contains characters that a key cannot have. Copy the key again")
        return keys, setting

    def _fill_secret_ref(self, key: str | None, provider: str) -> str | None:
        """Return the key with a secret reference replaced by the secret."""
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
    """Return the configuration of a built-in provider with its defaults filled in: key variable, API mode,
    timeouts. At another address a missing key is not an error, because a proxy may add its own."""
    has_key = config.api_key is not None or bool(config.api_keys)
    return msgspec.structs.replace(
        config,
        api_mode=preset.mode if config.api_mode is None else config.mode,
        api_key_env=config.api_key_env or (None if has_key else preset.api_key_env),
        needs_key=config.needs_key or (config.base_url == preset.base_url and preset.needs_key),
        timeouts=config.timeouts or preset.timeouts,
        local=config.local or preset.local,
    )


def _append_path(base_url: str, path: str) -> str:
    """Return the URL of a path below a base URL, keeping its query."""
    url = urlsplit(base_url)
    return url._replace(path=url.path.rstrip("/") + path).geturl()


def _check_name(name: str) -> None:
    if not name or "/" in name:
        raise UsageError(f"`{name}` is not a valid provider name. Choose a name without a slash")
