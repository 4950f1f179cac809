"""Wiring of schedules, inbound webhooks and webhooks, with an open engine and without one."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from treadle.automation.inbound_webhooks import InboundWebhookReceiver, InboundWebhookRegistry
from treadle.automation.scheduler import Scheduler
from treadle.automation.schedules import ScheduleRegistry
from treadle.automation.webhooks import WebhookRegistry
from treadle.bootstrap.offline_service import make_home_models, make_offline_service
from treadle.bootstrap.stores import Stores
from treadle.config.home import Home
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub
from treadle.home.agent_reader import HomeAgentReader
from treadle.home.webhook_secrets import VaultSecrets
from treadle.operations.automation import Automation
from treadle.operations.search_index import SearchIndexer
from treadle.operations.service import LocalService
from treadle.system.clock import SystemClock, TimeOrderedIds
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.automation.sender import WebhookSender
    from treadle.bootstrap.engine_config import EngineConfig


def make_automation(config: "EngineConfig", stores: Stores, service: LocalService, hub: EventHub) -> Automation:
    """Return the automation of an open engine."""
    schedules, hooks, webhooks, letters = stores.schedules, stores.hooks, stores.webhooks, stores.letters
    home, clock, ids = config.home, config.time_of_day, config.ids
    secrets, agents = VaultSecrets(home, config.vault.value), HomeAgentReader(home)
    channels = home.config().channels

    async def deliver(target: str, run_id: RunId, key: str) -> str:
        from treadle.channels.recipients import watch_run

        problem = await watch_run(channels, stores.channels, target, run_id, key, clock.now())
        if config.channels is not None:
            config.channels.wake(target.partition(":")[0])
        return problem

    from treadle.automation.sender import WebhookSender  # not needed to list webhooks

    scheduler = Scheduler(schedules, service, agents.all, clock, ids, deliver)
    allow_local = home.config().webhooks.allow_local
    sender = WebhookSender(
        webhooks,
        letters,
        service,
        secrets,
        hub.show_live,
        config.clock,
        random.random,
        clock.now,
        allow_local=allow_local,
    )

    return Automation(
        ScheduleRegistry(schedules, agents.find, clock, ids, scheduler.wake, channels),
        InboundWebhookRegistry(hooks, secrets, agents.find, clock, ids),
        InboundWebhookReceiver(hooks, secrets, service, stores.runs, agents.find, clock),
        WebhookRegistry(webhooks, letters, stores.runs, secrets, clock, ids, sender.wake, allow_local),
        partial(_run_in_background, scheduler, sender, SearchIndexer(stores.overview, lambda: hub.changes), stores),
    )


@asynccontextmanager
async def _run_in_background(
    scheduler: Scheduler, sender: "WebhookSender", indexer: SearchIndexer, stores: Stores
) -> AsyncGenerator[None, None]:
    """Run the scheduler while the block runs, and the webhook sender and the indexer of searches in at most one
    process per database."""

    async def send_exclusively() -> None:
        await stores.alone("webhooks", sender.work)  # two senders would send everything twice

    async def index_exclusively() -> None:
        await stores.alone("search", indexer.work)

    tasks = [
        asyncio.create_task(scheduler.work(), name="treadle-schedules"),
        asyncio.create_task(index_exclusively(), name="treadle-search"),
        asyncio.create_task(send_exclusively(), name="treadle-webhooks"),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


# ── Without an engine ──


def make_offline_automation(home: Home, stores: Stores, vault: HomeVault) -> Automation:
    """Return the automation of a database without an open engine: it changes schedules and webhooks, but sends and
    receives nothing."""
    clock, ids = SystemClock(), TimeOrderedIds()
    secrets, agents = VaultSecrets(home, vault.value), HomeAgentReader(home)
    return Automation(
        ScheduleRegistry(stores.schedules, agents.find, clock, ids, _ignore_change, home.config().channels),
        InboundWebhookRegistry(stores.hooks, secrets, agents.find, clock, ids),
        InboundWebhookReceiver(
            stores.hooks,
            secrets,
            make_offline_service(stores, vault, make_models=make_home_models(home, vault)),
            stores.runs,
            agents.find,
            clock,
        ),
        WebhookRegistry(
            stores.webhooks,
            stores.letters,
            stores.runs,
            secrets,
            clock,
            ids,
            _ignore_change,
            home.config().webhooks.allow_local,
        ),
        _idle,
    )


@asynccontextmanager
async def _idle() -> AsyncGenerator[None, None]:
    """Send nothing."""
    yield


def _ignore_change() -> None:
    """Do nothing: the next engine that opens the database finds the change."""
