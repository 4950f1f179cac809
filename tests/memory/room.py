"""A memory store for a test: real SQLite, a scripted embedder, and a clock that stands still."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tests.patience import HANG_SECONDS
from treadle.domain.ids import AgentId, SessionId
from treadle.domain.memories import Memory, MemoryScope
from treadle.domain.users import LOCAL_USER
from treadle.memory.embedders import Embedders
from treadle.memory.search import RECALL_SECONDS, HybridMemories
from treadle.ports.memory import Embedder, EmbeddingFailed, Vector
from treadle.ports.memory_index import MemoryOverview
from treadle.stores.sqlite.connection import SqliteDatabase, open_database
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.writer import InlineWriter, Look, Result
from treadle.testing.time import FakeClock

AGENT = AgentId("agt_1")
OWN = MemoryScope(AGENT, LOCAL_USER)
TOPICS = ("tea", "boat", "code", "garden")


MEANS = (("tea", "tea"), ("drink", "tea"), ("sail", "boat"), ("harbour", "boat"), ("compiler", "code"))


class Topics:
    """An embedder that knows four topics by their names, and the words that mean them."""

    dimensions: int | None = None
    name = "fake/topics"

    def __init__(self, wide: int = 4) -> None:
        self.asked: list[list[str]] = []
        self.failure: str | None = None
        self.wide = wide

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        self.asked.append(list(texts))
        if self.failure is not None or any("poison" in text for text in texts):
            raise EmbeddingFailed(self.failure or "this text is refused")
        self.dimensions = self.wide
        return [self._vector(text.lower()) for text in texts]

    async def close(self) -> None: ...

    def _vector(self, text: str) -> list[float]:
        topics = [topic for word, topic in MEANS if word in text]
        numbers = [1.0 if topic in topics else 0.05 for topic in TOPICS] + [0.05] * (self.wide - 4)
        return [number / math.hypot(*numbers) for number in numbers]


class CountingWriter(InlineWriter):
    """A writer that counts what is read."""

    reads = 0

    def read(self, look: Look[Result]) -> "asyncio.Future[Result]":
        self.reads += 1
        return super().read(look)


class One(Embedders):
    """Whatever the setting, this one."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.embedder = embedder

    def find(self, setting: str) -> Embedder | None:
        return None if setting == "none" else self.embedder


class Room:
    """A memory of its own, with its parts at hand."""

    def __init__(
        self,
        embedders: Embedders | None = None,
        database: SqliteDatabase | None = None,
        timeout_seconds: float = RECALL_SECONDS,
    ) -> None:
        self.topics = Topics()
        self.clock = FakeClock()
        self.writer = CountingWriter(database or open_database(":memory:"))
        self.store = SqliteMemories(self.writer)
        self.pauses: list[float] = []
        self.weary = asyncio.Event()
        """There were nine pauses."""
        self.memories = HybridMemories(
            self.store, embedders or One(self.topics), self.clock, self.pause, timeout_seconds
        )

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == 9:
            self.weary.set()
        await asyncio.sleep(0)

    async def add(self, *texts: str, session: str | None = None, prefix: str = "mem") -> None:
        session_id = None if session is None else SessionId(session)
        made = [
            Memory(f"{prefix}_{n}", AGENT, "long_term", text, self.clock.now(), session_id=session_id)
            for n, text in enumerate(texts)
        ]
        assert await self.store.add(made) == len(texts)

    async def read_overview(self, embedder: str = "fake/topics") -> MemoryOverview:
        return await self.store.read(lambda view: view.read_overview(OWN, embedder))

    async def texts(self, text: str, embedder: str = "local", limit: int = 5) -> list[str]:
        return [hit.memory.text for hit in (await self.memories.recall(OWN, text, limit, embedder)).found]


def run(
    work: Callable[[Room], Coroutine[Any, Any, None]],
    embedders: Embedders | None = None,
    timeout_seconds: float = RECALL_SECONDS,
) -> Room:
    async def whole() -> Room:
        room = Room(embedders, timeout_seconds=timeout_seconds)
        await room.memories.start()
        async with asyncio.timeout(HANG_SECONDS):
            await work(room)
        await room.memories.close()
        return room

    return asyncio.run(whole())
