"""How schedules, hooks and webhooks are put together over an open engine, and over a home that nobody has open."""

import asyncio
import logging
import os
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

from treadle.automation.inbound_webhooks import InboundWebhookReceiver, InboundWebhookRegistry
from treadle.automation.scheduler import Scheduler
from treadle.automation.schedules import ScheduleRegistry
from treadle.automation.sender import WebhookSender
from treadle.automation.webhooks import WebhookRegistry
from treadle.bootstrap.engine import local_service
from treadle.bootstrap.stores import Stores
from treadle.config.agent_registry import file_fingerprint
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.engine.event_hub import EventHub
from treadle.operations.automation import Automation
from treadle.operations.service import LocalService
from treadle.system.clock import SystemClock, TimeOrderedIds
from treadle.vault.store import VaultStore
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.bootstrap.engine import EngineConfig

logger = logging.getLogger(__name__)


class VaultSecrets:
    """Implements `ports.automation.WebhookSecrets` with the vault of a home."""

    def __init__(self, home: Home, value: Callable[[str], str | None]) -> None:
        self._home = home
        self._value = value

    async def put(self, name: str, value: str) -> None:
        await asyncio.to_thread(self._put, name, value)

    def value(self, name: str) -> str | None:
        return self._value(name)

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self._remove, name)

    def _put(self, name: str, value: str) -> None:
        self._home.ensure()
        with closing(VaultStore(self._home.path, os.environ)) as store:
            store.put(name, value)

    def _remove(self, name: str) -> None:
        with closing(VaultStore(self._home.path, os.environ)) as store:
            if any(secret.name == name for secret in store.inventory()):
                store.remove(name)


class HomeAgentReader:
    """The agents of a home. Their files are read again when they have changed."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[str, tuple[object, AgentSpec | None]] = {}

    def find(self, name: str) -> AgentSpec:
        """Raises UsageError where there is none of that name, or its file is wrong."""
        return self._home.agent(name)

    def all(self) -> dict[str, AgentSpec | None]:
        """By name; None: its file is wrong."""
        self._known = {name: self._read(name) for name in self._home.agents()}
        return {name: spec for name, (_, spec) in self._known.items()}

    def _read(self, name: str) -> tuple[object, AgentSpec | None]:
        state = [file_fingerprint(path) for path in self._home.files_of_agent(name)]
        if name in self._known and self._known[name][0] == state:
            return self._known[name]
        try:
            return state, self._home.agent(name)
        except UsageError as error:
            logger.warning("the agent %s is left as it was: %s", name, error)
            return state, None


def make_automation(known: "EngineConfig", stores: Stores, service: LocalService, hub: EventHub) -> Automation:
    """Over an open engine."""
    schedules, hooks, webhooks, letters = stores.schedules, stores.hooks, stores.webhooks, stores.letters
    home, clock, ids = known.home, known.time_of_day, known.ids
    secrets, agents = VaultSecrets(home, known.vault.value), HomeAgentReader(home)
    scheduler = Scheduler(schedules, service, agents.all, clock, ids)
    allow_local = home.config().webhooks.allow_local
    sender = WebhookSender(
        webhooks,
        letters,
        service,
        secrets,
        hub.show_live,
        known.clock,
        random.random,
        clock.now,
        allow_local=allow_local,
    )

    async def sending() -> None:
        await stores.alone("webhooks", sender.work)  # two would send everything twice

    @asynccontextmanager
    async def at_work() -> AsyncGenerator[None, None]:
        tasks = [
            asyncio.create_task(scheduler.work(), name="treadle-schedules"),
            asyncio.create_task(sending(), name="treadle-webhooks"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    return Automation(
        ScheduleRegistry(schedules, agents.find, clock, ids, scheduler.look_now),
        InboundWebhookRegistry(hooks, secrets, agents.find, clock, ids),
        InboundWebhookReceiver(hooks, secrets, service, stores.runs, agents.find, clock),
        WebhookRegistry(webhooks, letters, stores.runs, secrets, clock, ids, sender.look_now, allow_local),
        at_work,
    )


# ── Without an engine ──


def automation_books(home: Home, stores: Stores, vault: HomeVault) -> Automation:
    """Return what changes schedules and webhooks where no engine is open. Nothing is sent or received by it."""
    clock, ids = SystemClock(), TimeOrderedIds()
    secrets, agents = VaultSecrets(home, vault.value), HomeAgentReader(home)
    return Automation(
        ScheduleRegistry(stores.schedules, agents.find, clock, ids, _ignore_change),
        InboundWebhookRegistry(stores.hooks, secrets, agents.find, clock, ids),
        InboundWebhookReceiver(
            stores.hooks, secrets, local_service(stores, vault), stores.runs, agents.find, clock
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
    """Whoever opens the engine next finds it."""
