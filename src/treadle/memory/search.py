"""What fits a text of all that an agent remembers: by vectors and words, or by words alone where vectors fail."""

import asyncio
import logging
from collections.abc import Sequence

from msgspec import Struct

from treadle.domain.events import MemoryDegraded
from treadle.domain.ids import AgentId, Instant
from treadle.domain.memories import Memory, MemoryId, MemoryScope
from treadle.domain.text import normalised
from treadle.domain.users import UserId
from treadle.memory.embedders import Embedders
from treadle.memory.embedding_call import Loading, embedded
from treadle.memory.indexer import IndexedMemories, Indexer, Pause
from treadle.memory.queries import MemoryQuery, asked
from treadle.memory.ranking import rank
from treadle.ports.clock import Clock
from treadle.ports.memory import EVERYTHING, Embedder, EmbeddingFailed, Recall, Vector, Without
from treadle.ports.memory_index import (
    Glance,
    MemoryHit,
    MemoryView,
    Pending,
)

logger = logging.getLogger(__name__)

NEAREST = 50
MATCHING = 12
"""So many are looked at more closely, of those that vectors and those that words have found."""
LEFT_ALONE_SECONDS = 30.0
"""How long an embedder that has failed is not asked again."""
PATIENCE_SECONDS = 5.0
"""How long a message waits for an embedder; then its memories are looked for by their words."""
LOADING_SECONDS = 0.3
"""How long it waits for one that is being loaded: the next message will have it."""
AT_ONCE = 16
"""So many memories without a vector get one with the question; more are left to the indexer."""


class _Wanted(Struct, frozen=True):
    """One recall."""

    scope: MemoryScope
    text: str
    limit: int
    without: Without
    now: Instant


class _Begun(Struct, frozen=True):
    """What there is before an embedder is asked."""

    glance: Glance
    question: MemoryQuery
    pending: Sequence[Pending] = ()
    is_enough: bool = False
    """There is nothing, or nothing is asked for: only notes are shown."""


class _Compared(Struct, frozen=True):
    """What an embedder has made: the vector of the question, and those of memories that had none."""

    vector: Vector
    few: Sequence[Pending]
    vectors: Sequence[Vector]
    is_whole: bool
    """Every memory has a vector that can be compared."""


