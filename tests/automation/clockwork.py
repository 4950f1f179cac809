"""A scheduler with a real store in memory and a clock that tests set. Runs do nothing until a test ends them."""

from collections.abc import Callable
from typing import Any

from treadle.automation.scheduler import Scheduler
from treadle.automation.schedules import ScheduleRegistry
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event, make_draft
from treadle.domain.errors import StoreError
from treadle.domain.events import HeartbeatFired, RunEnd, ScheduleSkipped
from treadle.domain.ids import Instant, RunId
from treadle.domain.runs import Metrics
from treadle.domain.schedules import Schedule, ScheduleId
from treadle.engine.event_hub import EventHub
from treadle.engine.null_ports import NoVault
from treadle.models.registry import ModelRegistry
from treadle.operations.service import LocalService
from treadle.ports.automation import TickResult
from treadle.ports.journal import Advance, Release
from treadle.stores.sqlite.accounts import SqliteAccounts
from treadle.stores.sqlite.approvals import SqliteApprovals
from treadle.stores.sqlite.automation import SqliteSchedules
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.sessions import SqliteSessions
from treadle.stores.sqlite.writer import InlineWriter
from treadle.testing.models import ScriptedModel
from treadle.testing.time import CountingIds, FakeClock
from treadle.tools.toolbox import ToolRegistry

HERO = AgentSpec("hero", "scripted/x")


class Died(StoreError):
    """The process has died here."""


class CrashingSchedules(SqliteSchedules):
    """Dies before or after the next write of a kind, once it is told to."""

    dies_at: str | None = None

    def _die(self, moment: str) -> None:
        if self.dies_at == moment:
            self.dies_at = None
            raise Died(moment)

    async def begin(self, schedule: Schedule, due_at: Instant, next_at: Instant | None) -> Schedule | None:
        self._die("before begin")
        begun = await super().begin(schedule, due_at, next_at)
        self._die("after begin")
        return begun

    async def finish(self, schedule_id: ScheduleId, fired: TickResult) -> None:
        self._die("before finish")
        await super().finish(schedule_id, fired)
        self._die("after finish")


DEATHS = ("before begin", "after begin", "before finish", "after finish")


class Clockwork:
    def __init__(self, now: Instant = 1_800_000_000.0, agents: Callable[[], Any] | None = None) -> None:
        self.clock, self.ids = FakeClock(now), CountingIds()
        self.writer = InlineWriter(open_database(":memory:"))
        hub = EventHub(self.clock, self.ids, lambda _run, _at: None)
        self.journal = SqliteJournal(self.writer, hub, self.clock)
        models = ModelRegistry({})
        models.add_model("scripted", ScriptedModel())
        self.service = LocalService(
            self.journal,
            self.journal,
            SqliteApprovals(self.writer),
            SqliteSessions(self.writer),
            hub,
            models,
            ToolRegistry(),
            NoVault(),
            self.clock,
            self.ids,
            SqliteAccounts(self.writer, self.clock),
        )
        self.agents = agents or (lambda: {"hero": HERO})
        self.schedules = CrashingSchedules(self.writer)
        self.scheduler = self.restarted()
        self.book = ScheduleRegistry(self.schedules, lambda _: HERO, self.clock, self.ids, lambda: None)

    def restarted(self) -> Scheduler:
        self.scheduler = Scheduler(self.schedules, self.service, self.agents, self.clock, self.ids)
        return self.scheduler

    async def events(self, kind: type[Any]) -> list[Event]:
        """Return all events of a type, in the order of commits."""
        found = await self.journal.after(0, None, 100_000)
        return [placed.event for placed in found if isinstance(placed.event.data, kind)]

    async def fired(self) -> list[Instant]:
        """Return the ticks that started a run."""
        data = [event.data for event in await self.events(HeartbeatFired)]
        return [each.due_at for each in data if isinstance(each, HeartbeatFired)]

    async def skipped(self) -> list[Instant]:
        data = [event.data for event in await self.events(ScheduleSkipped)]
        return [each.due_at for each in data if isinstance(each, ScheduleSkipped)]

    async def end(self, run_id: RunId) -> None:
        """End a run."""
        claim = await self.journal.claim(run_id, "tester")
        ended = make_draft(self.ids("evt"), self.clock.now(), RunEnd("completed", "completed", Metrics()))
        seen = claim.events[-1].sequence
        await self.journal.advance(Advance(run_id, claim.epoch, seen, intents=(ended,), release=Release(said=())))

    async def end_all(self) -> None:
        for record in await self.journal.list_unfinished():
            await self.end(record.origin.run_id)
