"""A webhook sender with a real engine and a clock that tests set. Tests can kill and restart it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TypeVar, Unpack

import treadle
from tests.engine.running import agent, opened
from tests.patience import HANG_SECONDS, until
from treadle.api.agent import RunOptions
from treadle.api.engine import HostedEngine
from treadle.automation.sender import WebhookSender
from treadle.automation.webhooks import WebhookRegistry
from treadle.bootstrap.automation import VaultSecrets
from treadle.config.home import Home
from treadle.domain.envelope import Origin
from treadle.domain.errors import StoreError
from treadle.domain.events import EventData
from treadle.domain.webhooks import DeadLetter, Webhook
from treadle.engine.event_hub import EventHub
from treadle.operations.automation import NewWebhook, NewWebhookView
from treadle.stores.sqlite.automation import SqliteWebhooks
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.writer import InlineWriter
from treadle.system.clock import TimeOrderedIds
from treadle.testing.models import FunctionModel, say
from treadle.testing.time import FakeClock
from treadle.vault.vault import HomeVault

Found = TypeVar("Found")


class CrashingWebhooks(SqliteWebhooks):
    """Stops at the next move, before it is kept: the process was killed there."""

    dying = False

    def __init__(self, writer: InlineWriter) -> None:
        super().__init__(writer)
        self.died = asyncio.Event()
        self.looks = 0
        """How often it was looked which webhooks there are: the sender does so whenever it looks what to send."""

    async def list(self) -> Sequence[Webhook]:
        self.looks += 1
        return await super().list()

    async def move(self, webhook: Webhook, letter: DeadLetter | None = None) -> None:
        if self.dying:
            self.died.set()
            await asyncio.Event().wait()
        await super().move(webhook, letter)


class Sending:
    def __init__(self, engine: HostedEngine, writer: InlineWriter, home: Home, vault: HomeVault) -> None:
        self.engine = engine
        self.clock = FakeClock(time.time())
        self.writer = writer
        self.webhooks = CrashingWebhooks(writer)
        self.live: list[EventData] = []
        self.timeout_seconds = 10 * HANG_SECONDS
        self.allow_local = True
        self._secrets = VaultSecrets(home, vault.value)
        self._task: asyncio.Task[None] | None = None
        self.sender = self._new_sender()
        self.book = self.new_book(allow_local=True)

    def new_book(self, allow_local: bool) -> WebhookRegistry:
        ids = TimeOrderedIds()
        feed = SqliteJournal(self.writer, EventHub(self.clock, ids, lambda _run, _at: None), self.clock)
        return WebhookRegistry(
            self.webhooks,
            self.webhooks,
            feed,
            self._secrets,
            self.clock,
            ids,
            lambda: self.sender.wake(),
            allow_local,
        )

    def _new_sender(self) -> WebhookSender:
        return WebhookSender(
            self.webhooks,
            self.webhooks,
            self.engine.service,
            self._secrets,
            self._tell,
            self.clock,
            lambda: 0.5,
            self.clock.now,
            poll_interval=0.01,
            timeout_seconds=self.timeout_seconds,
            allow_local=self.allow_local,
        )

    def _tell(self, _origin: Origin, _sequence: int, data: EventData) -> None:
        self.live.append(data)

    def start(self) -> None:
        self.sender = self._new_sender()
        self._task = asyncio.create_task(self.sender.work())

    async def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, StoreError):
                await self._task

    async def add(self, url: str, *events: str, **more: object) -> NewWebhookView:
        return await self.book.add(NewWebhook(url, events or ("*",), **more))  # pyright: ignore[reportArgumentType] -- as the caller says

    async def run(self, name: str = "hero", **options: Unpack[RunOptions]) -> treadle.Result:
        hero = agent(name=name, memory={"recall": 0, "remember": False})
        return await self.engine.run(hero, "go", **options)

    async def webhook(self) -> Webhook:
        [only] = await self.webhooks.list()
        return only

    async def looked_again(self) -> None:
        """Wait until the sender has looked several times what there is to send."""
        before = self.webhooks.looks
        await until(lambda: self.webhooks.looks > before + 5)

    async def until(self, wanted: Callable[[Webhook], bool]) -> Webhook:
        """Wait until the condition holds for the only webhook, and return it."""

        async def look() -> Webhook | None:
            found = await self.webhook()
            return found if wanted(found) else None

        return await eventually(look)


async def eventually(look: Callable[[], Awaitable[Found | None]]) -> Found:
    """Poll until the function returns something, and return it."""
    async with asyncio.timeout(HANG_SECONDS):
        while (found := await look()) is None:  # noqa: ASYNC110 -- what is waited for is in the database
            await asyncio.sleep(0.01)
    return found


@asynccontextmanager
async def sending(folder: Path) -> AsyncGenerator[Sending, None]:
    home = folder / "home"
    async with opened(folder, FunctionModel(lambda _: say("done"))) as engine:
        with closing(open_database(f"{folder}/t.db")) as connection, closing(HomeVault(home, {})) as vault:
            works = Sending(engine, InlineWriter(connection), Home(home), vault)
            works.start()
            try:
                yield works
            finally:
                await works.kill()
