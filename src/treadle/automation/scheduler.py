"""Fires schedules, each tick exactly once whatever process dies when: a tick is recorded before it is handled, and
its run is stored under a key that names the schedule and the tick."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import SessionDeleted, StoreError, TreadleError, UnknownRun
from treadle.domain.events import HeartbeatFired, ScheduleSkipped
from treadle.domain.ids import Instant, RunId, SessionId
from treadle.domain.messages import user
from treadle.domain.schedules import Schedule, Timing, heartbeat_id
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_start import start_here
from treadle.operations.service import LocalService
from treadle.ports.automation import Schedules, TickResult
from treadle.ports.clock import Clock, Ids

logger = logging.getLogger(__name__)

Deliver = Callable[[str, RunId, str], Awaitable[str]]
"""Sends the answer of a run to a recipient, once for each key. Returns why that is not possible, or ""."""
Agents = Mapping[str, AgentSpec | None]
"""Agents that have a file, by name; None if the file cannot be read."""
MAX_CLOCK_CORRECTION_SECONDS = 86_400.0
"""If the clock is set back by more, it was wrong, and schedules are planned again. If by less, ticks that already
passed do not fire again."""
POLL_INTERVAL_SECONDS = 5.0
"""Maximum poll interval, because the clock may be set and agent files may change."""


class Scheduler:
    def __init__(
        self,
        schedules: Schedules,
        service: LocalService,
        agents: Callable[[], Agents],
        clock: Clock,
        ids: Ids,
        deliver: Deliver | None = None,
    ) -> None:
        self._schedules = schedules
        self._service = service
        self._agents = agents
        self._clock = clock
        self._ids = ids
        self._deliver = deliver
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Wake the scheduler because a schedule changed."""
        self._changed.set()

    async def work(self) -> None:
        """Fire due schedules until cancelled."""
        while True:
            self._changed.clear()
            try:
                wait = await self.fire_due()
            except StoreError as error:
                logger.error("schedules: %s", error)
                wait = POLL_INTERVAL_SECONDS
            except Exception:
                logger.exception("polling schedules failed; retrying")
                wait = POLL_INTERVAL_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def fire_due(self) -> float:
        """Fire due schedules, and return the number of seconds until the next poll."""
        agents = self._agents()
        await self._sync_heartbeats(agents)
        for schedule in await self._schedules.list():
            try:
                if (planned := await self._plan(schedule)).is_due(self._clock.now()):
                    await self._fire(planned, agents)
            except StoreError:
                raise
            except Exception:
                logger.exception("schedule %s failed; retrying", schedule.schedule_id)
        ahead = [each.next_at for each in await self._schedules.list() if each.next_at and not each.paused]
        return (
            min(POLL_INTERVAL_SECONDS, max(0.01, min(ahead, default=0.0) - self._clock.now()))
            if ahead
            else POLL_INTERVAL_SECONDS
        )

    async def _plan(self, schedule: Schedule) -> Schedule:
        """Return the schedule, planned again if it fired while the clock was far ahead, so that it does not wait
        until then. A tick that has fired does not fire again: its run is found under its key."""
        now = self._clock.now()
        if schedule.fired_at is None or schedule.fired_at - now < MAX_CLOCK_CORRECTION_SECONDS or schedule.paused:
            return schedule
        following = schedule.timing.after(now)
        if following is None or (schedule.next_at is not None and schedule.next_at <= following):
            return schedule
        logger.warning("schedule %s: the clock was set back; continuing from now", schedule.schedule_id)
        planned = replace(schedule, next_at=following)
        await self._schedules.keep(planned)
        return planned

    # ── One tick ──

    async def _fire(self, schedule: Schedule, agents: Agents) -> None:
        if schedule.firing_at is None and schedule.next_at is not None:
            timing = schedule.timing
            due_at = timing.latest(schedule.next_at, self._clock.now())
            begun = await self._schedules.begin(schedule, due_at, timing.after(due_at))
            if begun is None:
                return
            schedule = begun
        assert schedule.firing_at is not None, "a tick that was begun has a time"
        try:
            fired = await self._handle_tick(schedule, schedule.firing_at, agents)
        except StoreError:
            raise  # the tick stays begun, and the next poll resumes it
        except TreadleError as error:
            logger.warning("schedule %s: no run was started: %s", schedule.schedule_id, error)
            fired = TickResult(schedule.firing_at, problem=str(error))
        await self._schedules.finish(schedule.schedule_id, fired)

    async def _handle_tick(self, schedule: Schedule, due_at: Instant, agents: Agents) -> TickResult:
        key = f"schedule/{schedule.schedule_id}/{due_at:.3f}"
        if await self._record_skip(schedule, due_at, key):
            return TickResult(due_at, problem="The previous run had not ended: the tick was skipped.")
        agent = agents.get(schedule.agent)
        if agent is None:
            return TickResult(
                due_at,
                problem=f"No agent is called `{schedule.agent}`, or its file cannot be read. Fix it, or remove "
                "the schedule.",
            )
        because = HeartbeatFired(schedule.schedule_id, due_at, schedule.firing_since)
        run = RequestedRun(
            agent=agent,
            message=user(schedule.message),
            session_id=schedule.session_id,
            plain=True,
            user=schedule.owner,
            metadata={"schedule": schedule.schedule_id},
        )
        try:
            ticket = await start_here(self._service, run, key, because)
        except SessionDeleted:
            if not schedule.is_heartbeat:
                raise
            schedule = replace(
                schedule, session_id=self._new_session()
            )  # a heartbeat's own session can be replaced
            await self._schedules.keep(schedule)
            run = replace(run, session_id=schedule.session_id)
            ticket = await start_here(self._service, run, key, because)
        problem = ""
        if schedule.deliver and self._deliver is not None:
            problem = await self._deliver(schedule.deliver, ticket.run_id, key)
        return TickResult(due_at, ticket.run_id, problem)

    async def _record_skip(self, schedule: Schedule, due_at: Instant, key: str) -> bool:
        """Return whether the previous run has not ended. Then the tick is recorded in its journal and starts no
        run."""
        if schedule.run_id is None:
            return False
        try:
            return await self._service.note(
                schedule.run_id, ScheduleSkipped(schedule.schedule_id, due_at), f"{key}/skipped"
            )
        except UnknownRun:
            return False  # the run was deleted

    # ── Heartbeats ──

    async def _sync_heartbeats(self, agents: Agents) -> None:
        """Keep one schedule for each heartbeat in the file of an agent, and no others."""
        known = {each.agent: each for each in await self._schedules.list() if each.is_heartbeat}
        for name, schedule in known.items():
            agent = agents.get(name)
            if name not in agents or (agent is not None and agent.heartbeat.every is None):
                await self._schedules.remove(schedule.schedule_id)
        for name, agent in agents.items():
            if agent is not None and agent.heartbeat.every is not None:
                await self._sync_heartbeat(agent, known.get(name))

    async def _sync_heartbeat(self, agent: AgentSpec, known: Schedule | None) -> None:
        heartbeat, now = agent.heartbeat, self._clock.now()
        assert heartbeat.every is not None, "only agents with a heartbeat are passed"
        if known is not None and known.timing == Timing(heartbeat.every, heartbeat.zone, known.timing.anchor):
            wanted = replace(known, message=heartbeat.message or "", deliver=heartbeat.deliver or "")
            if known != wanted:
                await self._schedules.keep(wanted)
            return
        timing = Timing(heartbeat.every, heartbeat.zone, now)
        if known is not None:
            changed = replace(known, message=heartbeat.message or "", timing=timing, next_at=timing.after(now))
            changed = replace(changed, deliver=heartbeat.deliver or "")
            await self._schedules.keep(changed)
            return
        await self._schedules.keep(
            Schedule(
                schedule_id=heartbeat_id(agent.name),
                agent=agent.name,
                message=heartbeat.message or "",
                timing=timing,
                next_at=timing.after(now),
                session_id=self._new_session(),
                is_heartbeat=True,
                deliver=heartbeat.deliver or "",
            )
        )

    def _new_session(self) -> SessionId:
        return SessionId(self._ids("ses"))
