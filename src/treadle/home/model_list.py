"""What `treadle models list` shows: providers, with what they answered or their settings, and short names."""

from collections.abc import Sequence

from msgspec import Struct

from treadle.config.home import Home
from treadle.config.home_config import HomeConfig
from treadle.domain.errors import ConfigError, MissingKey, UsageError
from treadle.domain.providers import ApiMode, remove_credentials
from treadle.models.probe import PROBE_SECONDS, Probe
from treadle.models.provider_probes import (
    Progress,
    describe_key,
    ignore_progress,
    is_local,
    list_callable_providers,
    probe_providers,
)
from treadle.models.registry import ModelRegistry
from treadle.operations.system_facts import FindingBasis, ModelKind, ModelView


class ConfiguredModel(Struct, frozen=True):
    """A model that something is configured to use."""

    about: str
    model: str
    provider: str | None = None


class ListedProvider(Struct, frozen=True):
    """One provider."""

    provider: str
    base_url: str
    api_mode: ApiMode
    ready: bool | None
    """Whether it answered; None: it was not asked."""
    basis: FindingBasis
    found: str


class ListedAlias(Struct, frozen=True):
    """One short name."""

    alias: str
    models: tuple[str, ...]
    now: str | None
    """The model that it stands for with the keys and weights that are there; None: there are none."""
    reason: str | None = None
    """Why it stands for none."""


async def list_providers(
    models: ModelRegistry,
    *,
    probe_hosted: bool,
    progress: Progress = ignore_progress,
    timeout_seconds: float = PROBE_SECONDS,
) -> Sequence[ListedProvider]:
    """Ask the providers on this machine for their models, and hosted ones that have a key if that is wanted."""
    configs = {name: config for name, config in models.providers.items() if config is not None}
    asked = [name for name in list_callable_providers(models) if probe_hosted or is_local(configs[name])]
    probes = await probe_providers(models, asked, progress, timeout_seconds)
    return [
        ListedProvider(
            provider=name,
            base_url=remove_credentials(config.base_url),
            api_mode=config.mode,
            ready=_is_ready(models, name, probes.get(name)),
            basis="probed" if name in probes else "setting",
            found=_describe(models, name, probes.get(name)),
        )
        for name, config in configs.items()
    ]


def list_aliases(models: ModelRegistry) -> Sequence[ListedAlias]:
    return [_view_alias(models, alias, names) for alias, names in sorted(models.catalog.aliases.items())]


def _is_ready(models: ModelRegistry, name: str, probe: Probe | None) -> bool | None:
    if models.find_missing_key(name) is not None:
        return False
    return None if probe is None else probe.verdict == "answers"


def _describe(models: ModelRegistry, name: str, probe: Probe | None) -> str:
    if (problem := models.explain_key_problem(name)) is not None:
        return problem if models.is_key_configured(name) else f"no key: set {models.find_missing_key(name)}"
    return f"{describe_key(name, models)}, not tried" if probe is None else probe.words


def _view_alias(models: ModelRegistry, alias: str, names: tuple[str, ...]) -> ListedAlias:
    try:
        found = models.resolve(alias, None)
    except MissingKey:
        return ListedAlias(alias, names, None, "no key is set")
    except UsageError as error:
        return ListedAlias(alias, names, None, str(error))
    return ListedAlias(alias, names, f"{found.provider}/{found.model}")


def list_configured_models(home: Home, config: HomeConfig) -> list[ConfiguredModel]:
    """Return the default model and the models of all agents whose files can be read."""
    defaults = config.defaults
    configured = (
        [] if defaults.model is None else [ConfiguredModel("default model", defaults.model, defaults.provider)]
    )
    for name in home.agents():
        try:
            spec = home.agent(name)
        except ConfigError:
            continue
        configured.append(ConfiguredModel(f"agent {name}", spec.model, spec.provider))
    return configured


async def list_models(
    home: Home, models: ModelRegistry, *, probe: bool, timeout_seconds: float = PROBE_SECONDS
) -> Sequence[ModelView]:
    """Return the aliases and the configured models; with `probe`, also the models that the providers offer."""
    config = home.config()
    default = config.defaults.model
    configured = dict.fromkeys([each.model for each in list_configured_models(home, config)] + [*config.models])
    aliases = sorted(models.catalog.aliases)
    views = [_view_model(models, name, "alias", default) for name in aliases]
    views += [_view_model(models, name, "configured", default) for name in configured if name not in aliases]
    if probe:
        known = {view.resolved for view in views}
        probes = await probe_providers(models, list_callable_providers(models), ignore_progress, timeout_seconds)
        offered = [f"{name}/{model}" for name, found in probes.items() for model in sorted(found.models or ())]
        views += [_view_model(models, name, "listed", default) for name in offered if name not in known]
    return views


def _view_model(models: ModelRegistry, name: str, kind: ModelKind, default: str | None) -> ModelView:
    try:
        found = models.resolve(name, None)
    except UsageError as error:
        return ModelView(name, kind, is_default=name == default, problem=str(error))
    profile = found.profile
    return ModelView(
        name=name,
        kind=kind,
        resolved=f"{found.provider}/{found.model}",
        context_window=profile.context_window,
        window_source=models.window_source(found),
        input_price=None if profile.prices is None else profile.prices.input,
        output_price=None if profile.prices is None else profile.prices.output,
        local=profile.local,
        is_default=name == default,
    )
