"""The journal as a script: how far it was played, and what comes next in it."""

from collections.abc import Callable, Iterator

from treadle.core.context.compaction import find_kept, split_into_pieces
from treadle.core.fold import fold, fold_all
from treadle.core.state import RunState, new_state
from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.events import EventData
from treadle.domain.ids import Instant, Prefix
from treadle.domain.models import Profile
from treadle.engine.subagents import NOTHING_BEGUN
from treadle.replay.recording import Recorded, is_delivery, opening

CLEARING = (
    e.ToolCallStart, e.ApprovalRequested, e.ApprovalDecided, e.ApprovalExpired, e.ClarifyRequested, e.ToolCallError,
    e.ToolCallBlocked, e.ToolCallEnd, e.HookBlocked, e.BudgetReserved,
)  # fmt: skip
"""What can be decided about the calls of a turn before they run."""


class Script:
    """`committed` events are written again; of the owner's own, `drafted` have at least been put into words."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.events = recorded.events
        self.committed = opening(self.events)
        self._own = [
            index for index in range(self.committed, len(self.events)) if not is_delivery(self.events[index].data)
        ]
        self.drafted = 0
        self._begun = 0
        """Runs that were begun under it in what is being put into words."""
        self.early = False
        """The clock says when the event before happened, and not when the next one did."""
        self.monotonic = 0.0
        self.tell: Callable[[int], object] = self.deliveries
        """Let the owner hear of so many deliveries, while something is under way."""
        self.cannot = ""
        """Why nobody can tell how it goes on."""

    @property
    def is_over(self) -> bool:
        return self.committed >= len(self.events)

    def next(self) -> Event | None:
        """The owner's next event."""
        return self.events[self._own[self.drafted]] if self.drafted < len(self._own) else None

    def upcoming(self) -> Iterator[EventData]:
        """What the owner writes from now on."""
        for place in range(self.drafted, len(self._own)):
            yield self.events[self._own[place]].data

    def unwritten(self) -> Iterator[EventData]:
        """What the owner has on record that is not written again yet, whether or not it is in words."""
        for event in self.events[self.committed :]:
            if not is_delivery(event.data):
                yield event.data

    def written_last(self) -> EventData | None:
        """The owner's latest event, but for warnings, which come at any time."""
        for place in range(self.drafted - 1, -1, -1):
            data = self.events[self._own[place]].data
            if not isinstance(data, e.QuotaWarning):
                return data
        return None

    def commit(self) -> Event:
        """One more event is written."""
        event = self.events[self.committed]
        self.committed += 1
        return event

    def settle(self) -> None:
        """Nothing is in words that is not written."""
        own = self._own
        low, high = 0, len(own)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if own[middle] < self.committed else (low, middle)
        self.drafted, self._begun = low, 0

    def deliveries(self, most: int | None = None) -> list[Event]:
        """Write what others have appended here; so many of them at most."""
        found: list[Event] = []
        while len(found) != most and not self.is_over and is_delivery(self.events[self.committed].data):
            found.append(self.commit())
        return found

    def delivered_before(self, position: int) -> int:
        """Where the deliveries begin that stand just before a position."""
        first = opening(self.events)
        while position > first and is_delivery(self.events[position - 1].data):
            position -= 1
        return position

    def waiting(self) -> list[Event]:
        """What others have appended here, which nobody has heard of yet."""
        found: list[Event] = []
        while (at := self.committed + len(found)) < len(self.events) and is_delivery(self.events[at].data):
            found.append(self.events[at])
        return found

    def heard(self, fits: Callable[[RunState], bool]) -> int | None:
        """How many of these were known when something came to be that only fits then; None: whatever was known, it
        would not fit. That much is not on record."""
        waiting, state = self.waiting(), self.state()
        for count in range(len(waiting) + 1):
            if count:
                each = waiting[count - 1]
                fold(state, each.data, each.sequence, each.timestamp)
            if fits(state):
                return count
        return None

    # ── Time and names ──

    def now(self) -> Instant:
        index = self._own[self.drafted] if self.drafted < len(self._own) else len(self.events) - 1
        return self.events[max(0, index - 1) if self.early else index].timestamp

    def new_id(self, prefix: Prefix) -> str:
        if prefix == "evt":
            self.drafted += 1
            return "evt_replayed"
        for data in self.upcoming():
            match prefix, data:
                case "apr", e.ApprovalRequested(approval_id=found):
                    return found
                case "seg", e.SegmentOpened(segment_id=found):
                    return found
                case "run" | "ses", e.AgentSpawn():
                    return self._named(prefix)
                case "mem", e.MemorySaved(memory_id=found) | e.JournalWritten(memory_id=found):
                    return found
                case _:
                    pass
        return f"{prefix}_replayed"

    def begins(self) -> e.AgentSpawn | None:
        """The run that is begun next; None: there is none."""
        spawns = [data for data in self.upcoming() if isinstance(data, e.AgentSpawn)]
        return spawns[self._begun] if self._begun < len(spawns) else None

    def why_nothing_was_begun(self, name: str) -> str | None:
        """What was wrong with the name of an agent or a tool that a run was to be begun with; None: nothing."""
        for data in self.clearing():
            if isinstance(data, e.ToolCallError) and f" is called `{name}`" in data.content:
                beginning, _, why = data.content.partition(": ")
                if beginning == NOTHING_BEGUN:
                    return why
        return None

    def _named(self, prefix: Prefix) -> str:
        """Of the run that is begun next: its session is asked for first, and then itself."""
        found = self.begins()
        if found is None:
            return f"{prefix}_replayed"
        self._begun += prefix == "run"
        return found.run_id if prefix == "run" else found.session_id

    # ── What is on record of what happens next ──

    def clearing(self) -> Iterator[EventData]:
        """What is decided next about the calls of the turn, before the first of them has run."""
        for data in self.upcoming():
            if isinstance(data, e.StepEnd | e.LlmRequest | e.RunEnd | e.LlmResponse):
                return
            if isinstance(data, CLEARING):
                yield data

    def outcome_of(self, call_id: str) -> e.ToolCallEnd | e.ToolCallError | e.HookBlocked | None:
        """How a call ends that is under way; None: it never does, or is begun again first."""
        for data in self.upcoming():
            match data:
                case e.ToolCallEnd() | e.ToolCallError() | e.HookBlocked() if data.call_id == call_id:
                    return data
                case e.ToolCallStart() if data.call_id == call_id:
                    return None
                case _:
                    pass
        return None

    def state(self) -> RunState:
        """That of the run as far as it was written, folded anew: for what is asked for seldom."""
        began = new_state(self.recorded.origin, self.recorded.history)
        return fold_all(began, self.events[: self.committed])

    def pieces_of(self, started: e.CompactionStarted, writer: Profile) -> int:
        """In how many pieces a summary is written."""
        state = self.state()
        kept, messages = find_kept(state, started.first, started.last), state.transcript.messages
        span = [messages[at] for at in range(started.first, started.last) if at not in kept]
        own = state.model is not None and (started.provider, started.model) == (
            state.model.provider,
            state.model.model,
        )
        return len(split_into_pieces(span, state.window if own else writer.context_window))
