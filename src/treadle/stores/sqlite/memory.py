"""Memories on SQLite: words in FTS5, vectors as blobs that sqlite-vec compares.

A vector search has two stages. Codes of three bits per number select a few hundred candidates, which are then
ranked by their vectors, stored with one byte per number."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec.structs import replace

from treadle.domain.ids import AgentId
from treadle.domain.memories import Memory, MemoryId, MemoryKind, MemoryScope
from treadle.domain.users import UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.ports.memory import NO_EXCLUSION, Assigned, Assignment, RecallExclusion, Vector
from treadle.ports.memory_index import (
    MemoryHit,
    MemoryOverview,
    MemoryView,
    Pending,
    Term,
    VectorsUnavailable,
)
from treadle.stores.memories import (
    ALL_OWNERS,
    LATEST_NOTES,
    MAX_CODE_CANDIDATES,
    MAX_MATCHES_PER_TERM,
    MAX_SCANNED_MATCHES,
    compute_digest,
    list_query_marks,
    list_stored_marks,
    pack_vector,
    rank_by_words,
)
from treadle.stores.sqlite.connection import SQL, SqliteDatabase, SqliteRows, Value
from treadle.stores.sqlite.memory_rows import insert_memory
from treadle.stores.sqlite.transaction import Transaction
from treadle.stores.sqlite.writer import SqliteWriter

Result = TypeVar("Result")
CACHE_KIBIBYTES = 32 * 1024
"""For a connection that compares vectors: the codes of a hundred thousand memories stay in the cache."""
MMAP_BYTES = 1 << 30
"""How much of the file such a connection maps into memory. Copying pages to read each code once took a third of the
time. The rest of a larger file goes through the cache."""


class SqliteMemories:
    """Implements `ports.memory.MemoryKeeper`, `ports.memory_index.MemoryIndex` and `VectorShelf`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    # ── Management ──

    async def list(
        self,
        agent_id: AgentId | None = None,
        kind: MemoryKind | None = None,
        limit: int = 50,
        owner: UserId | None = None,
        workspace: WorkspaceId | None = None,
    ) -> Sequence[Memory]:
        whose = tuple(each for each in (agent_id, owner) if each is not None)
        if agent_id is None:
            statement = SQL["memories" if owner is None else "memories_of_owner"]
        else:
            statement = SQL["memories_of_agent" if owner is None else "memories_of_agent_owner"]
        return await self._writer.read(
            lambda db: _to_memories(db.execute(statement, (*whose, kind, limit, workspace)))
        )

    async def find(self, memory_id: MemoryId) -> Memory | None:
        found = await self._writer.read(lambda db: db.execute(SQL["memory"], (memory_id,)).fetchone())
        return None if found is None else _to_memory(found)

    async def add(self, memories: Sequence[Memory]) -> int:
        def work(transaction: Transaction) -> int:
            return sum(insert_memory(transaction.db, memory) for memory in memories)

        return await self._writer.write(work, _do_nothing, patient=False)

    async def pin(self, memory_id: MemoryId, pinned: bool) -> bool:
        def work(transaction: Transaction) -> bool:
            return transaction.db.execute(SQL["pin_memory"], (pinned, memory_id)).fetchone() is not None

        return await self._writer.write(work, _do_nothing, patient=False)

    async def forget(self, memory_ids: Sequence[MemoryId]) -> int:
        def work(transaction: Transaction) -> int:
            return sum(forget_memory(transaction.db, memory_id) for memory_id in memory_ids)

        return await self._writer.write(work, _do_nothing, patient=False)

    async def assign(self, assignment: Assignment) -> Assigned:
        ids = None if assignment.memory_ids is None else _to_json_list(assignment.memory_ids)

        def work(transaction: Transaction) -> Assigned:
            values = (
                assignment.owner,
                ids,
                assignment.agent_id,
                assignment.before,
                assignment.workspace,
                assignment.before_workspace,
            )
            found = _to_memories(transaction.db.execute(SQL["memories_to_assign"], values).fetchall())
            moved = sum([_assign_memory(transaction.db, memory, assignment) for memory in found])
            return Assigned(moved, len(found) - moved)

        return await self._writer.write(work, _do_nothing, patient=False)

    async def agents(self) -> Mapping[str, AgentId]:
        """Return the ids of all agents by name."""
        rows = await self._writer.read(lambda db: db.execute(SQL["owners_of_memories"]).fetchall())
        return {str(name): AgentId(str(agent_id)) for name, agent_id in rows}

    async def agent(self, name: str, proposed: AgentId) -> AgentId:
        """Return the id of an agent, registering the proposed one if it has none."""

        def work(transaction: Transaction) -> AgentId:
            if found := transaction.db.execute(SQL["agent"], (name,)).fetchone():
                return AgentId(str(found[0]))
            transaction.db.execute(SQL["insert_agent"], (proposed, name))
            return proposed

        return await self._writer.write(work, _do_nothing, patient=False)

    # ── Search ──

    async def read(self, look: Callable[[MemoryView], Result]) -> Result:
        def read_snapshot(db: SqliteDatabase) -> Result:
            db.execute("BEGIN")  # one snapshot; a lock per statement would cost more than the statement
            try:
                return look(_View(db))
            finally:
                db.execute("COMMIT")

        return await self._writer.read(read_snapshot)

    # ── Storing vectors ──

    async def keep(
        self, scope: MemoryScope, embedder: str, vectors: Sequence[tuple[Pending, Vector | None]]
    ) -> None:
        if not vectors:
            return
        some = [(pending.number, vector) for pending, vector in vectors if vector is not None]
        packed = await self._writer.read(lambda _: [(number, *pack_vector(vector)) for number, vector in some])
        dimensions = next((len(vector) for _, vector in vectors if vector is not None), None)
        done_to = max(pending.number for pending, _ in vectors)

        def work(transaction: Transaction) -> None:
            space, is_reset = _prepare_space(transaction.db, scope, embedder, dimensions)
            transaction.db.executemany(
                SQL["insert_memory_code"], ((space, number, code) for number, code, _ in packed)
            )
            transaction.db.executemany(
                SQL["insert_memory_vector"], ((space, number, in_bytes) for number, _, in_bytes in packed)
            )
            if not is_reset:
                transaction.db.execute(SQL["memory_space_done"], (done_to, space))

        await self._writer.write(work, _do_nothing, patient=False)


