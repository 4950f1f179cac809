"""Wiring of chat channels, with an open engine and without one."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from treadle.bootstrap.sendable_files import SendableFiles
from treadle.bootstrap.stores import Stores, run_unlocked
from treadle.channels.manager import HomeChannelManager
from treadle.channels.runner import ChannelRunner
from treadle.config.home import Home
from treadle.config.private_files import make_folder
from treadle.domain.channels import ChannelConfig, find_recipient
from treadle.domain.errors import TreadleError
from treadle.domain.events import EventData
from treadle.domain.ids import Instant, RunId
from treadle.domain.secret_refs import find_secret_names, resolve_secret_refs
from treadle.engine.event_hub import EventHub
from treadle.operations.service import LocalService
from treadle.ports.channel import Channel, ChannelAdapter, FolderChannel, Incoming
from treadle.ports.channel_store import ChannelStore
from treadle.system.clock import SystemClock
from treadle.tools.entry_points import find_entry_points
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.bootstrap.engine_config import EngineConfig

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


def make_channels(
    config: "EngineConfig", stores: Stores, service: LocalService, hub: EventHub
) -> HomeChannelManager:
    """Return the channels of an open engine."""
    home, vault = config.home, config.vault
    configs = home.config().channels

    async def show(run_id: RunId, data: EventData) -> None:
        try:
            record = await service.run(run_id)
        except TreadleError:
            return  # deleted meanwhile
        hub.show_live(record.origin, record.sequence, data)

    files = SendableFiles(config.tools, home, vault, config.database)
    runners = {
        name: ChannelRunner(
            name,
            each,
            partial(make_channel, home, vault, name, each),
            stores.channels,
            service,
            stores.runs,
            partial(home.agent, each.agent),
            config.time_of_day,
            config.ids,
            show,
            stores.shared,
            files,
        )
        for name, each in configs.items()
        if each.enabled
    }
    if config.channels is not None:
        for name, runner in runners.items():
            config.channels.wakes.setdefault(name, []).append(runner.wake)
    metrics = None if config.telemetry is None else config.telemetry.metrics
    if metrics is not None:
        metrics.channels = lambda: [(name, each.status, dict(each.counts)) for name, each in runners.items()]
    return HomeChannelManager(
        configs, stores.channels, config.time_of_day, partial(make_channel, home, vault), runners, stores.alone
    )


def make_offline_channels(home: Home, stores: Stores, vault: HomeVault) -> HomeChannelManager:
    """Return the channels of a database without an open engine: people can be changed, and nothing is connected."""
    configs = home.config().channels
    return HomeChannelManager(
        configs, stores.channels, SystemClock(), partial(make_channel, home, vault), {}, run_unlocked
    )


async def watch_run(
    channels: Mapping[str, ChannelConfig], store: ChannelStore, target: str, run_id: RunId, key: str, now: Instant
) -> str:
    """Send the answer of a run to a recipient. Return why that is not possible, or an empty text."""
    try:
        channel, recipient = find_recipient(channels, target)
    except ValueError as error:
        return f"The answer is not delivered: {error}."
    await store.watch(channel, Incoming(key, recipient.to, ""), run_id, now)
    return ""
