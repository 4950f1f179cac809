"""Operations performed by another process, over its Unix socket or over TCP; and the streams that it offers."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from treadle.domain.envelope import Event, from_json
from treadle.domain.ids import RunId
from treadle.operations import runs
from treadle.operations.event_streams import FOLLOW_ALL, FOLLOW_RUN, FollowAll, FollowRun
from treadle.operations.operation import PAGE_LIMIT, Operation, Q, R
from treadle.operations.schemas import Page
from treadle.remote.connection import Connection


class RemoteCaller:
    """Implements `operations.operation.OperationClient` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        content = await self._connection.send(operation.method, operation.encode(request), key)
        return operation.decode_response(content)

    async def events(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """Follow a run: the durable events after a sequence, then all events as they happen."""
        request = FOLLOW_RUN.encode(FollowRun(run_id, after))
        async with aclosing(self._connection.stream(request)) as stream:
            async for data in stream:
                yield from_json(data)

    async def feed(self) -> AsyncGenerator[Event, None]:
        """Follow all runs: every event that is committed from now on."""
        async with aclosing(self._connection.stream(FOLLOW_ALL.encode(FollowAll()))) as stream:
            async for data in stream:
                yield from_json(data)

    async def read_stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """Read the events of a run that are in its journal now."""
        last: int | None = after
        while last is not None:
            request = runs.JOURNAL.encode(runs.ReadJournal(run_id, last, PAGE_LIMIT))
            content = await self._connection.send("GET", request)
            page = msgspec.json.decode(content, type=Page[msgspec.Raw])
            for item in page.items:
                yield from_json(bytes(item))
            last = None if page.next is None else int(page.next)
