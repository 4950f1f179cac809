"""The verdicts of guards. None permits."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from treadle.core.state import RunState
from treadle.domain.events import EventData, GuardName
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome


class WarnModel(Struct, frozen=True):
    """Continue, and record these events. Their notes tell the model."""

    events: tuple[EventData, ...]


class BlockCall(Struct, frozen=True):
    """Do not run this call, and tell the model why."""

    guard: GuardName
    reason: str


class StopVerdict(Struct, frozen=True):
    """End the run."""

    outcome: Outcome
    events: tuple[EventData, ...] = ()


Verdict = WarnModel | BlockCall | StopVerdict
Guard = Callable[[RunState, Instant], WarnModel | StopVerdict | None]


def combine_verdicts(guards: Iterable[Guard], state: RunState, now: Instant) -> WarnModel | StopVerdict | None:
    """Return the combined verdict of these guards: the first StopVerdict, else all warnings as one, else None."""
    events: tuple[EventData, ...] = ()
    for guard in guards:
        verdict = guard(state, now)
        if verdict is None:  # nearly always
            continue
        if isinstance(verdict, StopVerdict):
            return verdict
        events += verdict.events
    return WarnModel(events) if events else None