class _View:
    """Implements `ports.memory_index.MemoryView` on a connection that only this thread uses meanwhile."""

    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db

    def _rows(self, statement: str, scope: MemoryScope, *values: Value) -> SqliteRows:
        """Return the rows of a statement that has variants for a workspace and for a single owner."""
        if scope.workspace is not None:
            where = (scope.agent_id, scope.workspace, scope.owner)
            return self._db.execute(SQL[f"{statement}_of_workspace"], (*where, *values))
        if scope.owner is None:
            return self._db.execute(SQL[statement], (scope.agent_id, *values))
        return self._db.execute(SQL[f"{statement}_of_owner"], (scope.agent_id, scope.owner, *values))

    def read_overview(
        self, scope: MemoryScope, embedder: str | None, without: RecallExclusion = NO_EXCLUSION
    ) -> MemoryOverview:
        if self._rows("any_memory", scope).fetchone() is None:
            return MemoryOverview()
        wanted = (without.session, without.since, LATEST_NOTES + len(without.ids))
        latest = _to_memories(self._rows("latest_notes", scope, *wanted))
        notes = tuple([note for note in latest if note.memory_id not in without.ids][:LATEST_NOTES][::-1])
        if embedder is None:
            return MemoryOverview(False, notes)
        space = _find_space(self._db, scope, embedder)
        above = self._rows("any_memory_above", scope.indexed, space[2] if space else 0).fetchone()
        return MemoryOverview(False, notes, (space[1] or None) if space else None, above is not None)

    def find_nearest(
        self, scope: MemoryScope, embedder: str, vector: Vector, limit: int, without: RecallExclusion = NO_EXCLUSION
    ) -> Sequence[MemoryHit]:
        space = _find_space(self._db, scope, embedder)
        if space is None or space[1] != len(vector):
            return ()
        excluded, (code, in_bytes) = self._list_excluded(without), pack_vector(vector)
        bindings = (space[0], code, MAX_CODE_CANDIDATES + len(excluded), in_bytes, _to_json_list(excluded), limit)
        statement = "nearest_memories"
        if scope.workspace is not None:
            statement = "nearest_memories_of_workspace"
            bindings = (*bindings, scope.agent_id, scope.workspace, scope.owner)
        rows = _with_vector_functions(self._db, lambda: self._db.execute(SQL[statement], bindings).fetchall())
        return [_to_hit(row[1:], float(row[0])) for row in rows]

    def find_matching(
        self, scope: MemoryScope, terms: Sequence[Term], limit: int, without: RecallExclusion = NO_EXCLUSION
    ) -> Sequence[MemoryHit]:
        if not terms:
            return ()
        marks = list_query_marks(scope)
        queries = dict.fromkeys([_build_query(term, marks) for term in terms])
        found = [[int(row[0]) for row in self._find_words(query, scope)] for query in queries]
        best = rank_by_words(found, self._list_excluded(without), limit)
        rows = self._rows("memories_by_number", scope, _to_json_list(best))
        hits = {row[0]: _to_hit(row[1:]) for row in rows}
        return [hits[number] for number in best if number in hits]

    def _find_words(self, query: str, scope: MemoryScope) -> SqliteRows:
        if scope.workspace is None:
            return self._db.execute(SQL["memories_with_words"], (query, MAX_MATCHES_PER_TERM))
        wanted = (query, MAX_MATCHES_PER_TERM, scope.workspace, MAX_SCANNED_MATCHES)
        return self._db.execute(SQL["memories_with_words_of_workspace"], wanted)

    def list_unembedded(
        self, scope: MemoryScope, embedder: str, dimensions: int | None, limit: int
    ) -> Sequence[Pending]:
        space = _find_space(self._db, scope, embedder)
        is_of_use = space is not None and (dimensions is None or space[1] in (0, dimensions))
        done_to = space[2] if space is not None and is_of_use else 0
        rows = self._rows("memories_above", scope, done_to, limit)
        return [Pending(int(row[0]), hit.memory, hit.line) for row in rows for hit in (_to_hit(row[1:]),)]

    def find_same(
        self, agent_id: AgentId, owner: UserId, text: str, workspace: WorkspaceId = NO_WORKSPACE
    ) -> MemoryId | None:
        whose = (agent_id, owner, workspace)
        found = self._db.execute(SQL["same_memory"], (*whose, compute_digest(text))).fetchone()
        return None if found is None else str(found[0])

    def _list_excluded(self, without: RecallExclusion) -> list[int]:
        """Return the numbers of the excluded memories."""
        found: list[int] = []
        if without.session is not None:
            own = (without.session, without.since)
            found += [int(row[0]) for row in self._db.execute(SQL["memories_left_out"], own)]
        for memory_id in without.ids:
            found += [int(row[0]) for row in self._db.execute(SQL["number_of_memory"], (memory_id,))]
        return list(dict.fromkeys(found))


