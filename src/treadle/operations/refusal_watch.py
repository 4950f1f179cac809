"""Knows the runs without refused tool calls, so that their journals need not be read when they end: that would cost
a seventh of the CPU of a run."""

from collections.abc import Sequence

from treadle.domain.envelope import Draft, Origin
from treadle.domain.events import NAMES, HookBlocked, RunEnd, ToolCallBlocked, ToolCallError
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub

MAX_RUNS = 10_000
"""How many runs are known, the latest ones."""
_ENDED = 0
_REFUSALS = frozenset([NAMES[ToolCallError], NAMES[ToolCallBlocked], NAMES[HookBlocked]])
_RUN_END = NAMES[RunEnd]


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
        following, run_id = self._next, origin.run_id
        if first == 1:
            if len(following) >= MAX_RUNS:
                del following[next(iter(following))]
        elif following.get(run_id) != first:  # it has a refused call, or other events came between
            following.pop(run_id, None)
            return
        for made in drafts:
            if made.type in _REFUSALS:
                following.pop(run_id, None)
                return
        following[run_id] = _ENDED if drafts and drafts[-1].type == _RUN_END else first + len(drafts)
