"""Memories on PostgreSQL: words in a GIN index, vectors compared by pgvector if the server has it.

A vector search has two stages. Codes of three bits per number select a few hundred candidates, which needs only
PostgreSQL. The candidates are then ranked by their vectors, with pgvector or, slower, in SQL."""

import asyncio
import itertools
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from treadle.domain.ids import AgentId
from treadle.domain.memories import Memory, MemoryId, MemoryKind, MemoryScope
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.ports.memory import NO_EXCLUSION, Assigned, Assignment, RecallExclusion, Vector
from treadle.ports.memory_index import MemoryHit, MemoryOverview, MemoryView, Pending, Term
from treadle.stores.memories import (
    ALL_OWNERS,
    LATEST_NOTES,
    MAX_CODE_CANDIDATES,
    MAX_MATCHES_PER_TERM,
    compute_digest,
    pack_vector,
    rank_by_words,
)
from treadle.stores.postgres.connection import SQL, STATEMENT_SECONDS, escape_nul, escape_nul_json, unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import BitString, PostgresConnection, PostgresRow, to_bit_string
from treadle.stores.postgres.memory_rows import encode_memory, truncate_word

Result = TypeVar("Result")


class PostgresMemories:
    """Implements `ports.memory.MemoryKeeper`, `ports.memory_index.MemoryIndex` and `VectorShelf`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    # ── Management ──

    async def list(
        self,
        agent_id: AgentId | None = None,
        kind: MemoryKind | None = None,
        limit: int = 50,
        owner: UserId | None = None,
        workspace: WorkspaceId | None = None,
    ) -> Sequence[Memory]:
        found = await self._database.rows("memories", agent_id, kind, limit, owner, workspace)
        return [_to_memory(row) for row in found]

    async def find(self, memory_id: MemoryId) -> Memory | None:
        found = await self._database.row("memory", memory_id)
        return None if found is None else _to_memory(found)

    async def add(self, memories: Sequence[Memory]) -> int:
        """Add memories and return how many are new. After a connection loss, those already
        added are not counted."""
        header = msgspec.json.encode([encode_memory(memory) for memory in memories])
        found = await self._database.row("add_memories", escape_nul_json(header).decode())
        return int(found[0]) if found else 0

    async def pin(self, memory_id: MemoryId, pinned: bool) -> bool:
        return await self._database.row("pin_memory", memory_id, pinned) is not None

    async def forget(self, memory_ids: Sequence[MemoryId]) -> int:
        """Delete memories and return how many existed. After a connection loss, those already deleted are not
        counted."""
        return len(await self._database.rows("forget_memories", list(map(escape_nul, memory_ids))))

    async def assign(self, assignment: Assignment) -> Assigned:
        """Assign memories to an owner or workspace. After a connection loss, those already assigned are not
        counted."""
        ids = None if assignment.memory_ids is None else list(map(escape_nul, assignment.memory_ids))
        found = await self._database.row(
            "assign_memories",
            assignment.owner,
            ids,
            assignment.agent_id,
            assignment.before,
            assignment.workspace,
            assignment.before_workspace,
        )
        return Assigned(*found) if found else Assigned()

    async def agents(self) -> Mapping[str, AgentId]:
        """Return the ids of all agents by name."""
        return {unescape_nul(name): agent_id for name, agent_id in await self._database.rows("owners_of_memories")}

    async def agent(self, name: str, proposed: AgentId) -> AgentId:
        """Return the id of an agent, registering the proposed one if it has none."""
        while (found := await self._database.row("agent", name, proposed)) is None:
            pass  # another process inserted it after the statement started
        return AgentId(found[0])

    # ── Search ──

    async def read(self, look: Callable[[MemoryView], Result]) -> Result:
        """Run `look` in a thread that reads a consistent snapshot through the event loop. It may run twice."""

        async def read_snapshot(connection: PostgresConnection) -> Result:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await _run_in_thread(look, _View(connection))

        return await self._database.run_on_connection(read_snapshot)

    # ── Vectors ──

    async def keep(
        self, scope: MemoryScope, embedder: str, vectors: Sequence[tuple[Pending, Vector | None]]
    ) -> None:
        if not vectors:
            return
        dimensions = next((len(vector) for _, vector in vectors if vector is not None), None)
        numbers, codes, flat = await asyncio.to_thread(_to_arrays, vectors)
        whose = (scope.agent_id, ALL_OWNERS if scope.owner is None else scope.owner)
        await self._database.rows("keep_vectors", *whose, embedder, dimensions, numbers, codes, flat)


async def _run_in_thread(look: Callable[[MemoryView], Result], view: "_View") -> Result:
    """Run `look` in a thread. When cancelled, wait until the thread stops using the connection."""
    reading = asyncio.ensure_future(asyncio.to_thread(look, view))
    try:
        await asyncio.wait({reading})
    except asyncio.CancelledError:
        view.is_over = True
        await asyncio.wait({reading})
        reading.exception()  # retrieved, or the event loop would log it
        raise
    return reading.result()


def _to_arrays(
    vectors: Sequence[tuple[Pending, Vector | None]],
) -> tuple[list[int], list[BitString | None], list[float]]:
    """Return the numbers of the memories, the codes of their vectors, and all vectors concatenated."""
    codes = [None if vector is None else _to_code(vector) for _, vector in vectors]
    flat = itertools.chain.from_iterable(_normalize(vector) for _, vector in vectors if vector is not None)
    return [pending.number for pending, _ in vectors], codes, list(flat)


def _to_code(vector: Vector) -> BitString:
    return to_bit_string(pack_vector(vector)[0])


def _normalize(vector: Vector) -> list[float]:
    """Return the vector scaled to length 1, so that only its angle counts."""
    length = math.hypot(*vector) or 1.0
    return [number / length for number in vector]


class _ReadCancelled(Exception):
    """The caller was cancelled and does not wait for the result."""


class _View:
    """Implements `ports.memory_index.MemoryView` for a thread, on a connection reserved for it."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self.is_over = False

    def _rows(self, statement: str, *values: object) -> list[PostgresRow]:
        if self.is_over:
            raise _ReadCancelled
        prepared = [escape_nul(value) if isinstance(value, str) else value for value in values]
        fetching: Coroutine[Any, Any, list[PostgresRow]] = self._connection.fetch(
            SQL[statement], *prepared, timeout=STATEMENT_SECONDS
        )
        return asyncio.run_coroutine_threadsafe(fetching, self._loop).result()

    def _read_scoped(self, statement: str, scope: MemoryScope, *values: object) -> list[PostgresRow]:
        """Return the rows of a statement that has a variant for a single owner."""
        if scope.owner is None:
            return self._rows(statement, scope.agent_id, *values)
        return self._rows(f"{statement}_of_owner", scope.agent_id, scope.owner, *values)

    def read_overview(
        self, scope: MemoryScope, embedder: str | None, without: RecallExclusion = NO_EXCLUSION
    ) -> MemoryOverview:
        is_there, space, dimensions, is_behind = self._read_scoped(
            "memory_space", scope, embedder, scope.workspace
        )[0]
        if not is_there:
            return MemoryOverview()
        ids = list(map(escape_nul, without.ids))
        wanted = (without.session, without.since, ids, LATEST_NOTES)
        rows = self._read_scoped("latest_notes", scope, *wanted, scope.workspace)
        notes = tuple([_to_memory(row) for row in rows][::-1])
        if embedder is None:
            return MemoryOverview(False, notes)
        return MemoryOverview(False, notes, dimensions or None if space is not None else None, is_behind)

    def find_nearest(
        self, scope: MemoryScope, embedder: str, vector: Vector, limit: int, without: RecallExclusion = NO_EXCLUSION
    ) -> Sequence[MemoryHit]:
        _, space, dimensions, _ = self._read_scoped("memory_space", scope, embedder, scope.workspace)[0]
        if space is None or dimensions != len(vector):
            return ()
        wanted = (_to_code(vector), self._list_excluded(without), MAX_CODE_CANDIDATES)
        chosen = self._rows("nearest_by_code", space, *wanted, scope.workspace)
        way = "nearest_with_pgvector" if self._rows("has_pgvector")[0][0] else "nearest_by_sql"
        found = self._rows(way, space, [row[0] for row in chosen], _normalize(vector), limit)
        hits = self._hits(scope, [row[0] for row in found])
        return [
            msgspec.structs.replace(hits[number], likeness=float(likeness))
            for number, likeness in found
            if number in hits
        ]

    def find_matching(
        self, scope: MemoryScope, terms: Sequence[Term], limit: int, without: RecallExclusion = NO_EXCLUSION
    ) -> Sequence[MemoryHit]:
        if not terms:
            return ()
        queries = list(dict.fromkeys(map(_build_query, terms)))
        owners = [LOCAL_USER, ALL_OWNERS] if scope.owner is None else [scope.owner]
        limits = (queries, MAX_MATCHES_PER_TERM)
        rows = self._rows("memories_with_words", scope.agent_id, *limits, owners, scope.workspace)
        found = [[number for at, number in rows if at == place] for place, _ in enumerate(queries, 1)]
        best = rank_by_words(found, self._list_excluded(without), limit)
        hits = self._hits(scope, best)
        return [hits[number] for number in best if number in hits]

    def list_unembedded(
        self, scope: MemoryScope, embedder: str, dimensions: int | None, limit: int
    ) -> Sequence[Pending]:
        _, space, known, _ = self._read_scoped("memory_space", scope, embedder, None)[0]
        is_of_use = space is not None and (dimensions is None or known in (0, dimensions))
        rows = self._read_scoped("unseen_memories", scope, space if is_of_use else None, limit)
        return [Pending(row[0], _to_memory(tuple(row)[2:]), f" {row[1]} ") for row in rows]

    def find_same(
        self, agent_id: AgentId, owner: UserId, text: str, workspace: WorkspaceId = NO_WORKSPACE
    ) -> MemoryId | None:
        found = self._rows("same_memory", agent_id, owner, workspace, compute_digest(text))
        return str(found[0][0]) if found else None

    def _list_excluded(self, without: RecallExclusion) -> list[int]:
        """Return the numbers of the excluded memories."""
        if without.session is None and not without.ids:
            return []
        ids = list(map(escape_nul, without.ids))
        return [row[0] for row in self._rows("memories_left_out", without.session, without.since, ids)]

    def _hits(self, scope: MemoryScope, numbers: Sequence[int]) -> dict[int, MemoryHit]:
        rows = self._read_scoped("memories_by_number", scope, list(numbers), scope.workspace)
        return {row[0]: MemoryHit(_to_memory(tuple(row)[2:]), f" {row[1]} ") for row in rows}


def _build_query(term: Term) -> str:
    """Return a tsquery, with `@` as a placeholder for the mark of the owner. Folded words contain no tsquery
    syntax."""
    *others, last = [f"'@{truncate_word(word)}'" for word in term.words]
    return " & ".join([*others, f"{last}:*" if term.begins else last])


def _to_memory(row: Any) -> Memory:
    memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, *rest = row
    return Memory(
        unescape_nul(memory_id),
        agent_id,
        kind,
        unescape_nul(text),
        created_at,
        source,
        used_at,
        uses,
        pinned,
        *rest,
    )
