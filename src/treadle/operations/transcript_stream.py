"""The changes of a run's transcript as they happen. One fold per run serves all its readers in this process."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

import msgspec
from msgspec import Struct

from treadle.core.transcript.fold import RunTranscript
from treadle.domain.envelope import Event
from treadle.domain.errors import TreadleError
from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId
from treadle.domain.transcript import Change, TextAppended, TotalsChanged
from treadle.engine.subscription import UNCOUNTED, MemoryAccount
from treadle.operations.run_stream import StreamReader

MAX_CHANGES_BEHIND = 10_000
"""Number of batches that a reader may be behind before it is cut off."""
MAX_EVENTS_BEHIND = 10_000
GATHER_SECONDS = 0.02
"""How long live events are gathered, so that fewer pieces are sent. Durable events never wait."""


class TranscriptChanges(Struct, frozen=True, tag="changes", tag_field="type"):
    """Changes that belong together."""

    sequence: int
    """The last durable event that they include. A stream continues after it."""
    changes: tuple[Change, ...]


_encode = msgspec.json.Encoder().encode


class EventBatches(Protocol):
    """The events of runs, stored and in batches."""

    def read_stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]: ...

    def batches(self, reader: StreamReader) -> AsyncGenerator[Sequence[Event], None]: ...


class TranscriptReader:
    """One reader of a transcript. It receives encoded changes."""

    def __init__(self, memory: MemoryAccount = UNCOUNTED) -> None:
        self._memory = memory
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._is_over = False
        self._error: BaseException | None = None
        self.is_cut_off = False

    def offer(self, encoded: bytes) -> None:
        """Give the reader changes. One that is too slow is cut off, and receives all of them when it returns."""
        if self.is_cut_off:
            return
        if len(self._waiting) >= MAX_CHANGES_BEHIND:
            self.is_cut_off = True
            self.close()
        else:
            self._memory.hold(len(encoded))
            self._waiting.append(encoded)
        self._news.set()

    def end(self, error: BaseException | None = None) -> None:
        """Report that there are no more changes."""
        self._is_over, self._error = True, error
        self._news.set()

    def close(self) -> None:
        """Drop what the reader has not received."""
        self._memory.hold(-sum(map(len, self._waiting)))
        self._waiting.clear()

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield changes until the run ends or the reader is cut off."""
        while True:
            while self._waiting:
                encoded = self._waiting.popleft()
                self._memory.hold(-len(encoded))
                yield encoded
            if self.is_cut_off or self._is_over:
                if self._error is not None:
                    raise self._error
                return
            self._news.clear()
            await self._news.wait()


class SharedTranscript:
    """The fold of one run, as long as it has readers."""

    def __init__(self, run_id: RunId, source: EventBatches) -> None:
        self._transcript = RunTranscript(run_id)
        self._source = source
        self._users = 0
        self._readers: set[TranscriptReader] = set()
        self._is_loaded = asyncio.Event()
        self._is_over = False
        self._error: BaseException | None = None
        self._task = asyncio.create_task(self._fold_all(), name=f"treadle-transcript-{run_id}")

    async def read(self, after: int, memory: MemoryAccount) -> AsyncGenerator[bytes, None]:
        """Yield what a reader lacks that has everything up to `after`, and then all changes."""
        self._users += 1
        reader = TranscriptReader(memory)
        try:
            await self._is_loaded.wait()
            changes = TranscriptChanges(self._transcript.sequence, tuple(self._transcript.list_changes(after)))
            self._readers.add(reader)
            if self._is_over:
                reader.end(self._error)
            yield _encode(changes)
            del changes
            async with aclosing(reader.read()) as rest:
                async for encoded in rest:
                    yield encoded
        finally:
            self._readers.discard(reader)
            reader.close()
            self._users -= 1

    @property
    def has_readers(self) -> bool:
        return self._users > 0

    def close(self) -> None:
        """Stop following the run."""
        self._task.cancel()

    async def _fold_all(self) -> None:
        run_id, transcript = self._transcript.run_id, self._transcript
        try:
            async with aclosing(self._source.read_stored(run_id)) as stored:
                async for event in stored:
                    transcript.apply(event)
                    self._is_over = isinstance(event.data, RunEnd)
            self._is_loaded.set()
            while not self._is_over:
                reader = StreamReader(run_id, transcript.sequence, MAX_EVENTS_BEHIND, GATHER_SECONDS)
                async with aclosing(self._source.batches(reader)) as batches:
                    async for batch in batches:
                        self._publish(batch)
        except TreadleError as error:
            self._error = error
        finally:
            self._is_over = True
            self._is_loaded.set()
            for reader in self._readers:
                reader.end(self._error)

    def _publish(self, batch: Sequence[Event]) -> None:
        changes: list[Change] = []
        for event in batch:
            changes += self._transcript.apply(event)
            self._is_over = self._is_over or isinstance(event.data, RunEnd)
        if changes:
            encoded = _encode(TranscriptChanges(self._transcript.sequence, tuple(join_changes(changes))))
            for reader in self._readers:
                reader.offer(encoded)


class SharedTranscripts:
    """The transcripts that are read in this process."""

    def __init__(self, source: EventBatches) -> None:
        self._source = source
        self._open: dict[RunId, SharedTranscript] = {}

    async def follow(
        self, run_id: RunId, after: int, memory: MemoryAccount = UNCOUNTED
    ) -> AsyncGenerator[bytes, None]:
        """Yield encoded `TranscriptChanges`: what a reader lacks that has everything up to `after`, then all
        further changes until the run ends or the reader is cut off."""
        shared = self._open.get(run_id)
        if shared is None:
            shared = self._open[run_id] = SharedTranscript(run_id, self._source)
        try:
            async with aclosing(shared.read(after, memory)) as changes:
                async for encoded in changes:
                    yield encoded
        finally:
            if not shared.has_readers and self._open.get(run_id) is shared:
                del self._open[run_id]
                shared.close()


def join_changes(changes: Sequence[Change]) -> list[Change]:
    """Return changes with adjacent pieces of a text joined, and only the last totals."""
    joined: list[Change] = []
    totals: TotalsChanged | None = None
    for change in changes:
        last = joined[-1] if joined else None
        if isinstance(change, TotalsChanged):
            totals = change
        elif (
            isinstance(change, TextAppended)
            and isinstance(last, TextAppended)
            and (change.key, change.field) == (last.key, last.field)
            and change.offset == last.offset + len(last.text)
        ):
            joined[-1] = msgspec.structs.replace(last, text=last.text + change.text)
        else:
            joined.append(change)
    return joined if totals is None else [*joined, totals]
