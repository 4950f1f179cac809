"""Schedules: cron expressions and intervals."""

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
"""Minimum interval between two ticks."""


class Timing(Struct, frozen=True):
    """The ticks of a schedule. Raises ValueError if it is invalid or has none."""

    every: float | str
    """Seconds, text such as `15m`, or a cron expression of five fields."""
    zone: str = "UTC"
    """The time zone of a cron expression."""
    anchor: Instant = 0.0
    """The start of an interval."""

    def __post_init__(self) -> None:
        if not self.is_cron:
            try:
                step = parse_duration(self.every)
            except ValueError:
                raise ValueError(
                    f"every is `{self.every}`; accepted: a time such as 15m, or a cron expression of "
                    f"{CRON_FIELDS} fields such as `0 9 * * 1-5`"
                ) from None
            if not MIN_INTERVAL_SECONDS <= step < math.inf:
                raise ValueError(f"every must be at least {MIN_INTERVAL_SECONDS:.0f} s, found {self.every}")
            return
        find_zone(self.zone)
        if self.after(self.anchor) is None:
            raise ValueError(f"`{self.every}` never fires")

    @property
    def is_cron(self) -> bool:
        return isinstance(self.every, str) and len(self.every.split()) > 2

    def after(self, moment: Instant) -> Instant | None:
        """Return the first tick after a moment, or None if there is none."""
        if self.is_cron:
            return next(self._cron(moment, backwards=False), None)
        step = parse_duration(self.every)
        tick = self.anchor + (math.floor((moment - self.anchor) / step) + 1) * step
        return tick if tick > moment else tick + step

    def latest(self, first: Instant, now: Instant) -> Instant:
        """Return the last tick up to now. `first` is a tick, and the result is never before it."""
        if self.is_cron:
            found = next(self._cron(now + 1.0, backwards=True), first)
        else:
            step = parse_duration(self.every)
            found = first + math.floor((now - first) / step) * step
        return found if first <= found <= now else first

    def _cron(self, moment: Instant, *, backwards: bool) -> Iterator[Instant]:
        from cronsim import CronSim, CronSimError  # imported only if there is a schedule

        if len(str(self.every).split()) != CRON_FIELDS:
            raise ValueError(f"`{self.every}` is not a cron expression: it needs {CRON_FIELDS} fields")
        begin = datetime.fromtimestamp(math.floor(moment), find_zone(self.zone))
        try:
            ticks = CronSim(str(self.every), begin, reverse=backwards)
        except CronSimError as error:
            raise ValueError(f"`{self.every}` is not a cron expression: {error}") from None
        for tick in ticks:
            yield tick.astimezone(UTC).timestamp()


def find_zone(name: str) -> tzinfo:
    """Return a time zone by its name. Raise ValueError if it is unknown."""
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"`{name}` is not a time zone; accepted: names such as Europe/Berlin, or UTC") from None


class Heartbeat(Struct, frozen=True, omit_defaults=True):
    """A message that is sent to the agent at set times, in a session of its own."""

    every: float | str | None = None
    """Seconds, text such as `15m`, or a cron expression. Null: no heartbeat."""
    message: str | None = None
    """The message. Required if `every` is set."""
    zone: str = "UTC"
    """The time zone of a cron expression."""
    deliver: str | None = None
    """The channel and recipient that the answers are sent to, such as `telegram:alice`. Null: none."""

    def __post_init__(self) -> None:
        if self.every is None:
            return
        Timing(self.every, self.zone)
        if not (self.message or "").strip():
            raise ValueError("message must say what the agent is asked at every beat")


class Schedule(Struct, frozen=True):
    """A message that is sent to an agent at every tick, with its progress."""

    schedule_id: ScheduleId
    agent: str
    message: str
    timing: Timing
    next_at: Instant | None
    """The next tick; None if there is none."""
    session_id: SessionId | None = None
    """The session of its runs; None for a new session each time."""
    is_heartbeat: bool = False
    """It is defined in the agent's file."""
    paused: bool = False
    firing_at: Instant | None = None
    """The tick in progress. A process that finds one continues it."""
    firing_since: Instant | None = None
    """The first of the missed ticks that it stands for."""
    fired_at: Instant | None = None
    """The latest tick that was completed."""
    run_id: RunId | None = None
    """The latest run."""
    problem: str = ""
    """Why the latest tick started no run."""
    owner: UserId = LOCAL_USER
    """The user whom its runs are for: its creator. Heartbeats belong to the local user."""
    deliver: str = ""
    """Where the answers are sent, such as `telegram:alice`; empty for nowhere."""

    def is_due(self, now: Instant) -> bool:
        return self.firing_at is not None or (not self.paused and self.next_at is not None and self.next_at <= now)


def heartbeat_id(agent: str) -> ScheduleId:
    return ScheduleId(f"heartbeat-{agent}")
