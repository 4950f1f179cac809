"""The settings of the process that owns a home, as other commands of the same user get them."""

from typing import Any

import msgspec

from treadle.config.home_config import HomeConfig
from treadle.domain.providers import ProviderConfig, remove_credentials


def describe_settings(config: HomeConfig) -> dict[str, Any]:
    """Return the settings as plain values, without anything that may be secret. Only the owner uses the MCP servers
    and the channels."""
    providers = {name: _remove_secrets(provider) for name, provider in config.providers.items()}
    return msgspec.to_builtins(msgspec.structs.replace(config, providers=providers, mcp_servers={}, channels={}))


def _remove_secrets(provider: ProviderConfig) -> ProviderConfig:
    return ProviderConfig(
        remove_credentials(provider.base_url), provider.api_mode, timeouts=provider.timeouts, local=provider.local
    )
