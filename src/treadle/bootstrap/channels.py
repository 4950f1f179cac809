"""Wiring of chat channels, with an open engine and without one."""

from functools import partial
from typing import TYPE_CHECKING

from treadle.bootstrap.stores import Stores, run_unlocked
from treadle.channels.manager import HomeChannelManager
from treadle.channels.runner import ChannelRunner
from treadle.config.home import Home
from treadle.domain.errors import TreadleError
from treadle.domain.events import EventData
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub
from treadle.home.channels import make_channel
from treadle.home.sendable_files import SendableFiles
from treadle.operations.service import LocalService
from treadle.system.clock import SystemClock
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.bootstrap.engine_config import EngineConfig


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
