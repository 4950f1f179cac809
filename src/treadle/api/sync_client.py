"""The client of the HTTP API of `treadle serve`, for programs without an event loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import aclosing
from queue import Queue
from typing import Any, TypeVar

from treadle.api.client import AsyncClient
from treadle.api.result import Result
from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.events import Decision, Remember, SteerMode
from treadle.domain.ids import RunId
from treadle.operations.approvals import ApprovalView
from treadle.operations.attachments import Attachment
from treadle.operations.operation import Operation, Q, R
from treadle.operations.requested_run import Overrides
from treadle.operations.runs import RunDetail, RunView
from treadle.operations.sessions import SessionView

_T = TypeVar("_T")


class Client:
    """A client of a Treadle server, for programs without an event loop. See `AsyncClient`.

    For example:

        with treadle.Client("http://127.0.0.1:8420", token="trd_...") as client:
            print(client.run("default", "What is in this folder?").text)
    """

    def __init__(self, url: str, *, token: str | None = None, retry_seconds: float = 60.0) -> None:
        self._client = AsyncClient(url, token=token, retry_seconds=retry_seconds)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.current_thread()

    def __enter__(self) -> "Client":
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="treadle-client", daemon=True)
        self._thread.start()
        self._do(self._client.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        loop = self._loop
        assert loop is not None
        self._do(self._client.__aexit__())
        self._loop = None
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        """Perform an operation of `treadle.operations`."""
        return self._do(self._client.call(operation, request, key=key))

    def submit(
        self,
        agent: str,
        message: str,
        *,
        session: str | None = None,
        attachments: Sequence[Attachment] = (),
        overrides: Overrides | None = None,
        key: str | None = None,
        after_current: bool = False,
        resumed_from: str | None = None,
    ) -> RunId:
        """Send a message to an agent and return the ID of its run.

        `after_current` starts a run of its own even if a run of the session waits. `resumed_from` names the ended
        run that it continues."""
        return self._do(
            self._client.submit(
                agent,
                message,
                session=session,
                attachments=attachments,
                overrides=overrides,
                key=key,
                after_current=after_current,
                resumed_from=resumed_from,
            )
        )

    def run(
        self,
        agent: str,
        message: str,
        *,
        session: str | None = None,
        attachments: Sequence[Attachment] = (),
        overrides: Overrides | None = None,
        key: str | None = None,
        after_current: bool = False,
        resumed_from: str | None = None,
    ) -> Result:
        """Send a message to an agent, wait for the end of its run and return the result."""
        run_id = self.submit(
            agent,
            message,
            session=session,
            attachments=attachments,
            overrides=overrides,
            key=key,
            after_current=after_current,
            resumed_from=resumed_from,
        )
        return self.wait(run_id)

    def stream(
        self, agent: str, message: str, *, session: str | None = None, overrides: Overrides | None = None
    ) -> Iterator[Event]:
        """Send a message to an agent and yield all events of its run, durable and live, up to `run_end`."""
        return self._iterate(self._client.stream(agent, message, session=session, overrides=overrides))

    def wait(self, run_id: str) -> Result:
        """Wait for the end of a run and return its result."""
        return self._do(self._client.wait(run_id))

    def events(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Yield the events of a run after a sequence, past and future, up to `run_end`."""
        return self._iterate(self._client.events(run_id, after))

    def show(self, run_id: str) -> RunDetail:
        """Return a run, with its result if it has ended."""
        return self._do(self._client.show(run_id))

    def list_runs(self, *, agent: str | None = None, session: str | None = None, limit: int = 50) -> list[RunView]:
        """Return runs, newest first."""
        return self._do(self._client.list_runs(agent=agent, session=session, limit=limit))

    def list_sessions(self, *, limit: int = 50, children: bool = False) -> list[SessionView]:
        """Return sessions, latest first."""
        return self._do(self._client.list_sessions(limit=limit, children=children))

    def steer(self, run_id: str, message: str, mode: SteerMode = "steer") -> int:
        """Send a message to a run in progress. Return the sequence of the event."""
        return self._do(self._client.steer(run_id, message, mode))

    def interrupt(self, run_id: str) -> int:
        """Stop the work in progress. The run waits until it is resumed."""
        return self._do(self._client.interrupt(run_id))

    def resume(self, run_id: str) -> int:
        """Resume a run that waits."""
        return self._do(self._client.resume(run_id))

    def cancel(self, run_id: str) -> int:
        """Cancel a run."""
        return self._do(self._client.cancel(run_id))

    def fork(
        self,
        run_id: str,
        *,
        step: int | None = None,
        model: str | None = None,
        message: str | None = None,
        agent: str | None = None,
    ) -> RunId:
        """Start a run that continues from a step of another run, and return its ID."""
        return self._do(self._client.fork(run_id, step=step, model=model, message=message, agent=agent))

    def list_approvals(self, run_id: str | None = None) -> Sequence[ApprovalView]:
        """Return the approvals that wait for a decision, oldest first."""
        return self._do(self._client.list_approvals(run_id))

    def decide(
        self,
        approval_id: str,
        decision: Decision,
        *,
        arguments: dict[str, Any] | None = None,
        note: str = "",
        remember: Remember = "once",
    ) -> int:
        """Decide an approval, optionally with edited arguments."""
        return self._do(
            self._client.decide(approval_id, decision, arguments=arguments, note=note, remember=remember)
        )

    def answer(self, run_id: str, call_id: str, text: str) -> int:
        """Answer a question that an agent asked with `clarify`."""
        return self._do(self._client.answer(run_id, call_id, text))

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._loop is None:
            work.close()
            raise UsageError("The client is not open. Use `with treadle.Client(…) as client:`.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _iterate(self, events: AsyncGenerator[Event, None]) -> Iterator[Event]:
        """Yield what an asynchronous generator yields. A consumer that stops early closes it."""
        if self._loop is None:
            raise UsageError("The client is not open. Use `with treadle.Client(…) as client:`.")
        queue: Queue[Event | BaseException | None] = Queue(maxsize=1000)

        async def pump() -> None:
            try:
                async with aclosing(events):
                    async for event in events:
                        await asyncio.to_thread(queue.put, event) if queue.full() else queue.put_nowait(event)
                queue.put(None)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                queue.put(error)

        pumping = asyncio.run_coroutine_threadsafe(pump(), self._loop)
        try:
            while (found := queue.get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            pumping.cancel()
