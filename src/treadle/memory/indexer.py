"""Computes missing vectors of memories in the background.

A memory without a vector is found by its words, so no caller waits for this. The next process continues what is
unfinished when this one ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from treadle.domain.errors import TreadleError
from treadle.domain.memories import MemoryScope
from treadle.memory.embedding_call import embed_checked
from treadle.ports.memory import Embedder, EmbeddingFailed, Vector
from treadle.ports.memory_index import MemoryIndex, Pending, VectorStore

logger = logging.getLogger(__name__)

BATCH_SIZE = 16
"""Memories per batch. A query in between waits for one batch at most."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
PROBE_TEXT = "hello"
"""A text that no embedder has a reason to reject."""
GRACE_SECONDS = 1.0
"""How long closing waits for work in progress."""

Pause = Callable[[float], Awaitable[None]]
Made = tuple[Pending, Vector | None]


class IndexedMemories(MemoryIndex, VectorStore, Protocol):
    """A store of memories and their vectors."""


class _NoProgress(Exception):
    """The same memories are pending as before."""


class Indexer:
    """One task for all agents and owners, which only exists while there is work."""

    def __init__(self, store: IndexedMemories, pause: Pause = asyncio.sleep) -> None:
        self._store = store
        self._pause = pause
        self._pending: dict[tuple[MemoryScope, str], Embedder] = {}
        self._made: dict[tuple[MemoryScope, str], Sequence[Made]] = {}
        self._first: dict[tuple[MemoryScope, str], int] = {}
        """The first memory of the last batch."""
        self._task: asyncio.Task[None] | None = None
        self._is_open = False
        self._is_pausing = False

    async def start(self) -> None:
        self._is_open = True

    def wake(self, scope: MemoryScope, embedder: Embedder, made: Sequence[Made] = ()) -> None:
        """Index the memories of this scope that lack a vector. `made` contains vectors of the first of them that
        are already computed."""
        if self._is_open:
            self._pending[scope, embedder.name] = embedder
            if made:
                self._made[scope, embedder.name] = made
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._work())

    async def wait_until_idle(self) -> None:
        """Wait until there is no work left."""
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
        while self._pending:
            (scope, name), embedder = next(iter(self._pending.items()))
            try:
                is_done = await self._batch(scope, embedder)
            except (EmbeddingFailed, TreadleError, _NoProgress) as error:
                logger.info("memories of %s have no vectors yet: %s", scope.agent_id, error)
                if not self._is_open:
                    return
                self._pending[scope, name] = self._pending.pop((scope, name))  # after the others
                self._is_pausing = True
                await self._pause(pause)
                self._is_pausing = False
                pause = min(LONGEST_PAUSE, pause * 2)
                continue
            except Exception:
                logger.exception("indexing the memories of %s failed", scope.agent_id)
                is_done = True
            pause = FIRST_PAUSE
            if is_done:
                self._pending.pop((scope, name), None)

    async def _batch(self, scope: MemoryScope, embedder: Embedder) -> bool:
        """Index one batch, and return whether no work is left. Raise _Stuck if there is no progress."""
        key, dimensions = (scope, embedder.name), embedder.dimensions
        if made := self._made.pop(key, ()):
            await self._store.keep(scope, embedder.name, made)
        pending = await self._store.read(
            lambda view: view.list_unembedded(scope, embedder.name, dimensions, BATCH_SIZE)
        )
        if not pending:
            self._first.pop(key, None)
            return True
        vectors = await _embed_each(embedder, [item.memory.text for item in pending])
        await self._store.keep(scope, embedder.name, list(zip(pending, vectors, strict=True)))
        before, self._first[key] = self._first.get(key), pending[0].number
        if before == pending[0].number:
            raise _NoProgress(f"the vectors of {embedder.name} have to be computed again each time")
        return False


async def _embed_each(embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector | None]:
    """Return a vector per text, or None for a text that the embedder rejects although it works: such a text must
    not block the others. Raise EmbeddingFailed if the embedder does not work."""
    try:
        return await embed_checked(embedder, texts)
    except EmbeddingFailed:
        await embed_checked(embedder, [PROBE_TEXT])
    vectors: list[Vector | None] = []
    rejections: list[str] = []
    for text in texts:
        try:
            vectors += await embed_checked(embedder, [text])
        except EmbeddingFailed as error:
            rejections.append(str(error))
            vectors.append(None)
    if rejections:
        logger.warning(
            "%d memories get no vector and are only found by their words: %s", len(rejections), rejections[-1]
        )
    return vectors
