"""The self-check of a home: the findings of all parts."""

import asyncio
import os
from collections.abc import Sequence

from treadle.config.home import Home
from treadle.config.home_config import HomeConfig
from treadle.doctor.channels import describe_channels
from treadle.doctor.database import describe_database
from treadle.doctor.findings import setting
from treadle.doctor.machine import (
    describe_embedder,
    describe_home,
    describe_sandbox,
    describe_settings,
    describe_vault,
    describe_weights,
)
from treadle.doctor.mcp import describe_mcp
from treadle.doctor.models import ProviderSurvey, describe_models, list_configured_models
from treadle.doctor.providers import describe_provider
from treadle.doctor.server import describe_server
from treadle.doctor.web_search import describe_web_search
from treadle.domain.errors import ConfigError, TreadleError
from treadle.home.model_registry import make_model_registry
from treadle.models.probe import PROBE_SECONDS
from treadle.models.provider_probes import Progress, ignore_progress, list_callable_providers, probe_providers
from treadle.operations.system_facts import DoctorFinding
from treadle.vault.vault import HomeVault


async def examine(
    home: Home,
    *,
    offline: bool = False,
    progress: Progress = ignore_progress,
    timeout_seconds: float = PROBE_SECONDS,
) -> Sequence[DoctorFinding]:
    """Check everything concurrently, and change nothing.

    Each network probe has this timeout. Offline, no connection is opened."""
    try:
        config = home.config()
    except ConfigError as error:
        database = await describe_database(home, offline=offline)
        broken = DoctorFinding("settings", "wrong", str(error), "Correct the file.")
        return [describe_home(home), *database, broken]
    vault = await describe_vault(home)  # first, since it may contain provider keys
    if vault.state == "wrong":
        models = _return_findings([setting("providers", "not tried, as the vault cannot be read", "", "wrong")])
    else:
        models = _describe_providers_and_models(home, config, offline, progress, timeout_seconds)
    database, providers, sandbox, server, mcp, channels = await asyncio.gather(
        describe_database(home, offline=offline),
        models,
        describe_sandbox(home),
        describe_server(home, timeout_seconds, offline=offline),
        describe_mcp(home),
        describe_channels(home, offline=offline),
    )
    web_search = await describe_web_search(home, offline=offline)
    return [
        describe_home(home),
        *database,
        describe_settings(home),
        *providers,
        vault,
        sandbox,
        describe_embedder(),
        describe_weights(home),
        server,
        *mcp,
        *channels,
        web_search,
    ]


async def _return_findings(findings: Sequence[DoctorFinding]) -> Sequence[DoctorFinding]:
    return findings


async def _describe_providers_and_models(
    home: Home, config: HomeConfig, offline: bool, progress: Progress, timeout_seconds: float
) -> Sequence[DoctorFinding]:
    vault = HomeVault(home.path, os.environ)
    try:
        models = make_model_registry(home, config, vault.value)
        names = () if offline else list_callable_providers(models)
        surveyed = ProviderSurvey(models, await probe_providers(models, names, progress, timeout_seconds))
        return [*_describe_providers(home, config, surveyed), *describe_models(home, config, surveyed)]
    except TreadleError as error:
        return [DoctorFinding("providers", "wrong", str(error))]
    finally:
        vault.close()


def _describe_providers(home: Home, config: HomeConfig, surveyed: ProviderSurvey) -> Sequence[DoctorFinding]:
    models, probes = surveyed.models, surveyed.probes
    used = {found.provider for each in list_configured_models(home, config) if (found := surveyed.resolve(each))}
    names = [name for name, given in models.providers.items() if given is not None]
    found = [
        describe_provider(
            name,
            models,
            probes.get(name),
            is_wanted=name in config.providers or name in used or models.is_key_configured(name),
        )
        for name in names
    ]
    if any(each.state in ("ok", "set") for each in found):
        return found
    if probes and not any(probe.verdict in ("answers", "unclear") for probe in probes.values()):
        return [*found, DoctorFinding("providers", "note", "none of them answers", _ADD_ONE)]
    return found if probes else [*found, setting("providers", "none has what it needs", _ADD_ONE, "note")]


_ADD_ONE = "Set a key, start a local server, or add a provider to config.yaml."
