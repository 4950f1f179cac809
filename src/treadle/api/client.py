"""The asynchronous client of the HTTP API of `treadle serve`."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from treadle.api.result import RefusedCall, RefusedCalls, Result, list_refused_calls
from treadle.domain.envelope import Event
from treadle.domain.events import Decision, Remember, RunEnd, SteerMode
from treadle.domain.ids import ApprovalId, RunId, SessionId
from treadle.operations import approvals, runs, sessions
from treadle.operations.approvals import ApprovalView
from treadle.operations.attachments import Attachment
from treadle.operations.operation import Operation, Q, R, list_items
from treadle.operations.requested_run import Overrides
from treadle.operations.run_control import (
    ANSWER,
    CANCEL,
    FORK,
    INTERRUPT,
    RESUME,
    STEER,
    AnswerQuestion,
    ForkRun,
    SteerRun,
    StopRun,
)
from treadle.operations.run_start import START, NewRun, StartRun
from treadle.operations.runs import RunDetail, RunView
from treadle.operations.sessions import SessionView
from treadle.remote.caller import RemoteCaller
from treadle.remote.connection import Address, Connection, ServerGone

WAIT_SECONDS = 60.0
"""How long one request waits for the end of a run before it is sent again."""
MAX_BACKOFF_SECONDS = 10.0

_T = TypeVar("_T")
_Attempt = Callable[[], Awaitable[_T]]


class _Backoff:
    """Waits longer after each failure in a row, up to a total number of seconds."""

    def __init__(self, total_seconds: float) -> None:
        self._total_seconds = total_seconds
        self._delay = 0.1
        self._waited = 0.0

    def reset(self) -> None:
        self._delay, self._waited = 0.1, 0.0

    async def wait(self, error: ServerGone) -> None:
        """Wait before the next attempt. Raise the error if all attempts together have waited long enough."""
        if self._waited >= self._total_seconds:
            raise error
        await asyncio.sleep(self._delay)
        self._waited += self._delay
        self._delay = min(2 * self._delay, MAX_BACKOFF_SECONDS)


class AsyncClient:
    """A client of a Treadle server.

        async with treadle.AsyncClient("http://127.0.0.1:8420", token="trd_...") as client:
            async for event in client.stream("default", "What is in this folder?"):
                print(event.to_json())

    A stream that breaks is resumed: no durable event is missing or repeated. Errors of the server are raised as the
    exceptions that the library raises too. `call` performs any operation of the API."""

    def __init__(self, url: str, *, token: str | None = None, retry_seconds: float = 60.0) -> None:
        """Requests to a server that does not answer are retried for `retry_seconds`."""
        self._connection = Connection(Address(url=url.rstrip("/"), token=token))
        self._caller = RemoteCaller(self._connection)
        self._retry_seconds = retry_seconds

    async def __aenter__(self) -> "AsyncClient":
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.__aexit__()

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        """Perform an operation of `treadle.operations`. With an idempotency key, a repeated call returns the first
        response."""
        return await self._caller.call(operation, request, key=key)

    # ── Runs ──

    async def submit(
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
        ended = None if resumed_from is None else RunId(resumed_from)
        new = NewRun(
            message, session, tuple(attachments), overrides, after_current=after_current, resumed_from=ended
        )
        return (await self._caller.call(START, StartRun(agent, new), key=key)).run_id

    async def run(
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
        run_id = await self.submit(
            agent,
            message,
            session=session,
            attachments=attachments,
            overrides=overrides,
            key=key,
            after_current=after_current,
            resumed_from=resumed_from,
        )
        return await self.wait(run_id)

    async def stream(
        self, agent: str, message: str, *, session: str | None = None, overrides: Overrides | None = None
    ) -> AsyncGenerator[Event, None]:
        """Send a message to an agent and yield all events of its run, durable and live, up to `run_end`."""
        run_id = await self.submit(agent, message, session=session, overrides=overrides)
        async for event in self.events(run_id):
            yield event

    async def wait(self, run_id: str) -> Result:
        """Wait for the end of a run and return its result."""
        while True:
            found = await self._retry(lambda: self.call(runs.SHOW, runs.ShowRun(RunId(run_id), WAIT_SECONDS)))
            if found.result is not None:
                return read_result(found, *await self._list_refused_calls(found))

    async def _list_refused_calls(self, run: RunDetail) -> RefusedCalls:
        """Return the denied and the blocked calls. A run that completed at its first step had none."""
        if run.result is None or (run.outcome == "completed" and run.result.metrics.steps <= 1):
            return (), ()

        async def read() -> list[Event]:
            return [event async for event in self._caller.read_stored(run.run_id)]

        return list_refused_calls(await self._retry(read))

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the events of a run after a sequence, past and future, up to `run_end`.

        A broken connection is opened again. Live events of the time between are missing, durable ones are not."""
        last, failures = after, _Backoff(self._retry_seconds)
        while True:
            try:
                async with aclosing(self._caller.events(RunId(run_id), last)) as events:
                    async for event in events:
                        failures.reset()
                        if event.durable:
                            last = max(last, event.sequence)
                        yield event
                        if isinstance(event.data, RunEnd):
                            return
            except ServerGone as error:
                await failures.wait(error)

    async def show(self, run_id: str) -> RunDetail:
        """Return a run, with its result if it has ended."""
        return await self.call(runs.SHOW, runs.ShowRun(RunId(run_id)))

    async def list_runs(
        self, *, agent: str | None = None, session: str | None = None, limit: int = 50
    ) -> list[RunView]:
        """Return runs, newest first."""
        wanted = runs.ListRuns(agent, None if session is None else SessionId(session))
        return await list_items(self._caller, runs.LIST, wanted, limit)

    async def list_sessions(self, *, limit: int = 50, children: bool = False) -> list[SessionView]:
        """Return sessions, latest first; with `children`, also those of sub-agents."""
        return await list_items(self._caller, sessions.LIST, sessions.ListSessions(children=children), limit)

    # ── Acting on runs ──

    async def steer(self, run_id: str, message: str, mode: SteerMode = "steer") -> int:
        """Send a message to a run in progress. Return the sequence of the event."""
        return (await self.call(STEER, SteerRun(RunId(run_id), message, mode))).sequence

    async def interrupt(self, run_id: str) -> int:
        """Stop the work in progress. The run waits until it is resumed."""
        return (await self.call(INTERRUPT, StopRun(RunId(run_id)))).sequence

    async def resume(self, run_id: str) -> int:
        """Resume a run that waits."""
        return (await self.call(RESUME, runs.OneRun(RunId(run_id)))).sequence

    async def cancel(self, run_id: str) -> int:
        """Cancel a run."""
        return (await self.call(CANCEL, StopRun(RunId(run_id)))).sequence

    async def fork(
        self,
        run_id: str,
        *,
        step: int | None = None,
        model: str | None = None,
        message: str | None = None,
        agent: str | None = None,
    ) -> RunId:
        """Start a run that continues from a step of another run, and return its ID."""
        return (await self.call(FORK, ForkRun(RunId(run_id), step, model, message, agent))).run_id

    # ── Approvals and questions ──

    async def list_approvals(self, run_id: str | None = None) -> Sequence[ApprovalView]:
        """Return the approvals that wait for a decision, oldest first."""
        wanted = approvals.ListApprovals(None if run_id is None else RunId(run_id))
        return (await self.call(approvals.LIST, wanted)).items

    async def decide(
        self,
        approval_id: str,
        decision: Decision,
        *,
        arguments: dict[str, Any] | None = None,
        note: str = "",
        remember: Remember = "once",
    ) -> int:
        """Decide an approval, optionally with edited arguments."""
        request = approvals.DecideApproval(ApprovalId(approval_id), decision, arguments, note, remember)
        return (await self.call(approvals.DECIDE, request)).sequence

    async def answer(self, run_id: str, call_id: str, text: str) -> int:
        """Answer a question that an agent asked with `clarify`."""
        return (await self.call(ANSWER, AnswerQuestion(RunId(run_id), call_id, text))).sequence

    async def _retry(self, attempt: _Attempt[_T]) -> _T:
        """Read, and read again while the server does not answer."""
        failures = _Backoff(self._retry_seconds)
        while True:
            try:
                return await attempt()
            except ServerGone as error:
                await failures.wait(error)


def read_result(run: RunDetail, denied: Sequence[RefusedCall] = (), blocked: Sequence[RefusedCall] = ()) -> Result:
    """Return the result of a run that has ended."""
    assert run.result is not None, f"{run.run_id} has not ended"
    assert run.outcome is not None
    found = run.result
    return Result(
        run_id=run.run_id,
        session_id=run.session_id,
        status=run.status,
        outcome=run.outcome,
        text=found.text,
        metrics=found.metrics,
        output=None,
        reason=found.reason,
        next=found.next,
        stopped=found.stopped,
        unverified_claim=found.unverified_claim,
        score=found.score,
        score_reasons=found.score_reasons,
        diagnosis=found.diagnosis,
        denied=tuple(denied),
        blocked=tuple(blocked),
    )
