"""The channels that a home configures: their adapters, their settings with secrets, and their folders."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from treadle.config.home import Home
from treadle.config.private_files import make_folder
from treadle.domain.channels import ChannelConfig
from treadle.domain.secret_refs import find_secret_names, resolve_secret_refs
from treadle.ports.channel import Channel, ChannelAdapter, FolderChannel
from treadle.tools.entry_points import find_entry_points
from treadle.vault.vault import HomeVault

GROUP = "treadle.channels"
INSTALL = "pip install 'treadle[channels]'"
SECRET_SETTINGS = ("token", "app_token", "password", "access_token", "recovery_key")
"""Settings that must be references to the vault."""


def find_adapter(platform: str) -> ChannelAdapter:
    """Return the adapter of a platform. Raise ValueError if there is none, or if it cannot be loaded."""
    found = {entry.name: entry for entry in find_entry_points(GROUP)}
    if platform not in found:
        raise ValueError(f"`{platform}` is not a platform; installed: {', '.join(sorted(found))}")
    try:
        return found[platform].load()
    except ImportError as error:
        raise ValueError(f"{error.name or error} is not installed. Install it: {INSTALL}") from None


def resolve_settings(settings: Mapping[str, Any], value: Callable[[str], str | None]) -> dict[str, Any]:
    """Return settings with their secrets. Raise ValueError for a secret that is missing or not in the vault."""
    for name in SECRET_SETTINGS:
        given = settings.get(name)
        if given is not None and not find_secret_names(str(given)):
            raise ValueError(
                f"settings.{name} must be a reference such as {{{{vault:{name.upper()}}}}}. Store the secret: "
                f"treadle vault set {name.upper()}"
            )

    def reveal(name: str) -> str:
        if (found := value(name)) is None:
            raise ValueError(f"the vault has no secret {name}. Store it: treadle vault set {name}")
        return found

    written = msgspec.json.encode(settings).decode()
    return cast("dict[str, Any]", msgspec.json.decode(resolve_secret_refs(written, reveal)))


def make_channel(home: Home, vault: HomeVault, name: str, config: ChannelConfig) -> Channel:
    """Return the channel of a configuration, not connected yet."""
    settings = resolve_settings(config.settings, vault.value)
    channel = find_adapter(config.platform or name)(name, settings)
    if isinstance(channel, FolderChannel):
        folder = home.path / "channels" / name
        make_folder(folder.parent)
        make_folder(folder)
        channel.use_folder(folder)
    return channel
