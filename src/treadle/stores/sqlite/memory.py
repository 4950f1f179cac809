"""Memories on SQLite: their words in FTS5, their vectors as blobs that sqlite-vec compares.

Vectors are looked at twice. A code of three bits for each number chooses a few hundred of them all; those few are
then put in order by the vectors themselves, of which each number is kept as one byte."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from treadle.domain.identity import AgentId
from treadle.domain.memories import Memory, MemoryId, MemoryKind
from treadle.ports.memory import EVERYTHING, Vector, Without
from treadle.ports.memory_index import (
    Glance,
    Hit,
    MemoryView,
    Pending,
    Term,
    VectorsUnavailable,
)
from treadle.stores.memories import CHOSEN_BY_CODE, MOST_OF_A_TERM, NOTES, best_by_words, digest, mark, packed
from treadle.stores.sqlite.connection import SQL, Database
from treadle.stores.sqlite.group import Group
from treadle.stores.sqlite.remembering import keep_memory
from treadle.stores.sqlite.writer import Writer

Result = TypeVar("Result")
CACHE_KIBIBYTES = 32 * 1024
"""On a connection that compares vectors: the codes of a hundred thousand memories stay at hand."""
MAPPED_BYTES = 1 << 30
"""So much of the file such a connection looks at where the system keeps it: copying pages to look at each code once
took a third of the time. What is beyond goes through the cache."""


class SqliteMemories:
    """Implements `ports.memory.MemoryKeeper`, `ports.memory_index.MemoryIndex` and `VectorShelf`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    # ── What people do ──

    async def list(
        self, agent_id: AgentId | None = None, kind: MemoryKind | None = None, limit: int = 50
    ) -> Sequence[Memory]:
        def look(db: Database) -> Sequence[Memory]:
            if agent_id is None:
                return _memories(db.execute(SQL["memories"], (kind, limit)))
            return _memories(db.execute(SQL["memories_of_agent"], (agent_id, kind, limit)))

        return await self._writer.read(look)

    async def find(self, memory_id: MemoryId) -> Memory | None:
        found = await self._writer.read(lambda db: db.execute(SQL["memory"], (memory_id,)).fetchone())
        return None if found is None else _memory(found)

    async def add(self, memories: Sequence[Memory]) -> int:
        def work(group: Group) -> int:
            return sum(keep_memory(group.db, memory) for memory in memories)

        return await self._writer.write(work, _nothing, patient=False)

    async def pin(self, memory_id: MemoryId, pinned: bool) -> bool:
        def work(group: Group) -> bool:
            return group.db.execute(SQL["pin_memory"], (pinned, memory_id)).fetchone() is not None

        return await self._writer.write(work, _nothing, patient=False)

    async def forget(self, memory_ids: Sequence[MemoryId]) -> int:
        def work(group: Group) -> int:
            return sum(forget_memory(group.db, memory_id) for memory_id in memory_ids)

        return await self._writer.write(work, _nothing, patient=False)

    async def agents(self) -> Mapping[str, AgentId]:
        """All agents there are, by name."""
        rows = await self._writer.read(lambda db: db.execute(SQL["owners_of_memories"]).fetchall())
        return {str(name): AgentId(str(agent_id)) for name, agent_id in rows}

    async def agent(self, name: str, proposed: AgentId) -> AgentId:
        """The id of an agent, which is the proposed one where it has none."""

        def work(group: Group) -> AgentId:
            if found := group.db.execute(SQL["agent"], (name,)).fetchone():
                return AgentId(str(found[0]))
            group.db.execute(SQL["insert_agent"], (proposed, name))
            return proposed

        return await self._writer.write(work, _nothing, patient=False)

    # ── What finding needs ──

    async def read(self, look: Callable[[MemoryView], Result]) -> Result:
        def looked(db: Database) -> Result:
            db.execute(
                "BEGIN"
            )  # all at one moment; and a lock for each statement would cost more than the statement
            try:
                return look(_View(db))
            finally:
                db.execute("COMMIT")

        return await self._writer.read(looked)

    # ── Vectors come in ──

    async def keep(
        self, agent_id: AgentId, embedder: str, vectors: Sequence[tuple[Pending, Vector | None]]
    ) -> None:
        if not vectors:
            return
        some = [(pending.number, vector) for pending, vector in vectors if vector is not None]
        made = await self._writer.read(lambda _: [(number, *packed(vector)) for number, vector in some])
        dimensions = next((len(vector) for _, vector in vectors if vector is not None), None)
        done_to = max(pending.number for pending, _ in vectors)

        def work(group: Group) -> None:
            space, is_anew = _space_for(group.db, agent_id, embedder, dimensions)
            group.db.executemany(SQL["insert_memory_code"], ((space, number, code) for number, code, _ in made))
            group.db.executemany(
                SQL["insert_memory_vector"], ((space, number, in_bytes) for number, _, in_bytes in made)
            )
            if not is_anew:
                group.db.execute(SQL["memory_space_done"], (done_to, space))

        await self._writer.write(work, _nothing, patient=False)


