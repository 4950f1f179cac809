"""Checks of providers: which ones respond, which are only configured, and which keys are sent where."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from treadle.doctor.findings import setting
from treadle.domain.providers import ProviderConfig, remove_credentials
from treadle.models.catalog import is_loopback
from treadle.models.probe import PROBE_SECONDS, Probe, ProbeVerdict
from treadle.models.registry import ModelRegistry
from treadle.operations.system_facts import DoctorFinding, FindingState

Progress = Callable[[Sequence[str]], None]
"""Called with the names still being probed, at the start and whenever a probe ends."""


def ignore_progress(pending: Sequence[str]) -> None:
    """Show no progress."""


def list_callable_providers(models: ModelRegistry) -> list[str]:
    """Return the names of the providers that have an address and no missing key."""
    return [
        name
        for name, config in models.providers.items()
        if config is not None and models.find_missing_key(name) is None
    ]


def is_local(config: ProviderConfig) -> bool:
    """Return whether a provider runs on the user's own machine, so that a probe leaves no traces elsewhere."""
    return config.local or is_loopback(config)


async def probe_providers(
    models: ModelRegistry,
    names: Collection[str],
    progress: Progress = ignore_progress,
    timeout_seconds: float = PROBE_SECONDS,
) -> Mapping[str, Probe]:
    """Probe these providers at the same time."""
    pending = list(names)
    probes: dict[str, Probe] = {}

    async def probe(name: str) -> None:
        probes[name] = await models.probe(name, timeout_seconds)
        pending.remove(name)
        progress(pending)

    progress(pending)
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(probe(name))
    return probes


def describe_provider(name: str, models: ModelRegistry, probe: Probe | None, *, is_wanted: bool) -> DoctorFinding:
    """Return the finding about a provider. An unreachable provider that nothing uses is not an error."""
    config = models.providers[name]
    assert config is not None
    about, where = f"provider {name}", remove_credentials(config.base_url)
    if (problem := models.explain_key_problem(name)) is not None:
        if models.is_key_configured(name):
            return setting(about, f"{where}: the key cannot be used: {problem}", "Correct the key.", "wrong")
        return setting(about, f"{where}: no key is set", f"To use it, set {models.find_missing_key(name)}.", "note")
    key = describe_key(name, models)
    if probe is None:
        return setting(about, f"{where}: {key}, not tried", "", "set")
    found, advice, state = f"{where} {probe.words}", probe.advice, _STATES[probe.verdict]
    if probe.refused_keys:
        state = "wrong"
    elif probe.verdict == "unreachable" and not is_wanted:
        state, advice = "note", "To use it, start it."
    return DoctorFinding(about, state, found, advice)


_STATES: Mapping[ProbeVerdict, FindingState] = {
    "answers": "ok",
    "unclear": "note",
    "refused": "wrong",
    "failing": "wrong",
    "unreachable": "wrong",
}


def describe_key(name: str, models: ModelRegistry) -> str:
    """Return whether a key is sent to a provider, without any claim about the key itself."""
    return "key set" if models.key_settings(name) else "no key is sent"
