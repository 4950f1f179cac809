"""Fires schedules. Each tick is seen to once, whoever dies when: what is to be done about it is kept before it is
done, and what is done is kept under a key that names the schedule and the tick."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import SessionDeleted, StoreError, TreadleError, UnknownRun
from treadle.domain.events import HeartbeatFired, ScheduleSkipped
from treadle.domain.ids import Instant, SessionId
from treadle.domain.messages import user
from treadle.domain.schedules import Schedule, Timing, heartbeat_id
from treadle.operations.service import LocalService
from treadle.operations.submissions import Submission
from treadle.ports.automation import Fired, Schedules
from treadle.ports.clock import Clock, Ids

logger = logging.getLogger(__name__)

Agents = Mapping[str, AgentSpec | None]
"""Those that have a file, by name; None: it cannot be read now."""
FAR_AHEAD_SECONDS = 86_400.0
"""A clock that is set back by more was wrong; by less, what it has passed once is not gone through again."""
LOOK_SECONDS = 5.0
"""At least so often it looks what is due: the clock may be set, and the files of agents may change."""


class Scheduler:
    def __init__(
        self,
        schedules: Schedules,
        service: LocalService,
        agents: Callable[[], Agents],
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._schedules = schedules
        self._service = service
        self._agents = agents
        self._clock = clock
        self._ids = ids
        self._changed = asyncio.Event()

    def look_now(self) -> None:
        """Something was changed."""
        self._changed.set()

    async def work(self) -> None:
        """Fire what is due, until it is cancelled."""
        while True:
            self._changed.clear()
            try:
                wait = await self.look()
            except StoreError as error:
                logger.error("schedules: %s", error)
                wait = LOOK_SECONDS
            except Exception:
                logger.exception("looking for what is due has failed; it is tried again")
                wait = LOOK_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def look(self) -> float:
        """Fire what is due now; how many seconds later to look again."""
        agents = self._agents()
        await self._find_heartbeats(agents)
        for schedule in await self._schedules.list():
            try:
                if (planned := await self._planned(schedule)).is_due(self._clock.now()):
                    await self._fire(planned, agents)
            except StoreError:
                raise
            except Exception:
                logger.exception("schedule %s has failed; it is tried again", schedule.schedule_id)
        ahead = [each.next_at for each in await self._schedules.list() if each.next_at and not each.paused]
        return min(LOOK_SECONDS, max(0.01, min(ahead, default=0.0) - self._clock.now())) if ahead else LOOK_SECONDS

    async def _planned(self, schedule: Schedule) -> Schedule:
        """A schedule that has fired while the clock was far ahead does not wait until it is there again. A tick
        that has fired does not fire again for that: its run is found under its key."""
        now = self._clock.now()
        if schedule.fired_at is None or schedule.fired_at - now < FAR_AHEAD_SECONDS or schedule.paused:
            return schedule
        following = schedule.timing.after(now)
        if following is None or (schedule.next_at is not None and schedule.next_at <= following):
            return schedule
        logger.warning("schedule %s: the clock was set back; it goes on from now", schedule.schedule_id)
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
        assert schedule.firing_at is not None, "a tick that is begun says which"
        try:
            fired = await self._see_to(schedule, schedule.firing_at, agents)
        except StoreError:
            raise  # it stays begun, and is gone on with
        except TreadleError as error:
            logger.warning("schedule %s: no run was started: %s", schedule.schedule_id, error)
            fired = Fired(schedule.firing_at, problem=str(error))
        await self._schedules.finish(schedule.schedule_id, fired)

    async def _see_to(self, schedule: Schedule, due_at: Instant, agents: Agents) -> Fired:
        key = f"schedule/{schedule.schedule_id}/{due_at:.3f}"
        if await self._skipped(schedule, due_at, key):
            return Fired(due_at, problem="The run before was not at its end: the tick was skipped.")
        agent = agents.get(schedule.agent)
        if agent is None:
            return Fired(
                due_at,
                problem=f"No agent is called `{schedule.agent}`, or its file cannot be read. Mend it, or remove "
                "the schedule.",
            )
        because = HeartbeatFired(schedule.schedule_id, due_at, schedule.firing_since)
        submission = Submission(
            agent, user(schedule.message), schedule.session_id, key, plain=True, user=schedule.owner
        )
        try:
            ticket = await self._service.submit(submission, because)
        except SessionDeleted:
            if not schedule.is_heartbeat:
                raise
            schedule = replace(schedule, session_id=self._new_session())  # its own, and nobody's loss
            await self._schedules.keep(schedule)
            ticket = await self._service.submit(replace(submission, session_id=schedule.session_id), because)
        return Fired(due_at, ticket.run_id)

    async def _skipped(self, schedule: Schedule, due_at: Instant, key: str) -> bool:
        """Whether the run before is not at its end: then the tick is on its record, and starts no other."""
        if schedule.run_id is None:
            return False
        try:
            return await self._service.note(
                schedule.run_id, ScheduleSkipped(schedule.schedule_id, due_at), f"{key}/skipped"
            )
        except UnknownRun:
            return False  # it was deleted

    # ── Heartbeats ──

    async def _find_heartbeats(self, agents: Agents) -> None:
        """Let there be a schedule for every heartbeat that stands in the file of an agent, and no other."""
        known = {each.agent: each for each in await self._schedules.list() if each.is_heartbeat}
        for name, schedule in known.items():
            agent = agents.get(name)
            if name not in agents or (agent is not None and agent.heartbeat.every is None):
                await self._schedules.remove(schedule.schedule_id)
        for name, agent in agents.items():
            if agent is not None and agent.heartbeat.every is not None:
                await self._keep_heartbeat(agent, known.get(name))

    async def _keep_heartbeat(self, agent: AgentSpec, known: Schedule | None) -> None:
        wanted, now = agent.heartbeat, self._clock.now()
        assert wanted.every is not None, "an agent without a heartbeat is none of these"
        if known is not None and known.timing == Timing(wanted.every, wanted.zone, known.timing.anchor):
            if known.message != wanted.message:
                await self._schedules.keep(replace(known, message=wanted.message or ""))
            return
        timing = Timing(wanted.every, wanted.zone, now)
        if known is not None:
            changed = replace(known, message=wanted.message or "", timing=timing, next_at=timing.after(now))
            await self._schedules.keep(changed)
            return
        await self._schedules.keep(
            Schedule(
                heartbeat_id(agent.name),
                agent.name,
                wanted.message or "",
                timing,
                timing.after(now),
                self._new_session(),
                is_heartbeat=True,
            )
        )

    def _new_session(self) -> SessionId:
        return SessionId(self._ids("ses"))
