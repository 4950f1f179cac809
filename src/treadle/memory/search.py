"""Recalls the memories that fit a text: by vectors and words, or only by words if vectors fail."""

import asyncio
import logging
from collections.abc import Sequence

from msgspec import Struct

from treadle.domain.events import MemoryDegraded
from treadle.domain.ids import AgentId, Instant
from treadle.domain.memories import Memory, MemoryId, MemoryScope
from treadle.domain.text import normalise_text
from treadle.domain.users import UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.memory.embedders import Embedders
from treadle.memory.embedding_call import LoadableEmbedder, embed_checked
from treadle.memory.indexer import IndexedMemories, Indexer, Pause
from treadle.memory.queries import MemoryQuery, parse_query
from treadle.memory.ranking import rank
from treadle.ports.clock import Clock
from treadle.ports.memory import NO_EXCLUSION, Embedder, EmbeddingFailed, Recall, RecallExclusion, Vector
from treadle.ports.memory_index import (
    MemoryHit,
    MemoryOverview,
    MemoryView,
    Pending,
)

logger = logging.getLogger(__name__)

MAX_NEAREST = 50
MAX_MATCHING = 12
"""Candidates of the vector and the word search that are ranked."""
COOLDOWN_SECONDS = 30.0
"""How long an embedder that failed is not called again."""
RECALL_SECONDS = 5.0
"""How long a message waits for an embedder before its memories are searched by words."""
LOADING_SECONDS = 0.3
"""How long a message waits for an embedder that is being loaded; the next message can use it."""
MAX_EMBEDDED_WITH_QUERY = 16
"""Up to this many memories without a vector are embedded together with the query; more are left to the indexer."""


class _RecallRequest(Struct, frozen=True):
    """One recall."""

    scope: MemoryScope
    text: str
    limit: int
    without: RecallExclusion
    now: Instant


class _RecallStart(Struct, frozen=True):
    """What is known before the embedder is called."""

    overview: MemoryOverview
    question: MemoryQuery
    pending: Sequence[Pending] = ()
    is_enough: bool = False
    """There are no memories or no query: only notes are returned."""


class _ComparedVectors(Struct, frozen=True):
    """The vector of the query, and those of memories that had none."""

    vector: Vector
    few: Sequence[Pending]
    vectors: Sequence[Vector]
    is_whole: bool
    """Every memory has a comparable vector."""