def _to_json_list(items: Iterable[str | int]) -> str:
    return msgspec.json.encode(list(items)).decode() if items else "[]"


def _build_query(term: Term, marks: Sequence[str]) -> str:
    """Return an FTS5 query. Folded words contain no FTS5 syntax."""
    queries: list[str] = []
    for prefix in marks:
        *others, last = [f'"{prefix}{word}"' for word in term.words]
        queries.append(" AND ".join([*others, f"{last} *" if term.begins else last]))
    return queries[0] if len(queries) == 1 else " OR ".join([f"({query})" for query in queries])


def _to_hit(row: Any, likeness: float | None = None) -> MemoryHit:
    memory = _to_memory(row[1:])
    return MemoryHit(memory, _strip_marks(row[0], memory), likeness)


def _strip_marks(words: str, memory: Memory) -> str:
    """Return the words without their marks. They are stored once per mark, and all marks of a memory have the same
    length."""
    marks = list_stored_marks(memory.agent_id, memory.owner)
    own = words if len(marks) == 1 else words[: len(words) // len(marks)]
    return f" {own} ".replace(f" {marks[0]}", " ")


def _do_nothing(_: object) -> None:
    """Do nothing after the commit."""


def _to_memory(row: Any) -> Memory:
    memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, *rest = row
    return Memory(memory_id, agent_id, kind, text, created_at, source, used_at, uses, bool(pinned), *rest)


def _to_memories(rows: Any) -> list[Memory]:
    return [_to_memory(row) for row in rows]


def forget_memory(db: SqliteDatabase, memory_id: MemoryId) -> bool:
    """Delete a memory with its words, codes and vectors, and return whether it existed."""
    found = db.execute(SQL["memory_to_forget"], (memory_id,)).fetchone()
    if found is None:
        return False
    number, agent_id, owner, words = found
    for (space,) in db.execute(SQL["spaces_of_memory"], (agent_id, owner)).fetchall():
        db.execute(SQL["forget_memory_code"], (space, number))
        db.execute(SQL["forget_memory_vector"], (space, number))
    db.execute(SQL["forget_memory_words"], (number, words))
    db.execute(SQL["forget_memory"], (number,))
    return True


def _assign_memory(db: SqliteDatabase, memory: Memory, assignment: Assignment) -> bool:
    """Give a memory to another owner or workspace under a new number. If the owner already has that fact there,
    merge the usage counts into it and return False."""
    owner = memory.owner if assignment.owner is None else assignment.owner
    workspace = memory.workspace if assignment.workspace is None else assignment.workspace
    forget_memory(db, memory.memory_id)
    if insert_memory(db, replace(memory, owner=owner, workspace=workspace)):
        return True
    used = (memory.used_at, memory.uses, memory.pinned)
    same = (memory.agent_id, owner, workspace, compute_digest(memory.text))
    db.execute(SQL["merge_memory"], (*used, *same)).fetchall()
    return False


# ── Vectors ──


def _find_space(db: SqliteDatabase, scope: MemoryScope, embedder: str) -> tuple[int, int, int] | None:
    """Return the number, the dimensions and the progress of a vector space, or None."""
    found = db.execute(SQL["memory_space"], (scope.agent_id, _space_owner(scope), embedder)).fetchone()
    return None if found is None else (int(found[0]), int(found[1]), int(found[2]))


def _space_owner(scope: MemoryScope) -> UserId:
    return ALL_OWNERS if scope.owner is None else scope.owner


def _prepare_space(
    db: SqliteDatabase, scope: MemoryScope, embedder: str, dimensions: int | None
) -> tuple[int, bool]:
    """Return the space for vectors of these dimensions, and whether all vectors must be computed again. Without
    dimensions there is no vector to store, so any space will do."""
    space = _find_space(db, scope, embedder)
    if space is None:
        values = (scope.agent_id, _space_owner(scope), embedder, dimensions or 0)
        found = db.execute(SQL["insert_memory_space"], values).fetchone()
        return int(found[0]) if found else 0, False
    if dimensions in (None, space[1]):
        return space[0], False
    if space[1] == 0:  # its first vector
        db.execute(SQL["size_memory_space"], (dimensions, space[0]))
        return space[0], False
    db.execute(SQL["clear_memory_codes"], (space[0],))
    db.execute(SQL["clear_memory_vectors"], (space[0],))
    db.execute(SQL["reset_memory_space"], (dimensions, space[0]))
    return space[0], True


def _with_vector_functions(db: SqliteDatabase, look: Callable[[], Result]) -> Result:
    """Run a query that needs vector functions, loading them if the connection lacks them."""
    try:
        return look()
    except apsw.SQLError as error:
        if "no such function" not in str(error):
            raise
    _load_vector_functions(db)
    return look()


def _load_vector_functions(db: SqliteDatabase) -> None:
    db.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}; PRAGMA mmap_size = {MMAP_BYTES}")
    try:
        import sqlite_vec  # pyright: ignore[reportMissingTypeStubs] -- it has none

        db.enable_load_extension(True)
        try:
            db.load_extension(sqlite_vec.loadable_path())
        finally:
            db.enable_load_extension(False)
    except Exception as error:  # an import may raise anything
        raise VectorsUnavailable(
            f"SQLite cannot compare vectors: sqlite-vec could not be loaded ({error}). Install "
            "sqlite-vec for this platform, or set the agent's memory.embedder to none."
        ) from error
