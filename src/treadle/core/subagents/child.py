"""A child run, as its parent knows it."""

from dataclasses import dataclass, field

from treadle.domain.events import AgentEnd, AgentSpawn, ChildSignal
from treadle.domain.ids import Instant, RunId
from treadle.domain.modes import ApprovalMode


@dataclass(slots=True)
class Child:
    """A child run: what was requested of it, and what is known about it."""

    spawn: AgentSpawn
    began_at: Instant
    end: AgentEnd | None = None
    signal: ChildSignal | None = None
    """The last signal to stop or to wait, while it applies."""
    mode: ApprovalMode | None = None
    """The mode that it was given last."""
    signalled_at: Instant = 0.0
    waiting: set[RunId] = field(default_factory=set[RunId])
    """The child run or its descendants that wait for a reviewer. Its time limit pauses meanwhile."""
    paused_since: Instant = 0.0
    paused_seconds: float = 0.0
    """Seconds of earlier pauses."""

    @property
    def due_at(self) -> Instant | None:
        """When the child run is asked to stop, or None if it has no limit or its time is paused."""
        due_at = self.spawn.expires_at
        return None if due_at is None or self.waiting else due_at + self.paused_seconds
