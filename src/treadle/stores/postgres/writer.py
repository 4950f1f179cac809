"""Group commit for all runs of a process: operations that are ready are committed in one transaction and one round
trip. The next batch is sent after the previous one is committed and its callers had a chance to run.

A rejected operation fails alone; the rest of its batch commits. While the server is unavailable or slow, work in
progress waits and new work is rejected after a while. If the connection is lost during a batch, the database knows
whether it was committed: it stores the number and the results of each writer's last batch. The writer either reads
the results, or claims the number so that the batch can never be applied, and sends its work again."""

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
from treadle.stores.postgres.batch import (
    BatchOperation,
    BatchResult,
    build_arguments,
    decode_results,
    order_operations,
)
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
    MAX_WAIT_SECONDS,
    PostgresDatabase,
)
from treadle.stores.postgres.driver import PostgresConnection

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

MAX_BATCH_OPERATIONS, MAX_BATCH_BYTES = 128, 4 * 2**20
"""Limits of one batch. The rest waits for the next one; a single operation may be larger."""
MAX_YIELDS = 3
"""How often other tasks run between two batches. What they submit joins the next batch: a batch costs as much as
several operations."""
UNKNOWN_WRITER_STATE, STALE_BATCH_STATE = "TR001", "TR002"
"""SQLSTATE values that `write_all` raises."""
WRITER_EXPIRY_SECONDS = 6 * 86400.0
"""The database may forget a writer that is silent for a week. If a writer was active more recently and is unknown,
the database is not the one it wrote to, but an older backup."""
TIMEOUT_CHECK_SECONDS = 0.25


