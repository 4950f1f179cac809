"""What fits a text of all that an agent remembers: by vectors and words, or by words alone where vectors fail."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.events import MemoryDegraded, RecalledBy
from treadle.domain.identity import AgentId, SessionId
from treadle.domain.likeness import MOST, says_the_same
from treadle.domain.memories import Memory, MemoryId
from treadle.memory.embedders import Embedders
from treadle.memory.indexing import Indexer, Pause
from treadle.memory.queries import Asked, asked, beginning
from treadle.memory.ranking import rank
from treadle.ports.clock import Clock
from treadle.ports.memory import Embedder, EmbeddingFailed, Recall, Vector
from treadle.ports.memory_index import Glance, MemoryIndex, Near, Pending, VectorShelf, VectorsUnavailable

CANDIDATES = 50
LEFT_ALONE_SECONDS = 30.0
"""How long an embedder that has failed is not asked again."""
PATIENCE_SECONDS = 5.0
"""How long a message waits for an embedder; then its memories are looked for by their words."""
AT_ONCE = 32
"""So many memories without a vector get one with the question; more are left to the indexer."""
CLOSE = 0.9
"""The likeness of two memories whose meanings are close enough to be one, if their words are."""


class MemoryStore(MemoryIndex, VectorShelf, Protocol):
    """What the store must do."""


class _Vectors(Struct, frozen=True):
    """What came of asking an embedder."""

    near: Sequence[Near] | None = None
    """None: vectors were not compared."""
    is_whole: bool = False
    """Every memory has a vector and was compared."""
    degraded: MemoryDegraded | None = None


class HybridMemories:
    """Implements `ports.memory.Memories`."""

    def __init__(
        self,
        store: MemoryStore,
        embedders: Embedders,
        clock: Clock,
        pause: Pause = asyncio.sleep,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._store = store
        self._embedders = embedders
        self._clock = clock
        self._patience = patience
        self.indexer = Indexer(store, pause)
        self._left_alone: dict[str, tuple[float, str]] = {}
        """Embedders that have failed: until when they are not asked, and what they said."""
        self._settings: dict[AgentId, str] = {}
        """What each agent was last asked with."""

    async def start(self) -> None:
        await self.indexer.start()

    async def close(self) -> None:
        await self.indexer.close()
        await self._embedders.close()

    def catch_up(self, agent_id: AgentId, embedder: str) -> None:
        """Something was remembered: make vectors of it soon. `embedder` is the agent's setting."""
        try:
            found = self._embedders.find(embedder)
        except EmbeddingFailed:
            return  # recall will tell
        if found is not None:
            self.indexer.wake(agent_id, found)

    async def recall(
        self, agent_id: AgentId, text: str, limit: int, embedder: str, without: SessionId | None = None
    ) -> Recall:
        self._settings[agent_id] = embedder
        maker, degraded = self._find(embedder)
        glance = await self._store.glance(agent_id, None if maker is None else maker.name)
        if glance.is_empty:
            return Recall()
        notes = tuple(note for note in glance.notes if without is None or note.session_id != without)
        question = asked(text)
        if limit <= 0 or not (question.words or question.keys):  # small talk, or nothing at all
            return Recall(notes=notes)
        vectors = _Vectors(degraded=degraded)
        if maker is not None:
            vectors = await self._compare(agent_id, text, maker, glance, without)
        worded = await self._words(agent_id, question, vectors, without)
        shown = {note.memory_id for note in notes}
        found = rank(question, vectors.near, worded, self._clock.now(), limit, shown)
        return Recall(found, notes, _how(vectors, worded), vectors.degraded)

    async def twin(self, agent_id: AgentId, text: str) -> MemoryId | None:
        if (same := await self._store.same(agent_id, text)) is not None:
            return same
        setting = self._settings.get(agent_id, "none")
        maker, _ = self._find(setting)
        glance = await self._store.glance(agent_id, None if maker is None else maker.name)
        if glance.is_empty:
            return None
        vectors = _Vectors()
        if maker is not None:
            vectors = await self._compare(agent_id, text, maker, glance, None)
        for hit in vectors.near or ():
            if hit.likeness >= CLOSE and _is_twin(hit.memory, text, MOST):
                return hit.memory.memory_id
        query = asked(text).by_words
        worded = () if query is None else await self._store.matching(agent_id, query, CANDIDATES)
        return next((memory.memory_id for memory in worded if _is_twin(memory, text)), None)

    async def latest(self, agent_id: AgentId, limit: int) -> Sequence[Memory]:
        return await self._store.list(agent_id, limit=limit)

    # ── Vectors ──

    def _find(self, setting: str) -> tuple[Embedder | None, MemoryDegraded | None]:
        try:
            return self._embedders.find(setting), None
        except EmbeddingFailed as error:
            return None, MemoryDegraded(setting, str(error))

    async def _compare(
        self, agent_id: AgentId, text: str, maker: Embedder, glance: Glance, without: SessionId | None
    ) -> _Vectors:
        """Compare the text with all memories that have a vector, and with the few latest that have none yet."""
        until, reason = self._left_alone.get(maker.name, (0.0, ""))
        if self._clock.monotonic() < until:
            return _Vectors(degraded=MemoryDegraded(maker.name, f"it is left alone for a while: {reason}"))
        try:
            async with asyncio.timeout(self._patience):
                return await self._near(agent_id, text, maker, glance, without)
        except TimeoutError:
            reason = f"the embedder did not answer within {self._patience:g} s"
        except (EmbeddingFailed, VectorsUnavailable) as error:
            reason = str(error)
        self._left_alone[maker.name] = (self._clock.monotonic() + LEFT_ALONE_SECONDS, reason)
        return _Vectors(degraded=MemoryDegraded(maker.name, reason))

    async def _near(
        self, agent_id: AgentId, text: str, maker: Embedder, glance: Glance, without: SessionId | None
    ) -> _Vectors:
        pending: Sequence[Pending] = ()
        if glance.is_behind:
            pending = await self._store.pending(agent_id, maker.name, maker.dimensions, AT_ONCE + 1)
        few = pending if len(pending) <= AT_ONCE else ()
        if pending and not few:
            self.indexer.wake(agent_id, maker)
        if glance.dimensions is None and not few:
            return _Vectors()  # the indexer has only begun: there is nothing to compare with
        try:
            vector, *others = await maker.embed([beginning(text), *(item.memory.text for item in few)])
        except EmbeddingFailed:
            if not few or glance.dimensions is None:
                self.indexer.wake(agent_id, maker)
                raise
            (vector,), few, others = await maker.embed([beginning(text)]), (), []  # one of the others was refused
            self.indexer.wake(agent_id, maker)
        near = [
            Near(item.memory, _cosine(vector, other))
            for item, other in zip(few, others, strict=True)
            if without is None or item.memory.session_id != without
        ]
        if glance.dimensions is not None:
            near += await self._store.nearest(agent_id, maker.name, vector, CANDIDATES, without)
        near.sort(key=lambda hit: hit.likeness, reverse=True)
        is_comparable = glance.dimensions in (None, len(vector))
        if not is_comparable:  # another model answers under the same name: all vectors are to be made anew
            self.indexer.wake(agent_id, maker)
        elif few:
            self.indexer.wake(agent_id, maker, list(zip(few, others, strict=True)))
        is_whole = is_comparable and len(few) == len(pending)
        return _Vectors(near, is_whole)

    # ── Words ──

    async def _words(
        self, agent_id: AgentId, question: Asked, vectors: _Vectors, without: SessionId | None
    ) -> Sequence[Memory]:
        """Where every memory was compared by its vector, only words of which every letter counts are looked for."""
        query = question.by_keys if vectors.is_whole else question.by_words
        if query is None:
            return ()
        return await self._store.matching(agent_id, query, CANDIDATES, without)


def _how(vectors: _Vectors, worded: Sequence[Memory]) -> RecalledBy:
    if vectors.near is None:
        return "text"
    return "both" if worded else "vectors"


def _is_twin(memory: Memory, text: str, in_common: float | None = None) -> bool:
    if memory.kind != "long_term":
        return False
    return says_the_same(text, memory.text) if in_common is None else says_the_same(text, memory.text, in_common)


def _cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) if len(one) == len(other) else 0.0
