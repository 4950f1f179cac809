"""Records of memories for PostgreSQL, and the projections of memory events, which are written in the same
transaction."""

from collections.abc import Callable, Sequence
from typing import Any

from treadle.domain.envelope import Draft
from treadle.domain.events import JournalWritten, MemoryRecalled, MemorySaved
from treadle.domain.memories import Memory
from treadle.domain.text import fold_words
from treadle.stores.memories import compute_digest, replace_surrogates

MAX_WORD_CHARS = 500
"""Characters of a word in the index; PostgreSQL accepts 2 KB."""
MAX_INDEXED_BYTES = 450_000
"""Bytes of all distinct indexed words of a memory, each with its mark. PostgreSQL accepts 1 MB, and a word may be
stored under two marks."""


def build_memory_record(text: str, **more: Any) -> dict[str, Any]:
    """Return a memory as `keep_memory` in `functions/memory.sql` expects it."""
    text = replace_surrogates(text)
    words = fold_words(text)
    kept = {
        "text": text,
        "words": " ".join(words),
        "lexemes": _select_indexed_words(words),
        "digest": compute_digest(text).hex(),
    }
    return {**kept, "used_at": None, "uses": 0, "pinned": False, **more}


def encode_memory(memory: Memory) -> dict[str, Any]:
    """Return the record of a memory that was added outside a run."""
    return build_memory_record(
        memory.text,
        memory_id=memory.memory_id,
        agent_id=memory.agent_id,
        owner=memory.owner,
        workspace=memory.workspace,
        kind=memory.kind,
        created_at=memory.created_at,
        source=memory.source,
        used_at=memory.used_at,
        uses=memory.uses,
        pinned=memory.pinned,
        session_id=memory.session_id,
        run_id=memory.run_id,
    )


def truncate_word(word: str) -> str:
    """Return a word as the index stores it."""
    return word[:MAX_WORD_CHARS]


def _select_indexed_words(words: Sequence[str]) -> list[str]:
    found, size = dict[str, None](), 0
    for word in dict.fromkeys(map(truncate_word, words)):
        size += len(word.encode()) + 8
        if size > MAX_INDEXED_BYTES:
            break
        found[word] = None
    return list(found)


# ── Projections of events ──


def _project_saved(draft: Draft) -> Sequence[dict[str, Any]]:
    data = draft.data
    assert isinstance(data, MemorySaved)
    return _project_memory(
        data.text,
        memory_id=data.memory_id,
        kind="long_term",
        created_at=draft.timestamp,
        source=data.source,
        pinned=data.pinned,
        repeats=data.repeats,
    )


def _project_journal(draft: Draft) -> Sequence[dict[str, Any]]:
    data = draft.data
    assert isinstance(data, JournalWritten)
    return _project_memory(
        data.text, memory_id=data.memory_id, kind="journal", created_at=draft.timestamp, source="tool"
    )


def _project_memory(text: str, **more: Any) -> Sequence[dict[str, Any]]:
    return ({"as": "memory", **build_memory_record(text, **more)},) if text.strip() else ()


def _project_recalled(draft: Draft) -> Sequence[dict[str, Any]]:
    assert isinstance(draft.data, MemoryRecalled)
    used = sorted({reminder.memory_id for reminder in draft.data.reminders})
    return ({"as": "recalled", "memories": used, "at": draft.timestamp},) if used else ()


MEMORY_PROJECTIONS: dict[str, Callable[[Draft], Sequence[dict[str, Any]]]] = {
    "memory_saved": _project_saved,
    "journal_written": _project_journal,
    "memory_recalled": _project_recalled,
}
"""By event type, as in `projections`."""
