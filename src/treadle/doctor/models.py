"""Checks of the models that agents use: whether their provider lists them, and where their context windows come
from."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from treadle.config.home import DEFAULT_AGENT, Home
from treadle.config.home_config import HomeConfig
from treadle.config.system_agents import ERROR_ANALYZER, QUALITY_CHECKER, SYSTEM_AGENTS
from treadle.doctor.findings import setting
from treadle.doctor.windows import WINDOW_SOURCES
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError, UsageError
from treadle.home.model_list import ConfiguredModel, list_configured_models
from treadle.models.local.models import PROVIDER as LOCAL
from treadle.models.probe import Probe
from treadle.models.registry import ModelRegistry
from treadle.operations.system_facts import DoctorFinding
from treadle.ports.model import Resolved


class ProviderSurvey(Struct, frozen=True):
    """The providers of a home, and the results of their probes."""

    models: ModelRegistry
    probes: Mapping[str, Probe]

    def resolve(self, configured: ConfiguredModel) -> Resolved | None:
        try:
            return self.models.resolve(configured.model, configured.provider)
        except UsageError:
            return None


def describe_models(home: Home, config: HomeConfig, surveyed: ProviderSurvey) -> Iterator[DoctorFinding]:
    """Yield the findings about short names, the default model, agents and context windows."""
    yield _describe_aliases(surveyed)
    if config.defaults.model is None:
        advice = "Name one with -m, or set defaults.model in config.yaml."
        yield setting("default model", "none is set", advice, "note")
    else:
        yield describe_model(
            ConfiguredModel("default model", config.defaults.model, config.defaults.provider), surveyed
        )
    yield from _describe_agents(home, surveyed)
    yield from _describe_windows(list_configured_models(home, config), surveyed)


def describe_model(configured: ConfiguredModel, surveyed: ProviderSurvey) -> DoctorFinding:
    """Return whether the provider of a model lists it. The model is not called, because that may be charged."""
    about = configured.about
    try:
        found = surveyed.models.resolve(configured.model, configured.provider)
    except UsageError as error:
        return setting(about, str(error), "Correct the name, or set what is missing.", "wrong")
    name, probe = f"{found.provider}/{found.model}", surveyed.probes.get(found.provider)
    if found.provider == LOCAL:
        return setting(about, f"{name}: its weights are on this machine; it was not started")
    if probe is None:
        return setting(about, f"{name}, not tried")
    match probe.verdict:
        case "answers" if probe.models is None:
            return setting(about, f"{name}, not tried", f"`treadle models test {name}` calls it.")
        case "answers" if probe.lists(found.model):
            return DoctorFinding(about, "ok", f"{name}: {found.provider} lists it")
        case "answers":
            advice = f"Check the name. `treadle models test {name}` calls it; that may be charged."
            return DoctorFinding(about, "note", f"{name}: {found.provider} does not list it", advice)
        case "unclear":
            return DoctorFinding(about, "note", f"{name}: {found.provider} {probe.words}", probe.advice)
        case _:
            return DoctorFinding(about, "wrong", f"{name}: {found.provider} {probe.words}", probe.advice)


def _describe_aliases(surveyed: ProviderSurvey) -> DoctorFinding:
    names = sorted(surveyed.models.catalog.aliases)
    found = {name: describe_model(ConfiguredModel(name, name), surveyed) for name in names}
    offered = [name for name in names if found[name].state == "ok"]
    untried = [name for name in names if found[name].state == "set"]
    if offered:
        return DoctorFinding("models", "ok", f"short names that their provider lists: {', '.join(offered)}")
    if untried:
        return setting("models", f"short names that can be tried: {', '.join(untried)}")
    advice = "Any model of a provider that answers can be called as provider/model-id."
    none = f"none of the short names can be called ({', '.join(names)})"
    if any(each.basis == "probed" for each in found.values()):
        return DoctorFinding("models", "note", none, advice)
    return setting("models", none, advice, "note")


def _describe_agents(home: Home, surveyed: ProviderSurvey) -> Iterator[DoctorFinding]:
    names = home.agents()
    for name in names:
        try:
            spec = home.agent(name)
        except ConfigError as error:
            yield DoctorFinding(f"agent {name}", "wrong", str(error), f"Correct it: treadle agents edit {name}")
        else:
            yield describe_model(ConfiguredModel(f"agent {name}", spec.model, spec.provider), surveyed)
            yield from _describe_judges(spec, names)
            if (limit := spec.limits.context_window) is not None:
                yield setting(f"context window agent {name}", f"{limit:,} tokens, set in its file")
    if DEFAULT_AGENT not in names:
        yield DoctorFinding("agent default", "note", "does not exist yet", "It is created on first use.")


def _describe_judges(agent: AgentSpec, names: Sequence[str]) -> Iterator[DoctorFinding]:
    """Yield the configured evaluators of an agent that do not exist."""
    named = {"quality.checker": agent.quality.checker, "errors.analyzer": agent.errors.analyzer}
    for key, judge in named.items():
        if judge is not None and judge not in (*names, *SYSTEM_AGENTS, DEFAULT_AGENT):
            found = f"no agent is called `{judge}`: runs of `{agent.name}` end without being judged"
            ours = QUALITY_CHECKER if key == "quality.checker" else ERROR_ANALYZER
            advice = f"Name an existing agent, or {ours}: treadle agents edit {agent.name}"
            yield DoctorFinding(f"{key} of {agent.name}", "wrong", found, advice)


def _describe_windows(configured: Sequence[ConfiguredModel], surveyed: ProviderSurvey) -> Iterator[DoctorFinding]:
    """Yield one finding per model in use: its context window, and where the number comes from."""
    resolved = [found for each in configured if (found := surveyed.resolve(each)) is not None]
    for name, found in {f"{found.provider}/{found.model}": found for found in resolved}.items():
        about, used = f"context window {name}", found.profile.context_window
        source = surveyed.models.window_source(found)
        words = f"{used:,} tokens, {WINDOW_SOURCES[source]}"
        advice = f"Set context_window under models.{name} in config.yaml."
        probe = surveyed.probes.get(found.provider)
        stated = None if probe is None else probe.window(found.model)
        if stated is None:
            is_guess = source == "assumed"
            yield setting(about, words, advice if is_guess else "", "note" if is_guess else "set")
        elif stated < used:
            yield DoctorFinding(about, "wrong", f"{words}; {found.provider} says {stated:,}", advice)
        elif stated > used:
            yield DoctorFinding(about, "note", f"{words}; {found.provider} says {stated:,}", advice)
        else:
            yield DoctorFinding(about, "ok", f"{words}; {found.provider} says the same")
