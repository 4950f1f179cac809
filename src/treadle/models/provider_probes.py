"""Which providers can be called, and what they answer."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from treadle.domain.providers import ProviderConfig
from treadle.models.catalog import is_loopback
from treadle.models.probe import PROBE_SECONDS, Probe
from treadle.models.registry import ModelRegistry

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


def describe_key(name: str, models: ModelRegistry) -> str:
    """Return whether a key is sent to a provider, without any claim about the key itself."""
    return "key set" if models.key_settings(name) else "no key is sent"
