"""The run that a conversation follows: its items go to the transcript of the session, its totals to the status."""

from collections.abc import Sequence

from treadle.domain.envelope import Event
from treadle.domain.ids import RunId
from treadle.domain.transcript import Change, ItemAdded, ItemChanged, PlanItem, PlanStep, RunTotals
from treadle.operations.transcripts import RunTranscript
from treadle.surfaces.tui.transcript import SessionTranscript


class ChatRun:
    """A run, from its events."""

    def __init__(self, run_id: RunId, session: SessionTranscript) -> None:
        self.run_id = run_id
        self._transcript = RunTranscript(run_id)
        self._session = session
        self.plan: tuple[PlanStep, ...] = ()
        """The latest plan of the agent."""

    def apply(self, event: Event) -> Sequence[Change]:
        """Apply an event of the run or of one of its child runs, and return what it changed."""
        changes = self._transcript.apply(event)
        self._session.apply(self.run_id, changes)
        for change in changes:
            if isinstance(change, ItemAdded | ItemChanged) and isinstance(change.item, PlanItem):
                self.plan = change.item.steps
        return changes

    @property
    def totals(self) -> RunTotals:
        return self._transcript.totals

    @property
    def sequence(self) -> int:
        """The last stored event that was applied."""
        return self._transcript.sequence

    @property
    def children(self) -> set[RunId]:
        """Its child runs and theirs, as far as they are known and have not ended."""
        return self._transcript.children

    @property
    def ended(self) -> bool:
        return self.totals.outcome is not None

    @property
    def waits_for(self) -> str | None:
        return self.totals.waiting_for

    @property
    def state(self) -> str:
        """pending, thinking, answering, calling, compacting or waiting:REASON."""
        totals = self.totals
        if totals.waiting_for is not None:
            return f"waiting:{totals.waiting_for}"
        return totals.activity or ("pending" if totals.started_at is None else "thinking")

    @property
    def retry_at(self) -> float | None:
        """When the request is sent again, if it has failed."""
        return self.totals.wake_at if self.waits_for in (None, "retry", "breaker") else None
