"""The client of the HTTP API of `treadle serve`, for programs without an event loop."""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from treadle.api.client import AsyncClient, ClientOptions
from treadle.api.loop_thread import LoopThread
from treadle.api.result import Result, Until
from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.events import Decision, Remember, SteerMode
from treadle.domain.ids import RunId
from treadle.domain.runs import OutcomeKind, Status
from treadle.operations.approvals import ApprovalView
from treadle.operations.operation import Operation, Q, R
from treadle.operations.runs import OpenCall, Question, RunDetail, RunView
from treadle.operations.sessions import SessionDetail, SessionView

if TYPE_CHECKING:
    from treadle.api.agent import BroughtTool
    from treadle.api.mcp_servers import McpMethodsSync
    from treadle.api.suites import SuiteLike, SuiteOptions
    from treadle.domain.evaluations import Evaluation
    from treadle.domain.transcript import AnswerItem, Item, MessageItem
    from treadle.operations.run_diff import RunDiff
    from treadle.operations.run_records import RunSteps
    from treadle.operations.usage import UsageLine
    from treadle.ports.accounts import UsageKey
    from treadle.replay.replay import Replayed

_T = TypeVar("_T")


class Client:
    """A client of a Treadle server, for programs without an event loop. See `AsyncClient`.

    For example:

        with treadle.Client("http://127.0.0.1:8420", token="trd_...") as client:
            print(client.run("default", "What is in this folder?").text)
    """

    def __init__(self, url: str | None = None, *, token: str | None = None, retry_seconds: float = 60.0) -> None:
        self._client = AsyncClient(url, token=token, retry_seconds=retry_seconds)
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        self._thread = LoopThread("treadle-client")
        self._do(self._client.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.do(self._client.__aexit__())
            finally:
                thread.close()

    def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        """Perform an operation of `treadle.operations`."""
        return self._do(self._client.call(operation, request, key=key))

    def submit(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> RunId:
        """Send a message to an agent and return the ID of its run."""
        return self._do(self._client.submit(agent, message, **options))

    def run(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> Result:
        """Send a message to an agent, wait for the end of its run and return the result."""
        return self.wait(self.submit(agent, message, **options))

    def stream(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> Iterator[Event]:
        """Send a message to an agent and yield all events of its run, durable and live, up to `run_end`."""
        return self._open_thread.iterate(self._client.stream(agent, message, **options))

    def stream_text(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> Iterator[str]:
        """Send a message to an agent and yield the text that the model writes, as it writes it."""
        return self._open_thread.iterate(self._client.stream_text(agent, message, **options))

    def stream_output(self, agent: str, message: str, **options: Unpack[ClientOptions]) -> Iterator[Any]:
        """Send a message to an agent with an `output` and yield its answer while it is written: plain lists and
        dictionaries that grow. The last one is the whole answer."""
        return self._open_thread.iterate(self._client.stream_output(agent, message, **options))

    def wait(self, run_id: str, *, until: Until = "asked", client_tools: "Sequence[BroughtTool]" = ()) -> Result:
        """Wait until a run ends, or until it waits for people, and return its result. Calls of `client_tools` that
        are functions run here."""
        return self._do(self._client.wait(run_id, until=until, client_tools=client_tools))

    def list_client_calls(self, run_id: str) -> Sequence[OpenCall]:
        """Return the calls of tools that the program brought for which the run waits."""
        return self._do(self._client.list_client_calls(run_id))

    def deliver_result(self, run_id: str, call_id: str, content: str, *, is_error: bool = False) -> int:
        """Deliver the result of a call that the program has run. Return the sequence of the event."""
        return self._do(self._client.deliver_result(run_id, call_id, content, is_error=is_error))

    def events(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """Yield the events of a run after a sequence, past and future, up to `run_end`."""
        return self._open_thread.iterate(self._client.events(run_id, after))

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

    @property
    def mcp(self) -> "McpMethodsSync":
        """The MCP servers: to list, inspect and approve them."""
        from treadle.api.mcp_servers import McpMethodsSync

        return McpMethodsSync(self._client.mcp, self._do)

    def show(self, run_id: str) -> RunDetail:
        """Return a run, with its result if it has ended."""
        return self._do(self._client.show(run_id))

    def list_runs(
        self,
        *,
        agent: str | None = None,
        session: str | None = None,
        status: Status | None = None,
        outcome: OutcomeKind | None = None,
        unfinished: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        tag: str | Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
        limit: int = 50,
    ) -> list[RunView]:
        """Return matching runs, the newest first. `text` is part of the message that a run answers. Runs have all
        of the tags and of the metadata."""
        return self._do(
            self._client.list_runs(
                agent=agent,
                session=session,
                status=status,
                outcome=outcome,
                unfinished=unfinished,
                since=since,
                until=until,
                text=text,
                tag=tag,
                metadata=metadata,
                user=user,
                limit=limit,
            )
        )

    def list_sessions(self, *, limit: int = 50, children: bool = False) -> list[SessionView]:
        """Return sessions, the latest first; with `children`, also those of sub-agents."""
        return self._do(self._client.list_sessions(limit=limit, children=children))

    def show_session(self, session_id: str) -> SessionDetail:
        """Return a session."""
        return self._do(self._client.show_session(session_id))

    def steps(self, run_id: str) -> "RunSteps":
        """Return the steps of a run: the model, the tokens, the time and the tool calls of each."""
        return self._do(self._client.steps(run_id))

    def transcript(self, run_id: str) -> "list[Item]":
        """Return the transcript of a run as people see it, with the text that is being written now."""
        return self._do(self._client.transcript(run_id))

    def messages(self, session_id: str) -> "list[MessageItem | AnswerItem]":
        """Return the conversation of a session: the messages of the user and the texts of the agent."""
        return self._do(self._client.messages(session_id))

    def usage(
        self,
        *,
        by: "UsageKey" = "agent",
        since: date | None = None,
        until: date | None = None,
        tag: str | Sequence[str] = (),
        user: str | None = None,
    ) -> "Sequence[UsageLine]":
        """Return what was used between two days in UTC, by agent, token, model, user, tag or day. A run with two
        tags counts for both."""
        return self._do(self._client.usage(by=by, since=since, until=until, tag=tag, user=user))

    def replay(self, run_id: str) -> "Replayed":
        """Replay a run with the current code, and return the first event that would differ. Nothing is changed."""
        return self._do(self._client.replay(run_id))

    def compare(self, run_id: str, other_id: str) -> "RunDiff":
        """Return where two runs differ."""
        return self._do(self._client.compare(run_id, other_id))

    def evaluate(self, *suites: "SuiteLike", **options: "Unpack[SuiteOptions]") -> "Evaluation":
        """Run the cases of suites, check what the agents did, record the results and return them. A suite is the
        name or the path of its file, or its content. It needs a token with the scope `admin`."""
        return self._do(self._client.evaluate(*suites, **options))

    def list_approvals(self, run_id: str | None = None) -> Sequence[ApprovalView]:
        """Return the approvals that wait for a decision, the oldest first."""
        return self._do(self._client.list_approvals(run_id))

    def list_questions(self, run_id: str) -> Sequence[Question]:
        """Return the questions of a run that have no answer yet."""
        return self._do(self._client.list_questions(run_id))

    def decide(
        self,
        approval_id: str,
        decision: Decision | bool,
        *,
        arguments: dict[str, Any] | None = None,
        note: str = "",
        by: str = "",
        remember: Remember = "once",
    ) -> int:
        """Decide an approval, optionally with edited arguments. Return the sequence of the event."""
        return self._do(
            self._client.decide(approval_id, decision, arguments=arguments, note=note, by=by, remember=remember)
        )

    def answer(self, run_id: str, call_id: str, text: str) -> int:
        """Answer a question that an agent asked with `clarify`. Return the sequence of the event."""
        return self._do(self._client.answer(run_id, call_id, text))

    def steer(self, run_id: str, message: str, mode: SteerMode = "steer") -> int:
        """Send a message to a run in progress, for its next step or at once. Return the sequence of the event."""
        return self._do(self._client.steer(run_id, message, mode))

    def interrupt(self, run_id: str) -> int:
        """Stop the work in progress. The run waits until it is resumed. Return the sequence of the event."""
        return self._do(self._client.interrupt(run_id))

    def resume(self, run_id: str) -> int:
        """Resume a run that waits. Return the sequence of the event."""
        return self._do(self._client.resume(run_id))

    def cancel(self, run_id: str) -> int:
        """Cancel a run. Return the sequence of the event."""
        return self._do(self._client.cancel(run_id))

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._thread is None:
            work.close()
        return self._open_thread.do(work)

    @property
    def _open_thread(self) -> LoopThread:
        if self._thread is None:
            raise UsageError("The client is not open. Use `with treadle.Client(…) as client:`.")
        return self._thread
