"""The runner of one channel: its connection, which is retried forever, and its tasks while it holds the lease."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from treadle.channels.inbox import Inbox
from treadle.channels.intake import Intake
from treadle.channels.outbox import ChannelOutbox
from treadle.channels.run_watch import RunWatch
from treadle.domain.agents import AgentSpec
from treadle.domain.channels import ChannelConfig, ChannelStatus
from treadle.domain.events import EventData
from treadle.domain.ids import Instant, RunId
from treadle.operations.service import LocalService
from treadle.ports.channel import Channel, CleanedChannel, FileSource, Incoming, WebhookChannel, find_limitation
from treadle.ports.channel_store import ChannelState, ChannelStore
from treadle.ports.clock import Clock, Ids
from treadle.ports.journal import Runs

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 300.0
STEADY_SECONDS = 60.0
"""A connection that lasted this long starts the backoff anew."""
POLL_SECONDS = 2.0
"""How often messages are looked for that another process has stored."""
SWEEP_SECONDS = 6 * 3600.0
RETENTION_SECONDS = 30 * 86_400.0
"""How long message IDs are remembered."""


class ChannelRunner:
    """Implements `ports.channel.Receiver` for one channel, and keeps it connected."""

    def __init__(
        self,
        name: str,
        config: ChannelConfig,
        make: Callable[[], Channel],
        store: ChannelStore,
        service: LocalService,
        runs: Runs,
        agent: Callable[[], AgentSpec],
        clock: Clock,
        ids: Ids,
        show: Callable[[RunId, EventData], Awaitable[None]],
        is_shared: bool,
        files: FileSource,
    ) -> None:
        self.name = name
        self.status: ChannelStatus = "stopped"
        self.account = ""
        self.reason = ""
        self.retry_at: Instant | None = None
        self.since = clock.now()
        """When the status began."""
        self.counts: Counter[str] = Counter()
        """How often each thing happened to messages: received, dropped, sent, retried, failed."""
        self._make = make
        self._store = store
        self._clock = clock
        self._is_shared = is_shared
        self._parts = (config, service, runs, agent, ids, show, files)
        self._intake = Intake(name, config, store, clock, self._count)
        self._listener: Channel | None = None
        """Reads what a platform posts to this process while another one holds the channel."""
        self._outbox: ChannelOutbox | None = None
        self._inbox: Inbox | None = None
        self._changed = asyncio.Event()

    @property
    def is_holder(self) -> bool:
        """Whether this process holds the channel's connection, or is about to open it."""
        return self._inbox is not None

    def wake(self) -> None:
        """Look for messages that were stored outside, such as those of schedules."""
        if self._inbox is not None:
            self._stored.set()

    # ── Work ──

    async def work(self) -> None:
        """Receive and send until cancelled. Only the process that holds the channel's lease does this."""
        config, service, runs, agent, ids, show, files = self._parts
        outbox = ChannelOutbox(self.name, config, self._store, self._clock, random.random, show, self._count)
        watch = RunWatch(self.name, config, self._store, service, outbox, self._clock, files)
        inbox = Inbox(
            self.name, config, self._store, service, runs, agent, outbox, watch, self._clock, ids, self._intake
        )
        self._stored = asyncio.Event()
        self._outbox, self._inbox = outbox, inbox
        parts = (self._resume_forever(inbox), self._sweep(outbox), self._record_states())
        others = [asyncio.create_task(part) for part in parts]
        try:
            await self._connect_forever(outbox)
        finally:
            self._outbox = self._inbox = None
            self._set_status("stopped")
            for task in others:
                task.cancel()
            await asyncio.wait(others)
            with suppress(Exception):
                await self._record()
            for part in (inbox, watch, outbox):
                await part.close()

    async def _resume_forever(self, inbox: Inbox) -> None:
        """Continue what the previous process left, and what other processes store."""
        while True:
            self._stored.clear()
            try:
                await inbox.resume()
            except Exception as error:
                logger.error("channel %s: looking for stored messages failed; retrying: %s", self.name, error)
                await asyncio.sleep(POLL_SECONDS)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS if self._is_shared else None):
                    await self._stored.wait()

    async def _sweep(self, outbox: ChannelOutbox) -> None:
        while True:
            with suppress(Exception):
                now = self._clock.now()
                await self._store.forget_before(now - RETENTION_SECONDS, now)
            if outbox.channel is not None:
                await self._clean(outbox.channel)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _clean(self, channel: Channel) -> None:
        """Delete the records of the adapter that are as old as message IDs that are forgotten."""
        if isinstance(channel, CleanedChannel):
            try:
                await channel.clean(self._clock.now() - RETENTION_SECONDS)
            except Exception as error:
                logger.error("channel %s: old records were not deleted: %s", self.name, error)

    # ── State ──

    def _set_status(self, status: ChannelStatus, reason: str = "", retry_at: Instant | None = None) -> None:
        if status != self.status:
            self.since = self._clock.now()
        self.status, self.reason, self.retry_at = status, reason, retry_at
        self._changed.set()

    async def _record_states(self) -> None:
        """Record each state, for processes that do not hold the connection and for the doctor."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._record()
            except Exception as error:
                logger.error("channel %s: its state was not recorded; retrying: %s", self.name, error)
                self._changed.set()
                await asyncio.sleep(POLL_SECONDS)

    async def _record(self) -> None:
        now = self._clock.now()
        state = ChannelState(
            channel=self.name,
            status=self.status,
            account=self.account,
            reason=self.reason,
            since=self.since,
            retry_at=self.retry_at,
            recorded_at=now,
        )
        await self._store.save_state(state)

    # ── The connection ──

    async def _connect_forever(self, outbox: ChannelOutbox) -> None:
        failures = 0
        while True:
            self._set_status("failed" if failures else "starting", self.reason if failures else "")
            began = self._clock.monotonic()
            reason = await self._connect(outbox)
            failures = 1 if self._clock.monotonic() - began >= STEADY_SECONDS else failures + 1
            delay = min(FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 20), MAX_BACKOFF_SECONDS)
            delay *= 0.75 + random.random() / 2
            self._set_status("failed", reason, self._clock.now() + delay)
            logger.warning("channel %s: not connected, next attempt in %.0f s: %s", self.name, delay, reason)
            await asyncio.sleep(delay)

    async def _connect(self, outbox: ChannelOutbox) -> str:
        """Stay connected as long as possible. Return why it ended."""
        channel: Channel | None = None
        try:
            channel = self._make()
            async with asyncio.timeout(60):
                account = await channel.check()
            outbox.attach(channel)
            self.report_connected(account, find_limitation(channel))
            await self._clean(channel)
            await channel.receive(self)
        except Exception as error:
            return f"{error or type(error).__name__}"[:500]
        finally:
            outbox.detach()
            if channel is not None:
                with suppress(Exception):
                    await channel.close()
        return "the platform closed the connection"

    # ── Webhooks ──

    async def deliver(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Store what the platform posted. Return False if it does not come from the platform."""
        channel = self._find_listener()
        if not isinstance(channel, WebhookChannel) or not channel.verify(headers):
            return False
        messages = await channel.read(body)
        if self._inbox is not None:
            await self._inbox.accept(messages)
        else:
            await self._intake.accept(messages)
        return True

    def _find_listener(self) -> Channel | None:
        """Return a channel that can read what is posted: the connected one, or one of its own."""
        if self._outbox is not None and self._outbox.channel is not None:
            return self._outbox.channel
        if self._listener is None:
            try:
                self._listener = self._make()
            except ValueError as error:
                logger.error("channel %s: a webhook cannot be read: %s", self.name, error)
        return self._listener

    async def close(self) -> None:
        if self._listener is not None:
            with suppress(Exception):
                await self._listener.close()
            self._listener = None

    # ── Receiver ──

    async def accept(self, messages: Sequence[Incoming], cursor: str | None = None) -> None:
        assert self._inbox is not None, "messages arrive only while the channel is at work"
        await self._inbox.accept(messages, cursor)

    async def cursor(self) -> str | None:
        return await self._store.cursor(self.name)

    async def conversations(self, after: str | None, limit: int) -> Sequence[str]:
        return await self._store.conversations(self.name, after, limit)

    def report_connected(self, account: str, limitation: str = "") -> None:
        if self.status != "connected":
            logger.info("channel %s: connected as %s", self.name, account)
        self.account = account
        self._set_status("connected", limitation)

    def _count(self, what: str) -> None:
        self.counts[what] += 1
