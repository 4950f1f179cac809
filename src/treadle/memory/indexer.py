"""Making vectors of memories that have none yet, behind everybody's back.

A memory without a vector is found by its words, so nobody waits for this. What is not done when the process ends,
the next one does."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from treadle.domain.errors import TreadleError
from treadle.domain.memories import MemoryScope
from treadle.memory.embedding_call import embedded
from treadle.ports.memory import Embedder, EmbeddingFailed, Vector
from treadle.ports.memory_index import MemoryIndex, Pending, VectorStore

logger = logging.getLogger(__name__)

BATCH = 16
"""Memories at a time: a question that comes in between waits for one batch at most."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
PROBE = "hello"
"""What no embedder has a reason to refuse."""
GRACE_SECONDS = 1.0
"""How long closing waits for the work under way."""

Pause = Callable[[float], Awaitable[None]]
Made = tuple[Pending, Vector | None]


class IndexedMemories(MemoryIndex, VectorStore, Protocol):
    """Where memories are and their vectors go."""


class _Stuck(Exception):
    """The same memories are pending as before."""


class Indexer:
    """One task for all agents and owners, which is there only while there is something to do."""

    def __init__(self, shelf: IndexedMemories, pause: Pause = asyncio.sleep) -> None:
        self._shelf = shelf
        self._pause = pause
        self._wanted: dict[tuple[MemoryScope, str], Embedder] = {}
        self._made: dict[tuple[MemoryScope, str], Sequence[Made]] = {}
        self._first: dict[tuple[MemoryScope, str], int] = {}
        """The first memory of the last batch."""
        self._task: asyncio.Task[None] | None = None
        self._is_open = False
        self._is_pausing = False

    async def start(self) -> None:
        self._is_open = True

    def wake(self, scope: MemoryScope, embedder: Embedder, made: Sequence[Made] = ()) -> None:
        """The agent may have memories without a vector. Of the first of them, some may be `made` already."""
        if self._is_open:
            self._wanted[scope, embedder.name] = embedder
            if made:
                self._made[scope, embedder.name] = made
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._work())

    async def rest(self) -> None:
        """Until there is nothing to do."""
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        self._is_open = False
        if (task := self._task) is not None:
            await asyncio.wait((task,), timeout=0 if self._is_pausing else GRACE_SECONDS)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self._task = None

    async def _work(self) -> None:
        pause = FIRST_PAUSE
        while self._wanted:
            (scope, name), embedder = next(iter(self._wanted.items()))
            try:
                is_done = await self._batch(scope, embedder)
            except (EmbeddingFailed, TreadleError, _Stuck) as error:
                logger.info("memories of %s have no vectors yet: %s", scope.agent_id, error)
                if not self._is_open:
                    return
                self._wanted[scope, name] = self._wanted.pop((scope, name))  # behind the others
                self._is_pausing = True
                await self._pause(pause)
                self._is_pausing = False
                pause = min(LONGEST_PAUSE, pause * 2)
                continue
            except Exception:
                logger.exception("memories of %s get no vectors for now", scope.agent_id)
                is_done = True
            pause = FIRST_PAUSE
            if is_done:
                self._wanted.pop((scope, name), None)

    async def _batch(self, scope: MemoryScope, embedder: Embedder) -> bool:
        """Whether nothing is left to do. Raises _Stuck where nothing comes of doing it."""
        key, dimensions = (scope, embedder.name), embedder.dimensions
        if made := self._made.pop(key, ()):
            await self._shelf.keep(scope, embedder.name, made)
        pending = await self._shelf.read(lambda view: view.pending(scope, embedder.name, dimensions, BATCH))
        if not pending:
            self._first.pop(key, None)
            return True
        vectors = await _vectors(embedder, [item.memory.text for item in pending])
        await self._shelf.keep(scope, embedder.name, list(zip(pending, vectors, strict=True)))
        before, self._first[key] = self._first.get(key), pending[0].number
        if before == pending[0].number:
            raise _Stuck(f"the vectors of {embedder.name} are to be made anew each time")
        return False


async def _vectors(embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector | None]:
    """A vector for each text; None for one that the embedder refuses though it is there: such a text must not keep
    all others from having theirs. Raises EmbeddingFailed where it is not there."""
    try:
        return await embedded(embedder, texts)
    except EmbeddingFailed:
        await embedded(embedder, [PROBE])
    vectors: list[Vector | None] = []
    refusals: list[str] = []
    for text in texts:
        try:
            vectors += await embedded(embedder, [text])
        except EmbeddingFailed as error:
            refusals.append(str(error))
            vectors.append(None)
    if refusals:
        logger.warning(
            "%d memories get no vector and are found by their words alone: %s", len(refusals), refusals[-1]
        )
    return vectors
