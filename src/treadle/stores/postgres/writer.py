"""One writer for all runs of a process: whatever is ready is committed together, in one transaction and one round
trip. The next batch is sent when the one before is committed and whoever was answered has had a turn.

An operation that is refused fails alone; the rest of its batch commits. When the server is away, or keeps us
waiting, work under way waits and new work is refused after a while. Where nobody knows whether a batch was
committed, because the connection was lost meanwhile, the database does: it keeps the number of the last batch of
each writer, with the answers. Either they are there, or that number is taken, so that the batch can never be done
any more, and its work is sent again with the next one."""

import asyncio
import contextlib
import logging
import math
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from treadle.domain.errors import StoreError, StoreFull, StoreLost, TreadleError
from treadle.domain.ids import Instant
from treadle.stores.postgres.batch import BatchResult, Operation, build_arguments, decode_results, order_operations
from treadle.stores.postgres.connection import (
    CONFLICT_STATES,
    DRIVER_ERRORS,
    STATEMENT_SECONDS,
    WRITER_SETTINGS,
    explain,
    get_sqlstate,
    is_connection_lost,
    is_transient,
    redact_url,
)
from treadle.stores.postgres.connection import SQL as STATEMENTS
from treadle.stores.postgres.database import (
    FIRST_BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    PATIENCE_SECONDS,
    PostgresDatabase,
)
from treadle.stores.postgres.driver import PostgresConnection

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

MAX_BATCH_OPERATIONS, MAX_BATCH_BYTES = 128, 4 * 2**20
"""In one batch. More wait for the next one; a single one may be larger."""
MAX_YIELDS = 3
"""How often others have their turn between two batches. What they have ready then goes with the next one: a batch
costs as much as several operations."""
UNKNOWN_WRITER_STATE, STALE_BATCH_STATE = "TR001", "TR002"
"""What `write_all` raises."""
WRITER_EXPIRY_SECONDS = 6 * 86400.0
"""Who was silent for a week may be forgotten. Who was answered later than this, and is not known, speaks to another
database than before: a backup of the time when it was not there yet."""
TIMEOUT_CHECK_SECONDS = 0.25