class HybridMemories:
    """Implements `ports.memory.Memories`."""

    def __init__(
        self,
        store: IndexedMemories,
        embedders: Embedders,
        clock: Clock,
        pause: Pause = asyncio.sleep,
        timeout_seconds: float = RECALL_SECONDS,
    ) -> None:
        """With a longer timeout than the default, a recall also waits for an embedder to load."""
        self._store = store
        self._embedders = embedders
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._loading_seconds = LOADING_SECONDS if timeout_seconds <= RECALL_SECONDS else timeout_seconds
        self.indexer = Indexer(store, pause)
        self._cooldowns: dict[str, tuple[float, str]] = {}
        """Embedders that failed: until when they are not called, and their error."""
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._in_progress: set[tuple[MemoryScope, str]] = set()
        """Scopes whose new memories are being embedded with a query, so that others do not embed them too."""

    async def start(self) -> None:
        await self.indexer.start()

    async def close(self) -> None:
        for task in self._loading.values():
            task.cancel()
        await self.indexer.close()
        await self._embedders.close()

    def catch_up(self, scope: MemoryScope, embedder: str) -> None:
        """Index new memories soon. `embedder` is the agent's setting."""
        embedder_in_use, _ = self._find(embedder)  # recall reports the problem
        if embedder_in_use is not None:
            self.indexer.wake(scope.indexed, embedder_in_use)

    async def recall(
        self, scope: MemoryScope, text: str, limit: int, embedder: str, without: RecallExclusion = NO_EXCLUSION
    ) -> Recall:
        request = _RecallRequest(scope, text, limit, without, self._clock.now())
        embedder_in_use, degraded = self._find(embedder)
        if embedder_in_use is not None:
            name, dimensions = embedder_in_use.name, embedder_in_use.dimensions
            start = await self._store.read(lambda view: _start_recall(view, request, name, dimensions))
            if start.is_enough:
                return Recall(notes=start.overview.notes)
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    if (found := await self._search_by_vectors(request, start, embedder_in_use)) is not None:
                        return found
            except TimeoutError:
                degraded = self._start_cooldown(
                    name, f"the embedder did not answer within {self._timeout_seconds:g} s"
                )
            except Exception as error:  # whatever fails, the word search works
                degraded = self._start_cooldown(name, str(error) or type(error).__name__)
        return await self._store.read(lambda view: _recall_by_words(view, request, degraded))

    async def find_duplicate(
        self, agent_id: AgentId, owner: UserId, text: str, workspace: WorkspaceId = NO_WORKSPACE
    ) -> MemoryId | None:
        return await self._store.read(lambda view: view.find_same(agent_id, owner, text, workspace))

    async def latest(self, scope: MemoryScope, limit: int) -> Sequence[Memory]:
        return await self._store.list(scope.agent_id, None, limit, scope.owner, scope.workspace)

    # ── Vectors ──

    def _find(self, setting: str) -> tuple[Embedder | None, MemoryDegraded | None]:
        """Return the embedder to call, if any, and why it is unavailable if there should be one."""
        try:
            embedder_in_use = self._embedders.find(setting)
        except Exception as error:  # a broken package may raise anything
            return None, MemoryDegraded(setting, str(error))
        if embedder_in_use is not None and embedder_in_use.name in self._cooldowns:
            until, reason = self._cooldowns[embedder_in_use.name]
            if self._clock.monotonic() < until:
                return None, MemoryDegraded(embedder_in_use.name, f"it is left alone for a while: {reason}")
        return embedder_in_use, None

    def _start_cooldown(self, name: str, reason: str) -> MemoryDegraded:
        self._cooldowns[name] = (self._clock.monotonic() + COOLDOWN_SECONDS, reason)
        logger.warning("memories are temporarily searched by words only: %s", " ".join(reason.split()))
        return MemoryDegraded(name, reason)

    async def _search_by_vectors(
        self, request: _RecallRequest, start: _RecallStart, embedder_in_use: Embedder
    ) -> Recall | None:
        """Compare the text with all memories that have a vector, and with the few latest without one. Return None
        if there is nothing to compare yet, or no loaded embedder."""
        indexed = request.scope.indexed
        key = (indexed, embedder_in_use.name)
        if len(start.pending) > MAX_EMBEDDED_WITH_QUERY:
            self.indexer.wake(indexed, embedder_in_use)
        few = (
            start.pending if len(start.pending) <= MAX_EMBEDDED_WITH_QUERY and key not in self._in_progress else ()
        )
        if start.overview.dimensions is None and not few:
            return None
        if not await self._is_loaded(embedder_in_use):
            self.indexer.wake(indexed, embedder_in_use)
            return None
        if not few:
            return await self._compare(request, start, embedder_in_use, ())
        self._in_progress.add(key)
        try:
            return await self._compare(request, start, embedder_in_use, few)
        finally:
            self._in_progress.discard(key)

    async def _compare(
        self, request: _RecallRequest, start: _RecallStart, embedder_in_use: Embedder, few: Sequence[Pending]
    ) -> Recall | None:
        scope, overview = request.scope.indexed, start.overview
        try:
            vector, *others = await embed_checked(
                embedder_in_use, [request.text, *[item.memory.text for item in few]]
            )
        except EmbeddingFailed:
            self.indexer.wake(scope, embedder_in_use)
            if not few or overview.dimensions is None:
                raise
            (vector,), few, others = (
                await embed_checked(embedder_in_use, [request.text]),
                (),
                [],
            )  # one of the other texts was rejected
        is_comparable = overview.dimensions in (None, len(vector))
        if not is_comparable:  # another model under the same name: recompute all vectors
            self.indexer.wake(scope, embedder_in_use)
        elif few:
            self.indexer.wake(scope, embedder_in_use, list(zip(few, others, strict=True)))
        name, is_whole = embedder_in_use.name, is_comparable and len(few) == len(start.pending)
        compared = _ComparedVectors(vector, few, others, is_whole)
        return await self._store.read(lambda view: _recall_by_vectors(view, request, start, name, compared))

    async def _is_loaded(self, embedder_in_use: Embedder) -> bool:
        """Return whether the embedder can be called. If it is not loaded yet, load it in the background."""
        if not isinstance(embedder_in_use, LoadableEmbedder) or embedder_in_use.is_loaded:
            return True
        task = self._loading.get(embedder_in_use.name)
        if task is None:
            task = self._loading[embedder_in_use.name] = asyncio.ensure_future(embedder_in_use.load())
        done, _ = await asyncio.wait((task,), timeout=self._loading_seconds)
        if done:
            del self._loading[embedder_in_use.name]
            task.result()
        return bool(done)