class _View:
    """Implements `ports.memory_index.MemoryView`, on a connection that only this thread uses meanwhile."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def glance(self, agent_id: AgentId, embedder: str | None, without: Without = EVERYTHING) -> Glance:
        if self._db.execute(SQL["any_memory"], (agent_id,)).fetchone() is None:
            return Glance()
        bindings = (agent_id, without.session, without.since, NOTES + len(without.ids))
        latest = _memories(self._db.execute(SQL["latest_notes"], bindings))
        notes = tuple([note for note in latest if note.memory_id not in without.ids][:NOTES][::-1])
        if embedder is None:
            return Glance(False, notes)
        space = _space(self._db, agent_id, embedder)
        above = self._db.execute(SQL["any_memory_above"], (agent_id, space[2] if space else 0)).fetchone()
        return Glance(False, notes, (space[1] or None) if space else None, above is not None)

    def nearest(
        self, agent_id: AgentId, embedder: str, vector: Vector, limit: int, without: Without = EVERYTHING
    ) -> Sequence[Hit]:
        space = _space(self._db, agent_id, embedder)
        if space is None or space[1] != len(vector):
            return ()
        left_out, (code, in_bytes), prefix = self._left_out(without), packed(vector), mark(agent_id)
        bindings = (space[0], code, CHOSEN_BY_CODE + len(left_out), in_bytes, _listed(left_out), limit)
        rows = _taught(self._db, lambda: self._db.execute(SQL["nearest_memories"], bindings).fetchall())
        return [Hit(_memory(row[2:]), _line(row[1], prefix), float(row[0])) for row in rows]

    def matching(
        self, agent_id: AgentId, terms: Sequence[Term], limit: int, without: Without = EVERYTHING
    ) -> Sequence[Hit]:
        if not terms:
            return ()
        prefix = mark(agent_id)
        queries = dict.fromkeys([_query(term, prefix) for term in terms])
        found = [
            [int(row[0]) for row in self._db.execute(SQL["memories_with_words"], (query, MOST_OF_A_TERM))]
            for query in queries
        ]
        best = best_by_words(found, self._left_out(without), limit)
        rows = self._db.execute(SQL["memories_by_number"], (agent_id, _listed(best)))
        hits = {row[0]: Hit(_memory(row[2:]), _line(row[1], prefix)) for row in rows}
        return [hits[number] for number in best if number in hits]

    def pending(self, agent_id: AgentId, embedder: str, dimensions: int | None, limit: int) -> Sequence[Pending]:
        space, prefix = _space(self._db, agent_id, embedder), mark(agent_id)
        is_of_use = space is not None and (dimensions is None or space[1] in (0, dimensions))
        done_to = space[2] if space is not None and is_of_use else 0
        rows = self._db.execute(SQL["memories_above"], (agent_id, done_to, limit))
        return [Pending(int(row[0]), _memory(row[2:]), _line(row[1], prefix)) for row in rows]

    def same(self, agent_id: AgentId, text: str) -> MemoryId | None:
        found = self._db.execute(SQL["same_memory"], (agent_id, digest(text))).fetchone()
        return None if found is None else str(found[0])

    def _left_out(self, without: Without) -> list[int]:
        """The numbers of those that are not wanted."""
        found: list[int] = []
        if without.session is not None:
            own = (without.session, without.since)
            found += [int(row[0]) for row in self._db.execute(SQL["memories_left_out"], own)]
        for memory_id in without.ids:
            found += [int(row[0]) for row in self._db.execute(SQL["number_of_memory"], (memory_id,))]
        return list(dict.fromkeys(found))


def _listed(items: Iterable[str | int]) -> str:
    return msgspec.json.encode(list(items)).decode() if items else "[]"


def _query(term: Term, prefix: str) -> str:
    """In the language of FTS5. Folded words have no character that means anything in it."""
    *others, last = [f'"{prefix}{word}"' for word in term.words]
    return " AND ".join([*others, f"{last} *" if term.begins else last])


def _line(words: str, prefix: str) -> str:
    return f" {words} ".replace(f" {prefix}", " ")


def _nothing(_: object) -> None:
    """Nobody need be told."""


def _memory(row: Any) -> Memory:
    memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id = row
    return Memory(
        memory_id, agent_id, kind, text, created_at, source, used_at, uses, bool(pinned), session_id, run_id
    )


def _memories(rows: Any) -> list[Memory]:
    return [_memory(row) for row in rows]


def forget_memory(db: Database, memory_id: MemoryId) -> bool:
    """Delete a memory with its words, codes and vectors; whether it was there."""
    found = db.execute(SQL["memory_to_forget"], (memory_id,)).fetchone()
    if found is None:
        return False
    number, agent_id, words = found
    for (space,) in db.execute(SQL["spaces_of_agent"], (agent_id,)).fetchall():
        db.execute(SQL["forget_memory_code"], (space, number))
        db.execute(SQL["forget_memory_vector"], (space, number))
    db.execute(SQL["forget_memory_words"], (number, words))
    db.execute(SQL["forget_memory"], (number,))
    return True


# ── Vectors ──


def _space(db: Database, agent_id: AgentId, embedder: str) -> tuple[int, int, int] | None:
    """Its number, its dimensions, and how far it has come."""
    found = db.execute(SQL["memory_space"], (agent_id, embedder)).fetchone()
    return None if found is None else (int(found[0]), int(found[1]), int(found[2]))


def _space_for(db: Database, agent_id: AgentId, embedder: str, dimensions: int | None) -> tuple[int, bool]:
    """The space to keep vectors of these dimensions in, and whether all is to be made anew. None: there is no
    vector to keep, so any space will do."""
    space = _space(db, agent_id, embedder)
    if space is None:
        found = db.execute(SQL["insert_memory_space"], (agent_id, embedder, dimensions or 0)).fetchone()
        return int(found[0]) if found else 0, False
    if dimensions in (None, space[1]):
        return space[0], False
    if space[1] == 0:  # the first vector
        db.execute(SQL["size_memory_space"], (dimensions, space[0]))
        return space[0], False
    db.execute(SQL["clear_memory_codes"], (space[0],))
    db.execute(SQL["clear_memory_vectors"], (space[0],))
    db.execute(SQL["reset_memory_space"], (dimensions, space[0]))
    return space[0], True


def _taught(db: Database, look: Callable[[], Result]) -> Result:
    """The same look, on a connection that knows vectors: it is taught when it is first asked for them."""
    try:
        return look()
    except apsw.SQLError as error:
        if "no such function" not in str(error):
            raise
    _teach(db)
    return look()


def _teach(db: Database) -> None:
    db.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}; PRAGMA mmap_size = {MAPPED_BYTES}")
    try:
        import sqlite_vec  # pyright: ignore[reportMissingTypeStubs] -- it has none

        db.enable_load_extension(True)
        try:
            db.load_extension(sqlite_vec.loadable_path())
        finally:
            db.enable_load_extension(False)
    except Exception as error:  # whatever a package does when it is imported
        raise VectorsUnavailable(
            f"SQLite cannot compare vectors here, because sqlite-vec could not be loaded ({error}). Install "
            "sqlite-vec for this platform, or set the agent's memory.embedder to none."
        ) from error