class HybridMemories:
    """Implements `ports.memory.Memories`."""

    def __init__(
        self,
        store: IndexedMemories,
        embedders: Embedders,
        clock: Clock,
        pause: Pause = asyncio.sleep,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Who has more patience than a message waits for an embedder to be loaded, too."""
        self._store = store
        self._embedders = embedders
        self._clock = clock
        self._patience = patience
        self._loading_patience = LOADING_SECONDS if patience <= PATIENCE_SECONDS else patience
        self.indexer = Indexer(store, pause)
        self._left_alone: dict[str, tuple[float, str]] = {}
        """Embedders that have failed: until when they are not asked, and what they said."""
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._under_way: set[tuple[MemoryScope, str]] = set()
        """Whose new memories get their vectors with a question right now: others do not ask for the same."""

    async def start(self) -> None:
        await self.indexer.start()

    async def close(self) -> None:
        for task in self._loading.values():
            task.cancel()
        await self.indexer.close()
        await self._embedders.close()

    def catch_up(self, scope: MemoryScope, embedder: str) -> None:
        """Something was remembered: make vectors of it soon. `embedder` is the agent's setting."""
        maker, _ = self._find(embedder)  # recall will tell of what is wrong
        if maker is not None:
            self.indexer.wake(scope, maker)

    async def recall(
        self, scope: MemoryScope, text: str, limit: int, embedder: str, without: Without = EVERYTHING
    ) -> Recall:
        wanted = _Wanted(scope, text, limit, without, self._clock.now())
        maker, degraded = self._find(embedder)
        if maker is not None:
            name, dimensions = maker.name, maker.dimensions
            begun = await self._store.read(lambda view: _begin(view, wanted, name, dimensions))
            if begun.is_enough:
                return Recall(notes=begun.glance.notes)
            try:
                async with asyncio.timeout(self._patience):
                    if (found := await self._by_vectors(wanted, begun, maker)) is not None:
                        return found
            except TimeoutError:
                degraded = self._leave_alone(name, f"the embedder did not answer within {self._patience:g} s")
            except Exception as error:  # whatever an embedder or vectors do, words are there
                degraded = self._leave_alone(name, str(error) or type(error).__name__)
        return await self._store.read(lambda view: _by_words(view, wanted, degraded))

    async def find_duplicate(self, agent_id: AgentId, owner: UserId, text: str) -> MemoryId | None:
        return await self._store.read(lambda view: view.same(agent_id, owner, text))

    async def latest(self, scope: MemoryScope, limit: int) -> Sequence[Memory]:
        return await self._store.list(scope.agent_id, limit=limit, owner=scope.owner)

    # ── Vectors ──

    def _find(self, setting: str) -> tuple[Embedder | None, MemoryDegraded | None]:
        """The embedder to ask, if there is one; and why there is not, where there should be."""
        try:
            maker = self._embedders.find(setting)
        except Exception as error:  # also what a broken package does when it is looked for
            return None, MemoryDegraded(setting, str(error))
        if maker is not None and maker.name in self._left_alone:
            until, reason = self._left_alone[maker.name]
            if self._clock.monotonic() < until:
                return None, MemoryDegraded(maker.name, f"it is left alone for a while: {reason}")
        return maker, None

    def _leave_alone(self, name: str, reason: str) -> MemoryDegraded:
        self._left_alone[name] = (self._clock.monotonic() + LEFT_ALONE_SECONDS, reason)
        logger.warning("memories are found by their words alone for a while: %s", " ".join(reason.split()))
        return MemoryDegraded(name, reason)

    async def _by_vectors(self, wanted: _Wanted, begun: _Begun, maker: Embedder) -> Recall | None:
        """Compare the text with all memories that have a vector, and with the few latest that have none yet. None:
        there is nothing to compare with, or nobody to do it, so far."""
        key = (wanted.scope, maker.name)
        if len(begun.pending) > AT_ONCE:
            self.indexer.wake(wanted.scope, maker)
        few = begun.pending if len(begun.pending) <= AT_ONCE and key not in self._under_way else ()
        if begun.glance.dimensions is None and not few:
            return None
        if not await self._is_loaded(maker):
            self.indexer.wake(wanted.scope, maker)
            return None
        if not few:
            return await self._compare(wanted, begun, maker, ())
        self._under_way.add(key)
        try:
            return await self._compare(wanted, begun, maker, few)
        finally:
            self._under_way.discard(key)

    async def _compare(
        self, wanted: _Wanted, begun: _Begun, maker: Embedder, few: Sequence[Pending]
    ) -> Recall | None:
        scope, glance = wanted.scope, begun.glance
        try:
            vector, *others = await embedded(maker, [wanted.text, *[item.memory.text for item in few]])
        except EmbeddingFailed:
            self.indexer.wake(scope, maker)
            if not few or glance.dimensions is None:
                raise
            (vector,), few, others = await embedded(maker, [wanted.text]), (), []  # one of the others was refused
        is_comparable = glance.dimensions in (None, len(vector))
        if not is_comparable:  # another model answers under the same name: all vectors are to be made anew
            self.indexer.wake(scope, maker)
        elif few:
            self.indexer.wake(scope, maker, list(zip(few, others, strict=True)))
        name, is_whole = maker.name, is_comparable and len(few) == len(begun.pending)
        compared = _Compared(vector, few, others, is_whole)
        return await self._store.read(lambda view: _by_both(view, wanted, begun, name, compared))

    async def _is_loaded(self, maker: Embedder) -> bool:
        """Whether it can be asked; one that is not loaded yet is, in the background."""
        if not isinstance(maker, Loading) or maker.is_loaded:
            return True
        task = self._loading.get(maker.name)
        if task is None:
            task = self._loading[maker.name] = asyncio.ensure_future(maker.load())
        done, _ = await asyncio.wait((task,), timeout=self._loading_patience)
        if done:
            del self._loading[maker.name]
            task.result()
        return bool(done)


# ── What is done where the store reads ──


def _begin(view: MemoryView, wanted: _Wanted, embedder: str | None, dimensions: int | None = None) -> _Begun:
    glance = view.glance(wanted.scope, embedder, wanted.without)
    if glance.is_empty or wanted.limit <= 0:
        return _Begun(glance, MemoryQuery(), is_enough=True)
    question = asked(wanted.text)
    if not (question.words or question.keys):  # small talk, or nothing at all
        return _Begun(glance, question, is_enough=True)
    pending: Sequence[Pending] = ()
    if embedder is not None and glance.is_behind:
        pending = view.pending(wanted.scope, embedder, dimensions, AT_ONCE + 1)
    return _Begun(glance, question, pending)


def _by_words(view: MemoryView, wanted: _Wanted, degraded: MemoryDegraded | None) -> Recall:
    begun = _begin(view, wanted, None)
    notes, question = begun.glance.notes, begun.question
    if begun.is_enough:
        return Recall(notes=notes)
    worded = view.matching(wanted.scope, question.by_words, _most(wanted, MATCHING), wanted.without)
    worded = _once(worded, wanted.scope)
    shown = {note.memory_id for note in notes}
    return Recall(rank(question, None, worded, wanted.now, wanted.limit, shown), notes, "text", degraded)


def _by_both(view: MemoryView, wanted: _Wanted, begun: _Begun, embedder: str, compared: _Compared) -> Recall:
    """Where every memory was compared by its vector, only words of which every letter counts are looked for."""
    scope, without, question = wanted.scope, wanted.without, begun.question
    near = [
        MemoryHit(item.memory, item.line, _cosine(compared.vector, vector))
        for item, vector in zip(compared.few, compared.vectors, strict=True)
        if _is_wanted(item.memory, without)
    ]
    if begun.glance.dimensions is not None:
        near += view.nearest(scope, embedder, compared.vector, _most(wanted, NEAREST), without)
    terms = question.by_keys if compared.is_whole else question.by_words
    worded = view.matching(scope, terms, _most(wanted, MATCHING), without)
    near, worded = _once(near, scope), _once(worded, scope)
    notes = begun.glance.notes
    found = rank(question, near, worded, wanted.now, wanted.limit, {note.memory_id for note in notes})
    return Recall(found, notes, "both" if worded else "vectors")


def _once(hits: Sequence[MemoryHit], scope: MemoryScope) -> list[MemoryHit]:
    """Of what several owners have said alike, the best alone. One owner never has a fact twice."""
    if scope.owner is not None:
        return list(hits)
    told: dict[str, MemoryHit] = {}
    for hit in sorted(hits, key=lambda hit: hit.likeness or 0.0, reverse=True):
        told.setdefault(normalised(hit.memory.text), hit)
    best = {hit.memory.memory_id for hit in told.values()}
    return [hit for hit in hits if hit.memory.memory_id in best]


def _most(wanted: _Wanted, usual: int) -> int:
    return max(usual, 2 * wanted.limit)


def _is_wanted(memory: Memory, without: Without) -> bool:
    if memory.memory_id in without.ids:
        return False
    return without.session is None or memory.session_id != without.session or memory.created_at < without.since


def _cosine(one: Vector, other: Vector) -> float:
    return sum(map(float.__mul__, one, other)) if len(one) == len(other) else 0.0
