"""What an agent remembers, and what it was reminded of."""

from typing import Literal

from msgspec import Struct

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.memories import MemoryId, MemorySource


class Reminder(Struct, frozen=True, omit_defaults=True, gc=False):
    """A memory as it was recalled."""

    memory_id: MemoryId
    score: float = 0.0
    """Between 0 and 1; the higher, the better it fits."""


RecalledBy = Literal["vectors", "text", "both"]


@durable("memory_recalled")
class MemoryRecalled(EventData, frozen=True):
    """Memories that fit a message. They are added to that message."""

    reminders: tuple[Reminder, ...]
    section: str
    """What the model is shown of them, as it is shown."""
    by: RecalledBy = "text"
    place: Literal["message", "system"] = "message"


@durable("memory_saved")
class MemorySaved(EventData, frozen=True):
    """A memory was saved."""

    memory_id: MemoryId
    text: str
    source: MemorySource
    pinned: bool = False
    """It does not fade."""
    repeats: MemoryId | None = None
    """A memory that says the same and was there before: nothing is added, and that one counts as fresh again."""


@durable("memory_flushed")
class MemoryFlushed(EventData, frozen=True):
    """Facts from messages that a compaction is about to remove were offered to memory."""

    memories: tuple[MemoryId, ...]
    """Those that were saved of it; each has its `memory_saved`."""


@durable("journal_written")
class JournalWritten(EventData, frozen=True):
    """The agent wrote a dated note for itself."""

    memory_id: MemoryId
    text: str


@durable("memory_degraded")
class MemoryDegraded(EventData, frozen=True):
    """Memories were searched by words only, because the embedder did not answer."""

    embedder: str
    reason: str