# ── Reads within one snapshot of the store ──


def _start_recall(
    view: MemoryView, request: _RecallRequest, embedder: str | None, dimensions: int | None = None
) -> _RecallStart:
    overview = view.read_overview(request.scope, embedder, request.without)
    if overview.is_empty or request.limit <= 0:
        return _RecallStart(overview, MemoryQuery(), is_enough=True)
    question = parse_query(request.text)
    if not (question.words or question.keys):  # small talk, or an empty message
        return _RecallStart(overview, question, is_enough=True)
    pending: Sequence[Pending] = ()
    if embedder is not None and overview.is_behind:
        pending = view.list_unembedded(request.scope.indexed, embedder, dimensions, MAX_EMBEDDED_WITH_QUERY + 1)
    return _RecallStart(overview, question, pending)


def _recall_by_words(view: MemoryView, request: _RecallRequest, degraded: MemoryDegraded | None) -> Recall:
    start = _start_recall(view, request, None)
    notes, question = start.overview.notes, start.question
    if start.is_enough:
        return Recall(notes=notes)
    by_word_search = view.find_matching(
        request.scope, question.word_terms, _widen_limit(request, MAX_MATCHING), request.without
    )
    by_word_search = _drop_duplicates(by_word_search, request.scope)
    shown = {note.memory_id for note in notes}
    return Recall(rank(question, None, by_word_search, request.now, request.limit, shown), notes, "text", degraded)


def _recall_by_vectors(
    view: MemoryView, request: _RecallRequest, start: _RecallStart, embedder: str, compared: _ComparedVectors
) -> Recall:
    """Recall by vectors and words. If every memory has a comparable vector, only exact terms are searched for."""
    scope, without, question = request.scope, request.without, start.question
    near = [
        MemoryHit(item.memory, item.line, _cosine(compared.vector, vector))
        for item, vector in zip(compared.few, compared.vectors, strict=True)
        if _is_included(item.memory, scope, without)
    ]
    if start.overview.dimensions is not None:
        near += view.find_nearest(scope, embedder, compared.vector, _widen_limit(request, MAX_NEAREST), without)
    terms = question.key_terms if compared.is_whole else question.word_terms
    by_word_search = view.find_matching(scope, terms, _widen_limit(request, MAX_MATCHING), without)
    near, by_word_search = _drop_duplicates(near, scope), _drop_duplicates(by_word_search, scope)
    notes = start.overview.notes
    found = rank(question, near, by_word_search, request.now, request.limit, {note.memory_id for note in notes})
    return Recall(found, notes, "both" if by_word_search else "vectors")


def _drop_duplicates(hits: Sequence[MemoryHit], scope: MemoryScope) -> list[MemoryHit]:
    """Return the best of each group of equal texts from several owners or workspaces. One owner never has a fact
    twice in a workspace."""
    if scope.owner is not None and scope.workspace is not None:
        return list(hits)
    best_by_text: dict[str, MemoryHit] = {}
    for hit in sorted(hits, key=lambda hit: hit.likeness or 0.0, reverse=True):
        best_by_text.setdefault(normalise_text(hit.memory.text), hit)
    best = {hit.memory.memory_id for hit in best_by_text.values()}
    return [hit for hit in hits if hit.memory.memory_id in best]


def _widen_limit(request: _RecallRequest, default: int) -> int:
    return max(default, 2 * request.limit)


def _is_included(memory: Memory, scope: MemoryScope, without: RecallExclusion) -> bool:
    if memory.memory_id in without.ids or scope.workspace not in (None, memory.workspace):
        return False
    return without.session is None or memory.session_id != without.session or memory.created_at < without.since


def _cosine(one: Vector, other: Vector) -> float:
    return sum(map(float.__mul__, one, other)) if len(one) == len(other) else 0.0