@dataclass(slots=True)
class PendingOperation:
    """One operation on its way to the database."""

    operation: BatchOperation
    then: Callable[[BatchResult], Any]
    patient: bool
    future: "asyncio.Future[Any]"
    until: float
    """When an impatient caller gets an error."""

    def settle(self, answer: BatchResult) -> None:
        """Publish the result, then return it to the caller. A cancelled caller changes nothing: the operation is
        committed."""
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
    """The writer of one process. `now` overrides the server's clock unless it returns None."""

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
        """The number of the last committed batch."""
        self._connection: PostgresConnection | None = None
        self._registered = False
        self._answered_at = -math.inf
        self._queue: deque[PendingOperation] = deque()
        self._in_progress: Sequence[PendingOperation] = ()
        self._serve_task: asyncio.Task[None] | None = None
        self._timeout_check: asyncio.TimerHandle | None = None
        self._sent_at = math.inf
        """When the batch in progress was sent."""
        self._problem: StoreError | None = None
        self._lost: StoreLost | None = None
        self._closing = False

    def write(
        self, operation: BatchOperation, then: Callable[[BatchResult], Result], patient: bool
    ) -> "asyncio.Future[Result]":
        """Add the operation to the next batch. After the commit, call `then` on the event loop, in commit order. It
        returns the result for the caller, or raises the caller's error."""
        future: asyncio.Future[Result] = self._loop.create_future()
        if self._lost is not None:
            future.set_exception(self._lost)
        elif self._closing:
            future.set_exception(StoreError(f"The database {redact_url(self._database.url)} has been closed."))
        else:
            self._queue.append(
                PendingOperation(operation, then, patient, future, self._loop.time() + MAX_WAIT_SECONDS)
            )
            if self._serve_task is None:
                self._serve_task = self._loop.create_task(self._serve())
        return future

    async def close(self) -> None:
        """Commit pending operations unless the server is unavailable, then disconnect."""
        self._closing = True
        if self._serve_task is not None:
            _, silent = await asyncio.wait({self._serve_task}, timeout=MAX_WAIT_SECONDS)
            if silent:
                self._drop()
                await asyncio.wait(silent)
        if self._timeout_check is not None:
            self._timeout_check.cancel()
        if self._connection is not None:
            with contextlib.suppress(*DRIVER_ERRORS):
                await self._connection.execute(STATEMENTS["forget_writer"], self.name, timeout=1)
            with contextlib.suppress(*DRIVER_ERRORS):
                await self._connection.close(timeout=1)
            self._drop()

    async def _serve(self) -> None:
        try:
            while self._queue:
                self._in_progress = self._take()
                await self._commit(self._in_progress)
                yields = min(len(self._in_progress), MAX_YIELDS)
                self._in_progress = ()
                for _ in range(yields):
                    await asyncio.sleep(0)
        except BaseException as error:
            self._stop(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._serve_task = None

    def _take(self) -> list[PendingOperation]:
        items, size = list[PendingOperation](), 0
        while self._queue and len(items) < MAX_BATCH_OPERATIONS:
            operation = self._queue[0].operation
            size += len(operation.said or b"") + sum([len(draft.raw) for draft in operation.drafts])
            if items and size > MAX_BATCH_BYTES:
                break
            item = self._queue.popleft()
            if not (item.future.done() and not item.patient):  # its caller already timed out
                items.append(item)
        return items

    async def _commit(self, items: Sequence[PendingOperation]) -> None:
        """Commit all operations in one transaction, with retries. An operation that cannot be stored fails
        alone."""
        is_in_doubt, pause = False, FIRST_BACKOFF_SECONDS
        while items:
            try:
                answers = await self._resolve_doubt() if is_in_doubt else None
                is_in_doubt = False
                if answers is None:  # a caller that got a timeout must not succeed later
                    items = [item for item in items if item.patient or not item.future.done()]
                    order, plain = order_operations([item.operation for item in items])
                    items = [items[at] for at in order]
                    answers = await self._send(items, plain) if items else "[]"
            except StoreError as error:  # connecting failed
                self._record_problem(error)
            except DRIVER_ERRORS as error:
                if is_connection_lost(error):
                    is_in_doubt = True
                    self._drop()
                elif not is_transient(error):
                    return await self._commit_one_by_one(items, error)
                if get_sqlstate(error) not in CONFLICT_STATES:
                    self._record_problem(error)
            else:
                return self._settle(items, answers)
            if self._closing:
                return self._fail(items, self._problem or StoreError("The database was closed."))
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)
            self._reject_late()
        return None

    def _settle(self, items: Sequence[PendingOperation], answers: str) -> None:
        self._problem = None
        for item, answer in zip(items, decode_results([item.operation for item in items], answers), strict=True):
            item.settle(answer)

    async def _connect(self) -> PostgresConnection:
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = self._connection = await self._database.connect(WRITER_SETTINGS)
        return connection

    async def _send(self, items: Sequence[PendingOperation], plain: int) -> str:
        """Return the results of a batch whose first `plain` operations are plain."""
        connection = await self._connect()
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

    async def _resolve_doubt(self) -> str | None:
        """Return the results of the batch in doubt, or None if it was not applied and never will be."""
        connection = await self._connect()
        sent = (self.name, self._number + 1)
        answers = await connection.fetchval(STATEMENTS["look_back"], *sent, timeout=STATEMENT_SECONDS + 5)
        self._number += 1
        return answers

    async def _commit_one_by_one(self, items: Sequence[PendingOperation], error: BaseException) -> None:
        """Commit the operations of an aborted batch one by one."""
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

    # ── Failures ──

    def _record_problem(self, error: BaseException) -> None:
        """Record that the server is unavailable, slow or full. New work is rejected immediately if the server is
        full, otherwise after a while."""
        reason = explain(error, self._database.url)
        if self._problem is None:
            logger.warning("%s", reason)
        self._problem = reason
        if isinstance(reason, StoreFull):
            self._reject((*self._in_progress, *self._queue), reason)
        self._watch()

    def _watch(self) -> None:
        if self._timeout_check is None:
            self._timeout_check = self._loop.call_later(TIMEOUT_CHECK_SECONDS, self._check_timeouts)

    def _check_timeouts(self) -> None:
        self._timeout_check = None
        self._reject_late()
        if self._in_progress or self._queue:
            self._watch()

    def _reject_late(self) -> None:
        """Reject impatient operations that waited too long. Those in a batch already sent are rejected only when
        the reply is late too."""
        now, where = self._loop.time(), redact_url(self._database.url)
        late = StoreError(f"{where} has been busy for {MAX_WAIT_SECONDS:.0f} s. Try again later.")
        self._reject([item for item in self._queue if item.until <= now], self._problem or late)
        if now - self._sent_at > MAX_WAIT_SECONDS:
            late = StoreError(
                f"{where} has not replied for {MAX_WAIT_SECONDS:.0f} s; the request may or may not have been "
                "applied. Try again later, with the same idempotency key if there is one."
            )
        elif self._sent_at < math.inf:
            return
        self._reject([item for item in self._in_progress if item.until <= now], self._problem or late)

    def _reject(self, items: Iterable[PendingOperation], reason: StoreError) -> None:
        for item in items:
            if not item.patient:
                item.fail(reason)

    def _stop(self, error: BaseException) -> None:
        """Stop all work, because the committed state is unknown or is not what was acknowledged."""
        lost = self._lost = StoreLost(
            f"A write to {redact_url(self._database.url)} could not be made durable: {error}. The engine has "
            "stopped. Start it again; it resumes from the database."
        )
        self._fail((*self._in_progress, *self._queue), lost)
        self._queue.clear()
        self._in_progress = ()
        self._on_lost(lost)

    def _fail(self, items: Sequence[PendingOperation], error: BaseException) -> None:
        for item in items:
            item.fail(error)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