@dataclass(slots=True)
class PendingOperation:
    """One operation on its way."""

    operation: Operation
    then: Callable[[BatchResult], Any]
    patient: bool
    future: "asyncio.Future[Any]"
    until: float
    """When somebody who is not patient is told that it takes too long."""

    def settle(self, answer: BatchResult) -> None:
        """Tell the world, then the caller. A caller that has gone away changes nothing: it is committed."""
        try:
            result = self.then(answer)
        except TreadleError as refusal:
            self.fail(refusal)
        else:
            if not self.future.done():
                self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class PostgresWriter:
    """The writer of one process. `now` is the time that the database goes by; None: its own."""

    def __init__(
        self,
        database: PostgresDatabase,
        on_lost: Callable[[StoreLost], None],
        now: Callable[[], Instant | None] = lambda: None,
    ) -> None:
        self._database = database
        self._on_lost = on_lost
        self.now = now
        self._loop = asyncio.get_running_loop()
        self.name = uuid.uuid4().hex
        self._number = 0
        """Of the last batch that was committed."""
        self._connection: PostgresConnection | None = None
        self._registered = False
        self._answered_at = -math.inf
        self._queue: deque[PendingOperation] = deque()
        self._under_way: Sequence[PendingOperation] = ()
        self._serving: asyncio.Task[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._sent_at = math.inf
        """When the batch was sent that is not answered yet."""
        self._trouble: StoreError | None = None
        self._lost: StoreLost | None = None
        self._closing = False

    def write(
        self, operation: Operation, then: Callable[[BatchResult], Result], patient: bool
    ) -> "asyncio.Future[Result]":
        """Do this in the next batch; after its commit call `then`, on the event loop and in the order of commits.
        It makes the result of the answer, or raises what the caller is to be told."""
        future: asyncio.Future[Result] = self._loop.create_future()
        if self._lost is not None:
            future.set_exception(self._lost)
        elif self._closing:
            future.set_exception(StoreError(f"The database {redact_url(self._database.url)} has been closed."))
        else:
            self._queue.append(
                PendingOperation(operation, then, patient, future, self._loop.time() + PATIENCE_SECONDS)
            )
            if self._serving is None:
                self._serving = self._loop.create_task(self._serve())
        return future

    async def close(self) -> None:
        """Commit what is on its way, unless the server is away, and leave."""
        self._closing = True
        if self._serving is not None:
            _, silent = await asyncio.wait({self._serving}, timeout=PATIENCE_SECONDS)
            if silent:
                self._drop()
                await asyncio.wait(silent)
        if self._watching is not None:
            self._watching.cancel()
        if self._connection is not None:
            with contextlib.suppress(*DRIVER_ERRORS):
                await self._connection.execute(STATEMENTS["forget_writer"], self.name, timeout=1)
            with contextlib.suppress(*DRIVER_ERRORS):
                await self._connection.close(timeout=1)
            self._drop()

    async def _serve(self) -> None:
        try:
            while self._queue:
                self._under_way = self._take()
                await self._commit(self._under_way)
                rounds = min(len(self._under_way), MAX_YIELDS)
                self._under_way = ()
                for _ in range(rounds):
                    await asyncio.sleep(0)
        except BaseException as error:
            self._lose(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._serving = None

    def _take(self) -> list[PendingOperation]:
        items, size = list[PendingOperation](), 0
        while self._queue and len(items) < MAX_BATCH_OPERATIONS:
            operation = self._queue[0].operation
            size += len(operation.said or b"") + sum([len(draft.raw) for draft in operation.drafts])
            if items and size > MAX_BATCH_BYTES:
                break
            item = self._queue.popleft()
            if not (item.future.done() and not item.patient):  # whom it took too long
                items.append(item)
        return items

    async def _commit(self, items: Sequence[PendingOperation]) -> None:
        """Do all of it in one transaction, whatever it takes. Work that cannot be stored fails alone."""
        in_doubt, pause = False, FIRST_BACKOFF_SECONDS
        while items:
            try:
                answers = await self._look_back() if in_doubt else None
                in_doubt = False
                if answers is None:  # whoever was told that it takes too long shall not be surprised later
                    items = [item for item in items if item.patient or not item.future.done()]
                    order, plain = order_operations([item.operation for item in items])
                    items = [items[at] for at in order]
                    answers = await self._send(items, plain) if items else "[]"
            except StoreError as error:  # there is no connection to be had
                self._worry(error)
            except DRIVER_ERRORS as error:
                if is_connection_lost(error):
                    in_doubt = True
                    self._drop()
                elif not is_transient(error):
                    return await self._fail_alone(items, error)
                if get_sqlstate(error) not in CONFLICT_STATES:
                    self._worry(error)
            else:
                return self._settle(items, answers)
            if self._closing:
                return self._fail(items, self._trouble or StoreError("The database was closed meanwhile."))
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)
            self._refuse_late()
        return None

    def _settle(self, items: Sequence[PendingOperation], answers: str) -> None:
        self._trouble = None
        for item, answer in zip(items, decode_results([item.operation for item in items], answers), strict=True):
            item.settle(answer)

    async def _connected(self) -> PostgresConnection:
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = self._connection = await self._database.connect(WRITER_SETTINGS)
        return connection

    async def _send(self, items: Sequence[PendingOperation], plain: int) -> str:
        """The answers to a batch, so many of which, at its beginning, are plain."""
        connection = await self._connected()
        prepared = build_arguments([item.operation for item in items], plain, self.now())
        self._sent_at = self._loop.time()
        self._watch()
        if not self._registered:
            await connection.execute(STATEMENTS["register_writer"], self.name, self._number)
            self._registered = True
        sent = (self.name, self._number + 1, *prepared)
        try:
            answers = await connection.fetchval(STATEMENTS["write_all"], *sent, timeout=STATEMENT_SECONDS + 5)
        finally:
            self._sent_at = math.inf
        self._number += 1
        self._answered_at = self._loop.time()
        return answers

    async def _look_back(self) -> str | None:
        """What was answered to the batch that is in doubt. None: it was not done, and never will be."""
        connection = await self._connected()
        sent = (self.name, self._number + 1)
        answers = await connection.fetchval(STATEMENTS["look_back"], *sent, timeout=STATEMENT_SECONDS + 5)
        self._number += 1
        return answers

    async def _fail_alone(self, items: Sequence[PendingOperation], error: BaseException) -> None:
        """A batch was given up for something in it. Do the rest, one by one."""
        if (
            get_sqlstate(error) == UNKNOWN_WRITER_STATE
            and self._loop.time() - self._answered_at > WRITER_EXPIRY_SECONDS
        ):
            self._registered = False
            return await self._commit(items)
        if get_sqlstate(error) in (UNKNOWN_WRITER_STATE, STALE_BATCH_STATE):
            raise error
        if len(items) > 1:
            for item in items:
                await self._commit([item])
        else:
            items[0].fail(explain(error, self._database.url))
        return None

    # ── Trouble ──

    def _worry(self, error: BaseException) -> None:
        """The server is away, or slow, or full. New work is refused if there is no room for it, and after a while
        in any case."""
        reason = explain(error, self._database.url)
        if self._trouble is None:
            logger.warning("%s", reason)
        self._trouble = reason
        if isinstance(reason, StoreFull):
            self._refuse((*self._under_way, *self._queue), reason)
        self._watch()

    def _watch(self) -> None:
        if self._watching is None:
            self._watching = self._loop.call_later(TIMEOUT_CHECK_SECONDS, self._look)

    def _look(self) -> None:
        self._watching = None
        self._refuse_late()
        if self._under_way or self._queue:
            self._watch()

    def _refuse_late(self) -> None:
        """Tell those who are not patient that it takes too long; those in a batch that is being answered, only when
        that takes too long as well."""
        now, where = self._loop.time(), redact_url(self._database.url)
        late = StoreError(f"{where} has been busy for {PATIENCE_SECONDS:.0f} s. Try again later.")
        self._refuse([item for item in self._queue if item.until <= now], self._trouble or late)
        if now - self._sent_at > PATIENCE_SECONDS:
            late = StoreError(
                f"{where} has not answered for {PATIENCE_SECONDS:.0f} s, and may or may not have done what it was asked. "
                "Try again later, with the same key where there is one."
            )
        elif self._sent_at < math.inf:
            return
        self._refuse([item for item in self._under_way if item.until <= now], self._trouble or late)

    def _refuse(self, items: Iterable[PendingOperation], reason: StoreError) -> None:
        for item in items:
            if not item.patient:
                item.fail(reason)

    def _lose(self, error: BaseException) -> None:
        """What was committed is not known any more, or is not what was acknowledged: nothing may go on."""
        lost = self._lost = StoreLost(
            f"A write to {redact_url(self._database.url)} could not be made durable ({error}). The engine has stopped; "
            "start it again and it goes on from what is in the database."
        )
        self._fail((*self._under_way, *self._queue), lost)
        self._queue.clear()
        self._under_way = ()
        self._on_lost(lost)

    def _fail(self, items: Sequence[PendingOperation], error: BaseException) -> None:
        for item in items:
            item.fail(error)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
