"""Group commit for all runs: work that is ready is committed in one transaction and one fsync.

Work that raises a TreadleError fails alone; the rest of its group commits. When the disk is full, new work is
rejected and work in progress waits for space. When a commit cannot be made durable, everything stops: memory and
disk may differ, and a retry would hide that."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

import apsw

from treadle.domain.errors import StoreError, StoreLost, TreadleError
from treadle.stores.sqlite.connection import UNREADABLE, SqliteDatabase, explain
from treadle.stores.sqlite.file_watch import FileWatch
from treadle.stores.sqlite.transaction import OwnedRows, Transaction

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Work = Callable[[Transaction], Result]
"""Part of a transaction. It runs again if the transaction is retried."""
Look = Callable[[SqliteDatabase], Result]

RETRY_SECONDS = 0.5
"""Pause before a group is retried after the disk was full or the database locked."""


BAD_VALUE_ERRORS = (
    apsw.ConstraintError,
    apsw.TooBigError,
    apsw.MismatchError,
    ValueError,
    TypeError,
    OverflowError,
)
"""Errors that concern a single piece of work and not the disk. UnicodeEncodeError is one of them."""


class SqliteWriter(Protocol):
    """Runs work in the next group commit, or reads what is committed."""

    def write(self, work: Work[Result], then: Callable[[Result], None], patient: bool) -> "asyncio.Future[Result]":
        """Run the work in the next transaction. After the commit, call `then` on the event loop, in commit order.
        Patient work waits when the disk is full; other work fails with StoreFull."""
        ...

    def read(self, look: Look[Result]) -> "asyncio.Future[Result]": ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class PendingWork:
    """One piece of work on its way to the database."""

    work: Work[Any]
    then: Callable[[Any], None]
    patient: bool
    future: "asyncio.Future[Any]"
    result: Any = None
    error: BaseException | None = None
    done: bool = False
    """Committed or rejected for good: not run again, whatever happens to the rest of its group."""

    def settle(self) -> None:
        """Publish the result, then return it to the caller. A cancelled caller changes nothing: the work is
        committed."""
        if self.error is None:
            self.then(self.result)
            if not self.future.done():
                self.future.set_result(self.result)
        elif not self.future.done():
            self.future.set_exception(self.error)


def commit_group(database: SqliteDatabase, items: Sequence[PendingWork], owned: OwnedRows) -> None:
    """Run all work in one transaction. Work that raises a TreadleError fails alone.

    Raise if nothing was committed."""
    try:
        _commit_together(database, items, owned)
    except BAD_VALUE_ERRORS as error:  # a fault rather than a rejection; it may have left changes
        if len(items) == 1:
            items[0].error = error
        else:
            for item in items:
                commit_group(database, (item,), owned)
    for item in items:
        item.done = True


def _commit_together(database: SqliteDatabase, items: Sequence[PendingWork], owned: OwnedRows) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        owned.begin(database)
        transaction = Transaction(database, owned)
        for item in items:
            item.error = None
            try:
                item.result = item.work(transaction)
            except TreadleError as refusal:
                item.error = refusal
        transaction.finish()
        database.execute("COMMIT")
        owned.commit(database)
    except BaseException:
        owned.forget()
        with contextlib.suppress(apsw.Error):
            database.execute("ROLLBACK")
        raise


class ThreadWriter:
    """The writer of a database file, with one thread that commits and one that reads."""

    def __init__(
        self,
        connection: SqliteDatabase,
        reader: SqliteDatabase,
        path: str,
        on_lost: Callable[[StoreLost], None],
    ) -> None:
        self._connection = connection
        self._path = path
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[PendingWork | None] = SimpleQueue()
        self._owned = OwnedRows()
        self._lost: StoreLost | None = None
        self._files = FileWatch(path)
        self._closing = False
        self._reader = _Reader(reader, self._loop, path)
        self._thread = threading.Thread(target=self._serve, name="treadle-writer", daemon=True)
        self._thread.start()

    def write(self, work: Work[Result], then: Callable[[Result], None], patient: bool) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = self._loop.create_future()
        if self._lost is not None:
            future.set_exception(self._lost)
        elif self._closing:
            future.set_exception(StoreError(f"The database {self._path} has been closed."))
        else:
            self._queue.put(PendingWork(work, then, patient, future))
        return future

    def read(self, look: Look[Result]) -> "asyncio.Future[Result]":
        if self._lost is None and not self._closing and self._files.is_due():
            self.write(_check_only, _ignore, False).add_done_callback(_forget)
        return self._reader.read(look)

    async def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            await self._reader.close()
            if self._lost is not None:  # closing would delete the companion files of a database in its place
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._connection.close()

    def _serve(self) -> None:
        while (first := self._queue.get()) is not None:
            items = [first, *self._take()]
            if self._lost is None:
                self._commit(items)
            else:
                self._fail(items, self._lost)

    def _take(self) -> list[PendingWork]:
        """Return all queued work. The stop marker, which comes last, is put back."""
        items: list[PendingWork] = []
        while not self._queue.empty():
            item = self._queue.get()
            if item is None:
                self._queue.put(None)
                break
            items.append(item)
        return items

    def _commit(self, group: list[PendingWork]) -> None:
        while group:
            try:
                commit_group(self._connection, group, self._owned)
                self._files.check()
            except StoreLost as error:
                return self._lose(group, error)
            except apsw.FullError as error:
                reason = explain(error, self._path)
                group = self._refuse_new_work(self._settle_done(group), reason)
            except (apsw.BusyError, apsw.LockedError) as error:
                reason = explain(error, self._path)
                group = self._settle_done(group)
                logger.warning("%s is locked by another program; waiting for it", self._path)
            except BaseException as error:
                return self._stop(self._settle_done(group), error)
            else:
                return self._settle(group)
            if self._closing:
                return self._fail(group, reason)
            time.sleep(RETRY_SECONDS)
            group.extend(self._take())
        return None

    def _settle_done(self, group: list[PendingWork]) -> list[PendingWork]:
        """Settle the work that was committed before the group failed, and return the rest for a retry."""
        self._settle([item for item in group if item.done])
        return [item for item in group if not item.done]

    def _refuse_new_work(self, group: list[PendingWork], error: StoreError) -> list[PendingWork]:
        self._fail([item for item in group if not item.patient], error)
        return [item for item in group if item.patient]

    def _stop(self, group: list[PendingWork], error: BaseException) -> None:
        reason = explain(error, self._path) if isinstance(error, apsw.Error) else error
        lost = StoreLost(
            f"A write to {self._path} could not be made durable: {reason}. The engine has stopped. Start it again; "
            "it resumes from what is on disk."
        )
        self._lose(group, lost)

    def _lose(self, group: list[PendingWork], lost: StoreLost) -> None:
        """Accept nothing more. What was committed just now is not on record, so it fails too."""
        logger.error("%s", lost)
        self._lost = lost
        self._fail([*group, *self._take()], lost)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_lost, lost)

    def _fail(self, group: list[PendingWork], error: BaseException) -> None:
        for item in group:
            item.error = error
        self._settle(group)

    def _settle(self, group: list[PendingWork]) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed; the commit stands
            self._loop.call_soon_threadsafe(_settle_all, group)


async def verify_writable(writer: SqliteWriter) -> None:
    """Raise StoreError unless a write succeeds. It changes nothing."""

    def rewrite_version(transaction: Transaction) -> None:
        [(version,)] = transaction.db.execute("PRAGMA user_version").fetchall()
        transaction.db.execute(f"PRAGMA user_version = {int(version)}")

    await writer.write(rewrite_version, _ignore, False)


def _check_only(transaction: Transaction) -> None:
    """Write nothing: the files are checked after the commit."""


def _forget(checked: "asyncio.Future[None]") -> None:
    """Mark the error of a check as seen: the next write reports it."""
    checked.exception()


def _ignore(result: object) -> None:
    """Publish nothing."""


def _settle_all(group: list[PendingWork]) -> None:
    for item in group:
        item.settle()


class _Reader:
    """Reads on a connection and thread of its own, so that no commit waits for a reader."""

    def __init__(self, connection: SqliteDatabase, loop: asyncio.AbstractEventLoop, path: str) -> None:
        self._path = path
        self._closed = False
        self._connection = connection
        self._loop = loop
        self._queue: SimpleQueue[tuple[Look[Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="treadle-reader", daemon=True)
        self._thread.start()

    def read(self, look: Look[Result]) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = self._loop.create_future()
        if self._closed:
            future.set_exception(StoreError(f"The database {self._path} has been closed."))
        else:
            self._queue.put((look, future))
        return future

    async def close(self) -> None:
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            look, future = item
            try:
                answer, error = look(self._connection), None
            except BaseException as raised:
                answer, error = None, explain(raised, self._path) if isinstance(raised, UNREADABLE) else raised
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and the caller gone
                self._loop.call_soon_threadsafe(_answer, future, answer, error)


def _answer(future: "asyncio.Future[Any]", answer: Any, error: BaseException | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)


class InlineWriter:
    """A writer without threads, for a database in memory: the next turn of the event loop commits all work
    requested in this one. It works with simulated time and a seeded order."""

    def __init__(self, connection: SqliteDatabase, path: str = ":memory:") -> None:
        self.connection = connection
        self._path = path
        self._owned = OwnedRows()
        self._group: list[PendingWork] = []

    def write(self, work: Work[Result], then: Callable[[Result], None], patient: bool) -> "asyncio.Future[Result]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        if not self._group:
            loop.call_soon(self.commit)
        self._group.append(PendingWork(work, then, patient, future))
        return future

    def read(self, look: Look[Result]) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(look(self.connection))
        except TreadleError as error:
            future.set_exception(error)
        except UNREADABLE as error:
            future.set_exception(explain(error, self._path))
        return future

    def commit(self) -> None:
        group, self._group = self._group, []
        try:
            commit_group(self.connection, group, self._owned)
        except apsw.Error as error:
            for item in group:
                item.error = item.error if item.done else explain(error, self._path)
        _settle_all(group)

    async def close(self) -> None:
        self.connection.close()
