"""Management of schedules."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from treadle.domain.agents import AgentSpec
from treadle.domain.channels import ChannelConfig, find_recipient
from treadle.domain.errors import UnknownSchedule, UsageError
from treadle.domain.ids import Instant, SessionId
from treadle.domain.schedules import Schedule, ScheduleId, Timing
from treadle.domain.users import LOCAL_USER, UserId
from treadle.operations.automation import NewSchedule, ScheduleView
from treadle.operations.schemas import maybe, moment
from treadle.ports.automation import Schedules
from treadle.ports.clock import Clock, Ids

UPCOMING_TICKS = 5
NotifyChange = Callable[[], None]
"""Called after a change, so that the scheduler or sender polls now."""


class ScheduleRegistry:
    """Implements `operations.automation.ScheduleManager`."""

    def __init__(
        self,
        schedules: Schedules,
        agents: Callable[[str], AgentSpec],
        clock: Clock,
        ids: Ids,
        notify_change: NotifyChange,
        channels: Mapping[str, ChannelConfig] = {},
    ) -> None:
        self._schedules = schedules
        self._agents = agents
        self._clock = clock
        self._ids = ids
        self._notify_change = notify_change
        self._channels = channels

    def _check_delivery(self, target: str) -> None:
        if target:
            try:
                find_recipient(self._channels, target)
            except ValueError as error:
                raise UsageError(f"The answers cannot be delivered: {error}. Use CHANNEL:NAME.") from None

    async def add(self, request: NewSchedule, owner: UserId = LOCAL_USER) -> ScheduleView:
        """Add a schedule. Raise UsageError if it would never fire."""
        self._agents(request.agent)
        if not request.message.strip():
            raise UsageError("The message is empty. Say what the agent should do at every tick.")
        now = self._clock.now()
        try:
            timing = Timing(request.every, request.zone, now)
        except ValueError as error:
            raise UsageError(f"The schedule is invalid: {error}.") from None
        self._check_delivery(request.deliver)
        session = None if request.session_id is None else SessionId(request.session_id)
        schedule_id = ScheduleId(self._ids("sch"))
        schedule = Schedule(
            schedule_id=schedule_id,
            agent=request.agent,
            message=request.message,
            timing=timing,
            next_at=timing.after(now),
            session_id=session,
            owner=owner,
            deliver=request.deliver,
        )
        await self._schedules.keep(schedule)
        self._notify_change()
        return to_schedule_view(schedule)

    async def list(self) -> Sequence[ScheduleView]:
        return [to_schedule_view(schedule) for schedule in await self._schedules.list()]

    async def remove(self, schedule_id: ScheduleId) -> None:
        self._refuse_heartbeat(await self._find(schedule_id), "remove")
        await self._schedules.remove(schedule_id)

    async def pause(self, schedule_id: ScheduleId) -> ScheduleView:
        return await self._save(replace(await self._find(schedule_id), paused=True))

    async def resume(self, schedule_id: ScheduleId) -> ScheduleView:
        schedule = await self._find(schedule_id)
        following = schedule.timing.after(self._clock.now())
        return await self._save(replace(schedule, paused=False, next_at=following))

    async def _save(self, schedule: Schedule) -> ScheduleView:
        await self._schedules.keep(schedule)
        self._notify_change()
        return to_schedule_view(schedule)

    async def _find(self, schedule_id: ScheduleId) -> Schedule:
        for schedule in await self._schedules.list():
            if schedule.schedule_id == schedule_id:
                return schedule
        raise UnknownSchedule(f"There is no schedule {schedule_id}. `treadle schedules list` shows all schedules.")

    def _refuse_heartbeat(self, schedule: Schedule, action: str) -> None:
        if schedule.is_heartbeat:
            raise UsageError(
                f"{schedule.schedule_id} is defined in the file of the agent `{schedule.agent}`: {action} "
                f"`heartbeat` there (treadle agents edit {schedule.agent}), or pause it."
            )


def _list_upcoming(schedule: Schedule) -> tuple[datetime, ...]:
    """Return the next ticks of a schedule that is not paused."""
    found: list[Instant] = []
    tick = None if schedule.paused else schedule.next_at
    while tick is not None and len(found) < UPCOMING_TICKS:
        found.append(tick)
        tick = schedule.timing.after(tick)
    return tuple(map(moment, found))


def to_schedule_view(schedule: Schedule) -> ScheduleView:
    timing = schedule.timing
    return ScheduleView(
        schedule_id=schedule.schedule_id,
        agent=schedule.agent,
        message=schedule.message,
        every=timing.every,
        zone=timing.zone,
        anchor=moment(timing.anchor),
        session_id=schedule.session_id,
        is_heartbeat=schedule.is_heartbeat,
        paused=schedule.paused,
        next_at=None if schedule.paused else maybe(schedule.next_at),
        fired_at=maybe(schedule.fired_at),
        run_id=schedule.run_id,
        problem=schedule.problem,
        owner=schedule.owner,
        deliver=schedule.deliver,
        upcoming=_list_upcoming(schedule),
    )
