"""The asynchronous client of the HTTP API of `treadle serve`."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from treadle.api.option_hints import refuse_unknown_options
from treadle.api.result import (
    OpenQuestion,
    RefusedCall,
    RefusedCalls,
    Result,
    Until,
    list_refused_calls,
    make_waiting_result,
)
from treadle.api.run_labels import read_metadata, read_tags
from treadle.api.run_methods import RunMethods, read_client_tools
from treadle.api.streams import RunStream, read_output, read_text
from treadle.bootstrap.databases import find_owner
from treadle.config.home import Home
from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.events import AgentWaiting, RunEnd, RunWaiting
from treadle.domain.ids import RunId
from treadle.domain.modes import ApprovalMode
from treadle.operations import runs
from treadle.operations.approvals import ApprovalView
from treadle.operations.attachments import Attachment
from treadle.operations.operation import Operation, Q, R, list_items
from treadle.operations.requested_run import Overrides
from treadle.operations.run_control import FORK, ForkRun
from treadle.operations.run_start import START, NewRun, StartRun
from treadle.operations.runs import RunDetail, RunView
from treadle.operations.schemas import BroughtTool as ToolOfClient
from treadle.remote.caller import RemoteCaller
from treadle.remote.connection import Address, Connection, ServerGone, address_of

if TYPE_CHECKING:
    from treadle.api.agent import BroughtTool

WAIT_SECONDS = 60.0
"""How long one request waits for the end of a run before it is sent again."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 4.0
"""The same, if what the run waits for is of interest too."""
MAX_BACKOFF_SECONDS = 10.0


class ClientOptions(TypedDict, total=False):
    """What one run on a server may change."""

    session: str | None
    """Continue this session; by default a new one begins."""
    attachments: Sequence[Attachment]
    overrides: Overrides | None
    key: str | None
    """An idempotency key: the same key returns the same run."""
    after_current: bool
    """Start a run of its own even if a run of the session waits."""
    resumed_from: str | None
    """The ended run that this one continues."""
    mode: ApprovalMode | None
    """The mode of the session from this message on; None: as it is."""
    user: str | None
    """The person whom the run is for."""
    tags: Sequence[str]
    metadata: Mapping[str, str]
    client_tools: "Sequence[BroughtTool]"
    """Tools that the program runs itself. A call of a function runs while the program waits for the run; the calls
    of a `ClientTool` are in the result, and `deliver_result` continues the run."""


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


def find_address(url: str | None, token: str | None) -> Address:
    """Return the address that a program gave, or the one of its environment, or the process that owns the home.
    Raise UsageError if there is none."""
    url, token = url or os.environ.get("TREADLE_URL"), token or os.environ.get("TREADLE_TOKEN")
    if url:
        return Address(url=url.rstrip("/"), token=token)
    home = Home.from_environment(os.environ)
    owned = find_owner(home)
    if owned is None or owned.socket is None:
        raise UsageError(
            f"There is no server on the home {home.path}. Start one with `treadle serve`, or give the URL of one: "
            'treadle.Client("http://127.0.0.1:8420", token="trd_…").'
        )
    return address_of(owned)


