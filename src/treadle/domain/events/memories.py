"""Events about memories: recalled, saved, and searched without an embedder."""

from typing import Literal

from msgspec import Struct

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.excerpts import Excerpt, take_excerpt
from treadle.domain.ids import Instant
from treadle.domain.memories import MemoryId, MemorySource, ShownMemory
from treadle.domain.time_format import format_day


class Reminder(Struct, frozen=True, omit_defaults=True, gc=False):
    """A memory that was recalled."""

    memory_id: MemoryId
    score: float = 0.0
    """Between 0 and 1. A higher score means a better match."""
    created_at: Instant | None = None
    """Null: it has no date."""
    excerpt: Excerpt | None = None
    """The part of the section that shows it."""


RecalledBy = Literal["vectors", "text", "both"]


@durable("memory_recalled")
class MemoryRecalled(EventData, frozen=True):
    """Memories that fit a message. They are added to that message."""

    reminders: tuple[Reminder, ...]
    section: str
    """The text with the memories, as the model reads it."""
    by: RecalledBy = "text"
    place: Literal["message", "system"] = "message"
    notes: tuple[ShownMemory, ...] = ()
    """The journal notes that the section shows after the memories."""

    @property
    def count(self) -> int:
        """Number of memories and journal notes that the model reads."""
        return len(self.reminders) + len(self.notes)

    @property
    def texts(self) -> str:
        """The recalled texts for people, one per line with its date."""
        shown = [each for each in (*self.reminders, *self.notes) if each.excerpt is not None]
        if len(shown) < self.count:  # the journal does not say where they are
            return self.section
        return "\n".join([
            f"({'undated' if each.created_at is None else format_day(each.created_at)}) "
            f"{take_excerpt(self.section, each.excerpt)}"
            for each in shown
        ])  # fmt: skip


@durable("memory_saved")
class MemorySaved(EventData, frozen=True):
    """A memory was saved."""

    memory_id: MemoryId
    text: str
    source: MemorySource
    pinned: bool = False
    """Age does not lower its score."""
    repeats: MemoryId | None = None
    """An older memory with the same content. It counts as fresh again, and no memory is added."""


@durable("memory_flushed")
class MemoryFlushed(EventData, frozen=True):
    """Facts from messages that a compaction is about to remove were offered to memory."""

    memories: tuple[MemoryId, ...]
    """The memories that were saved; each has its `memory_saved` event."""


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
