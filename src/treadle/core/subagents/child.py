"""A run under another, as the one above knows it."""

from dataclasses import dataclass, field

from treadle.domain.events import AgentEnd, AgentSpawn, Telling
from treadle.domain.ids import Instant, RunId


@dataclass(slots=True)
class Child:
    """What was asked of it, and what is known of how it does."""

    spawn: AgentSpawn
    began_at: Instant
    end: AgentEnd | None = None
    told: Telling | None = None
    """What it was asked last, as long as that holds."""
    told_at: Instant = 0.0
    waiting: set[RunId] = field(default_factory=set[RunId])
    """It, or runs under it, that wait for people: its time stands still."""
    still_since: Instant = 0.0
    still: float = 0.0
    """Seconds that its time has stood still before."""

    @property
    def due_at(self) -> Instant | None:
        """When it is asked to stop; None: not as long as nothing happens."""
        due_at = self.spawn.expires_at
        return None if due_at is None or self.waiting else due_at + self.still
