"""The recorded journal as a script: how far it has been replayed, and which events come next."""

import asyncio
from collections.abc import Callable, Iterator

from treadle.core.context.compaction import find_kept, split_into_pieces
from treadle.core.fold import fold, fold_all
from treadle.core.state import RunState, new_state
from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.events import EventData
from treadle.domain.excerpts import take_excerpt
from treadle.domain.ids import Instant, Prefix
from treadle.domain.models import Profile
from treadle.replay.recording import Recorded, count_opening, is_delivery

DECISIONS = (
    e.ToolCallStart, e.ApprovalRequested, e.ApprovalDecided, e.ApprovalExpired, e.ClarifyRequested,
    e.ClientCallRequested, e.ToolCallError, e.ToolCallBlocked, e.ToolCallEnd, e.HookBlocked, e.BudgetReserved,
)  # fmt: skip
"""Events that record a decision about a call before it runs."""
DELIVERY_TURNS = 5
"""Turns of the event loop in which a worker folds a delivery."""


class Script:
    """The position in the journal: `committed` events have been written again, and `drafted` of the worker's own
    events have at least been made."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.events = recorded.events
        self.committed = count_opening(self.events)
        self._own = [
            index for index in range(self.committed, len(self.events)) if not is_delivery(self.events[index].data)
        ]
        self.drafted = 0
        self._begun = 0
        """Number of child runs that the drafts since the last commit begin."""
        self.early = False
        """Whether the clock shows the time of the previous event, instead of that of the next one."""
        self.monotonic = 0.0
        self.deliver: Callable[[int], object] = self.commit_deliveries
        """Delivers this many events to the worker while it works."""
        self.read_early_at: int | None = None
        """Position of deliveries that the worker reads while it works, and not with its next commit."""
        self.cannot = ""
        """Why the replay cannot continue; "" if it can."""

    @property
    def is_over(self) -> bool:
        return self.committed >= len(self.events)

    def next(self) -> Event | None:
        """Return the worker's next event."""
        return self.events[self._own[self.drafted]] if self.drafted < len(self._own) else None

    def list_upcoming(self) -> Iterator[EventData]:
        """Yield the worker's events that have not been drafted yet."""
        for place in range(self.drafted, len(self._own)):
            yield self.events[self._own[place]].data

    def list_uncommitted(self) -> Iterator[EventData]:
        """Yield the worker's events that have not been committed yet, drafted or not."""
        for event in self.events[self.committed :]:
            if not is_delivery(event.data):
                yield event.data

    def find_last_draft(self) -> EventData | None:
        """Return the worker's latest draft, except warnings, which come at any time."""
        for place in range(self.drafted - 1, -1, -1):
            data = self.events[self._own[place]].data
            if not isinstance(data, e.QuotaWarning):
                return data
        return None

    def commit(self) -> Event:
        """Commit the next event and return it."""
        event = self.events[self.committed]
        self.committed += 1
        return event

    def discard_drafts(self) -> None:
        """Discard drafts that were not committed."""
        own = self._own
        low, high = 0, len(own)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if own[middle] < self.committed else (low, middle)
        self.drafted, self._begun = low, 0

    def commit_deliveries(self, most: int | None = None) -> list[Event]:
        """Commit the deliveries that come next, at most this many, and return them."""
        found: list[Event] = []
        while len(found) != most and not self.is_over and is_delivery(self.events[self.committed].data):
            found.append(self.commit())
        return found

    def find_deliveries_before(self, position: int) -> int:
        """Return where the deliveries directly before a position begin."""
        first = count_opening(self.events)
        while position > first and is_delivery(self.events[position - 1].data):
            position -= 1
        return position

    def count_deliveries(self, position: int) -> int:
        """Return the number of deliveries that come directly after a position."""
        count = 0
        while position + count < len(self.events) and is_delivery(self.events[position + count].data):
            count += 1
        return count

    def pending_deliveries(self) -> list[Event]:
        """Return the deliveries that come next and that the worker has not read."""
        found: list[Event] = []
        while (at := self.committed + len(found)) < len(self.events) and is_delivery(self.events[at].data):
            found.append(self.events[at])
        return found

    def list_delivery_positions(self, start: int, end: int) -> list[int]:
        """Return where deliveries begin between two positions, the last ones first."""
        found = [is_delivery(event.data) for event in self.events[start:end]]
        return [start + at for at in range(len(found) - 1, 0, -1) if found[at] and not found[at - 1]]

    async def read_early(self) -> None:
        """Let the worker read now what is delivered, if it reads that while it works."""
        if self.read_early_at == self.committed:
            self.deliver(len(self.pending_deliveries()))
            for _ in range(DELIVERY_TURNS):
                await asyncio.sleep(0)

    def count_read(self, fits: Callable[[RunState], bool]) -> int | None:
        """Return how many pending deliveries the worker had read, or None.

        The journal does not record it. It is the first number with which the state fits what was recorded next."""
        waiting, state = self.pending_deliveries(), self.state()
        for count in range(len(waiting) + 1):
            if count:
                each = waiting[count - 1]
                fold(state, each.data, each.sequence, each.timestamp)
            if fits(state):
                return count
        return None

    # ── Time and IDs ──

    def now(self) -> Instant:
        index = self._own[self.drafted] if self.drafted < len(self._own) else len(self.events) - 1
        return self.events[max(0, index - 1) if self.early else index].timestamp

    def find_own(self, offset: int) -> Event | None:
        """Return the worker's event that comes this many after its next one, or None."""
        place = self.drafted + offset
        return self.events[self._own[place]] if place < len(self._own) else None

    def find_time_before(self, event: Event) -> Instant:
        """Return the time of the last event before this one that is not of the same moment."""
        at = event.sequence - 2
        while at > 0 and self.events[at].timestamp == event.timestamp:
            at -= 1
        return self.events[max(0, at)].timestamp

    def new_id(self, prefix: Prefix) -> str:
        if prefix == "evt":
            self.drafted += 1
            return "evt_replayed"
        for data in self.list_upcoming():
            match prefix, data:
                case "apr", e.ApprovalRequested(approval_id=found):
                    return found
                case "seg", e.SegmentOpened(segment_id=found):
                    return found
                case "run" | "ses", e.AgentSpawn():
                    return self._next_child_id(prefix)
                case "mem", e.MemorySaved(memory_id=found) | e.JournalWritten(memory_id=found):
                    return found
                case _:
                    pass
        return f"{prefix}_replayed"

    def next_child(self) -> e.AgentSpawn | None:
        """Return the child run that begins next, or None."""
        spawns = [data for data in self.list_upcoming() if isinstance(data, e.AgentSpawn)]
        return spawns[self._begun] if self._begun < len(spawns) else None

    def explain_not_started(self, name: str) -> str | None:
        """Return why no child run could be started with the name of this agent or tool, or None."""
        for data in self.list_decisions():
            match data:
                case e.ToolCallError(cause="not_started", subject=subject) if subject == name:
                    return take_excerpt(data.content, data.excerpt)
                case _:
                    pass
        return None

    def _next_child_id(self, prefix: Prefix) -> str:
        """Return an ID of the child run that begins next. The engine makes the ID of its session first."""
        found = self.next_child()
        if found is None:
            return f"{prefix}_replayed"
        self._begun += prefix == "run"
        return found.run_id if prefix == "run" else found.session_id

    # ── The events that come next ──

    def list_decisions(self) -> Iterator[EventData]:
        """Yield the decisions about the calls of the current reply."""
        for data in self.list_upcoming():
            if isinstance(data, e.StepEnd | e.LlmRequest | e.RunEnd | e.LlmResponse):
                return
            if isinstance(data, DECISIONS):
                yield data

    def find_outcome(self, call_id: str) -> e.ToolCallEnd | e.ToolCallError | e.HookBlocked | None:
        """Return how a call in progress ends, or None if it never does or is started again first."""
        for data in self.list_upcoming():
            match data:
                case e.ToolCallEnd() | e.ToolCallError() | e.HookBlocked() if data.call_id == call_id:
                    return data
                case e.ToolCallStart() if data.call_id == call_id:
                    return None
                case _:
                    pass
        return None

    def state(self) -> RunState:
        """Return the state after the committed events. It is folded anew each time."""
        began = new_state(self.recorded.origin, self.recorded.history)
        return fold_all(began, self.events[: self.committed])

    def count_pieces(self, started: e.CompactionStarted, writer: Profile) -> int:
        """Return the number of pieces in which a summary is written."""
        state = self.state()
        kept, messages = find_kept(state, started.first, started.last), state.transcript.messages
        span = [messages[at] for at in range(started.first, started.last) if at not in kept]
        own = state.model is not None and (started.provider, started.model) == (
            state.model.provider,
            state.model.model,
        )
        return len(split_into_pieces(span, state.window if own else writer.context_window))
