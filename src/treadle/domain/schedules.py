"""When something is to be done by itself: at the times of a cron expression, or every so often."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import NewType

from msgspec import Struct

from treadle.domain.durations import parse_duration
from treadle.domain.ids import Instant, RunId, SessionId
from treadle.domain.users import LOCAL_USER, UserId

ScheduleId = NewType("ScheduleId", str)

CRON_FIELDS = 5
MIN_INTERVAL_SECONDS = 1.0
"""Seconds between two ticks, at the least."""


class Timing(Struct, frozen=True):
    """Which moments are ticks. Raises ValueError for what names none."""

    every: float | str
    """Seconds, text such as `15m`, or a cron expression of five fields."""
    zone: str = "UTC"
    """The time zone that a cron expression is meant in."""
    anchor: Instant = 0.0
    """Where an interval is counted from."""

    def __post_init__(self) -> None:
        if not self.is_cron:
            try:
                step = parse_duration(self.every)
            except ValueError:
                raise ValueError(
                    f"every is `{self.every}`; accepted: seconds, text such as 15m, or a cron expression of "
                    f"{CRON_FIELDS} fields such as `0 9 * * 1-5`"
                ) from None
            if not MIN_INTERVAL_SECONDS <= step < math.inf:
                raise ValueError(f"every must be at least {MIN_INTERVAL_SECONDS:.0f} s, found {self.every}")
            return
        find_zone(self.zone)
        if self.after(self.anchor) is None:
            raise ValueError(f"`{self.every}` is a time that never comes")

    @property
    def is_cron(self) -> bool:
        return isinstance(self.every, str) and len(self.every.split()) > 2

    def after(self, moment: Instant) -> Instant | None:
        """The first tick after a moment; None: there is none any more."""
        if self.is_cron:
            return next(self._cron(moment, backwards=False), None)
        step = parse_duration(self.every)
        tick = self.anchor + (math.floor((moment - self.anchor) / step) + 1) * step
        return tick if tick > moment else tick + step

    def latest(self, first: Instant, now: Instant) -> Instant:
        """The last tick up to now, of those from `first` on, which is one."""
        if self.is_cron:
            found = next(self._cron(now + 1.0, backwards=True), first)
        else:
            step = parse_duration(self.every)
            found = first + math.floor((now - first) / step) * step
        return found if first <= found <= now else first

    def _cron(self, moment: Instant, *, backwards: bool) -> Iterator[Instant]:
        from cronsim import CronSim, CronSimError  # which only those need who have a schedule

        if len(str(self.every).split()) != CRON_FIELDS:
            raise ValueError(f"`{self.every}` is no cron expression: it needs {CRON_FIELDS} fields")
        begin = datetime.fromtimestamp(math.floor(moment), find_zone(self.zone))
        try:
            ticks = CronSim(str(self.every), begin, reverse=backwards)
        except CronSimError as error:
            raise ValueError(f"`{self.every}` is no cron expression: {error}") from None
        for tick in ticks:
            yield tick.astimezone(UTC).timestamp()


def find_zone(name: str) -> tzinfo:
    """A time zone by its name. Raises ValueError where there is none of that name."""
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"`{name}` is no time zone; accepted: names such as Europe/Berlin, or UTC") from None


class Heartbeat(Struct, frozen=True, omit_defaults=True):
    """A message that is sent to the agent at set times, in a session of its own."""

    every: float | str | None = None
    """Seconds, text such as `15m`, or a cron expression. Null: no heartbeat."""
    message: str | None = None
    """The message. Required if `every` is set."""
    zone: str = "UTC"
    """The time zone of a cron expression."""

    def __post_init__(self) -> None:
        if self.every is None:
            return
        Timing(self.every, self.zone)
        if not (self.message or "").strip():
            raise ValueError("message must say what the agent is asked at every beat")


class Schedule(Struct, frozen=True):
    """A message that is sent to an agent at every tick, and how far it has come."""

    schedule_id: ScheduleId
    agent: str
    message: str
    timing: Timing
    next_at: Instant | None
    """The first tick that nothing was done about yet; None: there is none."""
    session_id: SessionId | None = None
    """Where its runs go on; None: each begins a session of its own."""
    is_heartbeat: bool = False
    """It stands in the file of the agent."""
    paused: bool = False
    firing_at: Instant | None = None
    """The tick that is being seen to: whoever finds it so goes on with it."""
    firing_since: Instant | None = None
    """The first of the missed ticks that it stands for."""
    fired_at: Instant | None = None
    """The latest tick that was seen to."""
    run_id: RunId | None = None
    """The latest run."""
    problem: str = ""
    """Why the latest tick started no run."""
    owner: UserId = LOCAL_USER
    """The user its runs are for: who made it. Heartbeats are the local user's."""

    def is_due(self, now: Instant) -> bool:
        return self.firing_at is not None or (not self.paused and self.next_at is not None and self.next_at <= now)


def heartbeat_id(agent: str) -> ScheduleId:
    return ScheduleId(f"heartbeat-{agent}")