class AsyncClient(RunMethods):
    """A client of a Treadle server.

        async with treadle.AsyncClient("http://127.0.0.1:8420", token="trd_...") as client:
            async for event in client.stream("default", "What is in this folder?"):
                print(event.to_json())

    A stream that breaks is resumed: no durable event is missing or repeated. Errors of the server are raised as the
    exceptions that the library raises too. `call` performs any operation of the API."""

    def __init__(self, url: str | None = None, *, token: str | None = None, retry_seconds: float = 60.0) -> None:
        """By default the URL and the token are those of the variables TREADLE_URL and TREADLE_TOKEN. Without them
        the client connects to the process of this user that owns the home, such as `treadle serve`.

        Requests to a server that does not answer are retried for `retry_seconds`."""
        super().__init__()
        self._connection = Connection(find_address(url, token))
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

    @property
    def _operation_client(self) -> RemoteCaller:
        return self._caller

    # ── Runs ──

    async def submit(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> RunId:
        """Send a message to an agent and return the ID of its run."""
        refuse_unknown_options(options, ClientOptions)
        get, ended = options.get, options.get("resumed_from")
        brought = read_client_tools(options.get("client_tools", ()))
        declared = () if brought is None else brought.declared
        new = NewRun(
            message,
            get("session"),
            tuple(get("attachments", ())),
            get("overrides"),
            after_current=get("after_current", False),
            resumed_from=None if ended is None else RunId(ended),
            user=get("user"),
            tags=read_tags(get("tags", ())),
            metadata=read_metadata(get("metadata", {})),
            mode=get("mode"),
            client_tools=tuple([ToolOfClient(each.name, each.description, each.schema) for each in declared]),
        )
        run_id = (await self._caller.call(START, StartRun(agent, new), key=get("key"))).run_id
        self._keep_client_tools(run_id, brought)
        return run_id

    async def run(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> Result:
        """Send a message to an agent, wait for the end of its run and return the result."""
        return await self.wait(await self.submit(agent, message, **options))

    def stream(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> RunStream[Event]:
        """Send a message to an agent and yield all events of its run, durable and live, up to `run_end`."""
        start = partial(self.submit, agent, message, **options)
        return RunStream(start, self._events_with_client_calls, self.wait)

    def stream_text(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> RunStream[str]:
        """Send a message to an agent and yield the text that the model writes, as it writes it.

        It ends when the run ends or waits for people: `result` of the stream says which."""
        start = partial(self.submit, agent, message, **options)
        return RunStream(start, lambda run_id: read_text(self._events_until_paused(run_id)), self.wait)

    def stream_output(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> RunStream[Any]:
        """Send a message to an agent with an `output` and yield its answer while it is written: plain lists and
        dictionaries that grow. The last one is the whole answer.

        Do not change the values: they share their parts. Without an `output` there are none."""
        start = partial(self.submit, agent, message, **options)
        return RunStream(start, lambda run_id: read_output(self._events_until_paused(run_id)), self.wait)

    async def _events_until_paused(self, run_id: RunId) -> AsyncGenerator[Event, None]:
        async with aclosing(self.events(run_id)) as events:
            async for event in events:
                yield event
                if isinstance(event.data, RunWaiting | AgentWaiting) and await self._must_pause(run_id):
                    return

    async def _must_pause(self, run_id: RunId) -> bool:
        """Return whether the run waits for people, or for results that do not come by themselves."""
        found = await self._retry(partial(self.show, run_id))
        if found.client_calls:
            return not await self._run_client_calls(run_id, found.client_calls)
        return any(await self._retry(partial(self._list_asked, found)))

    async def _events_with_client_calls(self, run_id: RunId) -> AsyncGenerator[Event, None]:
        """Yield the events of a run, and run the calls whose code the program has brought."""
        async with aclosing(self.events(run_id)) as events:
            async for event in events:
                yield event
                if isinstance(event.data, RunWaiting) and event.data.reason == "client_tool":
                    calls = await self._retry(partial(self.list_client_calls, run_id))
                    await self._run_client_calls(run_id, calls)

    async def wait(
        self, run_id: str, *, until: Until = "asked", client_tools: "Sequence[BroughtTool]" = ()
    ) -> Result:
        """Wait until a run ends, or until it waits for people, and return its result. With `until="ended"`, wait
        until others have decided and the run has ended. Calls of `client_tools` that are functions run here, if the
        run was started with tools of these names."""
        seconds = FIRST_WAIT_SECONDS
        self._keep_client_tools(run_id, read_client_tools(client_tools))
        while True:
            found = await self._retry(partial(self.call, runs.SHOW, runs.ShowRun(RunId(run_id), seconds)))
            if found.result is not None:
                self._client_tools.pop(found.run_id, None)
                return read_result(found, *await self._list_refused_calls(found))
            if await self._run_client_calls(found.run_id, found.client_calls):
                seconds = FIRST_WAIT_SECONDS
                continue
            if until == "asked":
                approvals, questions = await self._retry(partial(self._list_asked, found))
                if approvals or questions or found.client_calls:
                    return make_waiting_result(found.origin, approvals, questions, found.client_calls)
                seconds = min(2 * seconds, LONGEST_WAIT_SECONDS)
            else:
                seconds = WAIT_SECONDS

    async def _list_asked(self, run: RunView) -> tuple[list[ApprovalView], list[OpenQuestion]]:
        """Return the approvals and the answers for which the run, or a run below it, waits."""
        requests: list[ApprovalView] = []
        questions: list[OpenQuestion] = []
        match run.waiting_for:
            case "approval":
                requests += await self.list_approvals(run.run_id)
            case "answer":
                questions += [
                    OpenQuestion(run.run_id, each.call_id, each.question, each.options)
                    for each in await self.list_questions(run.run_id)
                ]
            case "child":
                for child in await list_items(self, runs.CHILDREN, runs.ListChildren(run.run_id, unfinished=True)):
                    found = await self._list_asked(child)
                    requests += found[0]
                    questions += found[1]
            case _:
                pass
        return requests, questions

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

    async def _deliver(self, operation: Operation[Q, R], request: Q) -> R:
        return await self._retry(partial(self.call, operation, request))  # the same result again is accepted

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
