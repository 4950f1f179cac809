"""Knows the runs without refused tool calls, so that their journals need not be read when they end: that would cost
a seventh of the CPU of a run."""

from collections.abc import Sequence

from treadle.domain.envelope import Draft, Origin
from treadle.domain.events import EventData, HookBlocked, RunEnd, ToolCallBlocked, ToolCallError
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub

MAX_RUNS = 10_000
"""How many runs are known, the latest ones."""
_ENDED = 0
_REFUSALS: frozenset[type[EventData]] = frozenset([ToolCallError, ToolCallBlocked, HookBlocked])


class RefusalWatch:
    """Watches the runs that this process executes from their beginning to their end."""

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._is_watching = False
        self._next: dict[RunId, int] = {}
        """The sequence of the next event of each run without a refused call so far; 0 if it has ended so."""

    def may_have(self, run_id: RunId) -> bool:
        """Return whether a run that has ended may have refused calls. Runs are watched from the first call on."""
        if not self._is_watching:
            self._is_watching = True
            self._hub.observers.append(self._observe)
        return self._next.get(run_id) != _ENDED

    def _observe(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        run_id = origin.run_id
        is_known = first == 1 or self._next.get(run_id) == first  # else other events came between
        if not is_known or not _REFUSALS.isdisjoint([type(made.data) for made in drafts]):
            self._next.pop(run_id, None)
            return
        if first == 1 and len(self._next) >= MAX_RUNS:
            del self._next[next(iter(self._next))]
        is_ended = bool(drafts) and isinstance(drafts[-1].data, RunEnd)
        self._next[run_id] = _ENDED if is_ended else first + len(drafts)
