"""What a memory is written as on PostgreSQL; and how what a run remembers is written beside its event, in the same
transaction."""

from collections.abc import Callable, Sequence
from typing import Any

from treadle.domain.envelope import Draft
from treadle.domain.events import JournalWritten, MemoryRecalled, MemorySaved
from treadle.domain.memories import Memory
from treadle.domain.text import folded
from treadle.stores.memories import digest, storable_text

LONGEST_WORD = 500
"""Characters of a word by which it is found: PostgreSQL takes 2 KB."""
MOST_IN_INDEX = 450_000
"""Bytes of all different words of a memory by which it is found, each with its mark: PostgreSQL takes 1 MB, and a
word may be there under two marks."""


def written(text: str, **more: Any) -> dict[str, Any]:
    """A memory as `keep_memory` in `functions/memory.sql` takes it."""
    text = storable_text(text)
    words = folded(text)
    kept = {"text": text, "words": " ".join(words), "lexemes": _indexed(words), "digest": digest(text).hex()}
    return {**kept, "used_at": None, "uses": 0, "pinned": False, **more}


def written_memory(memory: Memory) -> dict[str, Any]:
    """The same for one that people add."""
    return written(
        memory.text,
        memory_id=memory.memory_id,
        agent_id=memory.agent_id,
        owner=memory.owner,
        kind=memory.kind,
        created_at=memory.created_at,
        source=memory.source,
        used_at=memory.used_at,
        uses=memory.uses,
        pinned=memory.pinned,
        session_id=memory.session_id,
        run_id=memory.run_id,
    )


def cut(word: str) -> str:
    """A word as it is in the index."""
    return word[:LONGEST_WORD]


def _indexed(words: Sequence[str]) -> list[str]:
    found, size = dict[str, None](), 0
    for word in dict.fromkeys(map(cut, words)):
        size += len(word.encode()) + 8
        if size > MOST_IN_INDEX:
            break
        found[word] = None
    return list(found)


# ── Beside events ──


def _saved(made: Draft) -> Sequence[dict[str, Any]]:
    data = made.data
    assert isinstance(data, MemorySaved)
    return _of_run(
        data.text,
        memory_id=data.memory_id,
        kind="long_term",
        created_at=made.timestamp,
        source=data.source,
        pinned=data.pinned,
        repeats=data.repeats,
    )


def _journal_written(made: Draft) -> Sequence[dict[str, Any]]:
    data = made.data
    assert isinstance(data, JournalWritten)
    return _of_run(data.text, memory_id=data.memory_id, kind="journal", created_at=made.timestamp, source="tool")


def _of_run(text: str, **more: Any) -> Sequence[dict[str, Any]]:
    return ({"as": "memory", **written(text, **more)},) if text.strip() else ()


def _recalled(made: Draft) -> Sequence[dict[str, Any]]:
    assert isinstance(made.data, MemoryRecalled)
    used = sorted({reminder.memory_id for reminder in made.data.reminders})
    return ({"as": "recalled", "memories": used, "at": made.timestamp},) if used else ()


REMEMBERING: dict[str, Callable[[Draft], Sequence[dict[str, Any]]]] = {
    "memory_saved": _saved,
    "journal_written": _journal_written,
    "memory_recalled": _recalled,
}
"""By type of event, as in `projections`."""
