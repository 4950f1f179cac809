"""What a program reads about runs and does with them: the same methods, with the same results, on an engine in its
own process and on a server."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Unpack

from treadle.api.decisions import read_decision
from treadle.domain.errors import InvalidState
from treadle.domain.events import Decision, Remember, SteerMode
from treadle.domain.ids import ApprovalId, RunId, SessionId
from treadle.domain.labels import format_metadata
from treadle.domain.runs import OutcomeKind, Status
from treadle.operations import approvals, run_control, runs, sessions
from treadle.operations.approvals import ApprovalView
from treadle.operations.operation import Operation, Q, R, list_items
from treadle.operations.runs import Question, RunDetail, RunView
from treadle.operations.sessions import SessionDetail, SessionView

if TYPE_CHECKING:  # what only some programs use is imported when they do
    from treadle.api.agent import BroughtTool
    from treadle.api.client_tools import ClientTools
    from treadle.api.mcp_servers import McpMethods
    from treadle.api.suites import SuiteLike, SuiteOptions
    from treadle.domain.agents import AgentSpec
    from treadle.domain.evaluations import Evaluation
    from treadle.domain.transcript import AnswerItem, Item, MessageItem
    from treadle.operations.operation import OperationClient
    from treadle.operations.run_diff import RunDiff
    from treadle.operations.run_records import RunSteps
    from treadle.operations.runs import OpenCall
    from treadle.operations.usage import UsageLine
    from treadle.ports.accounts import UsageKey
    from treadle.replay.replay import Replayed


def read_client_tools(tools: "Sequence[BroughtTool]") -> "ClientTools | None":
    """Return the tools that a program brings to a run, if there are some."""
    if not tools:
        return None
    from treadle.api.client_tools import ClientTools

    return ClientTools(tools)


class RunMethods(ABC):
    """The methods that an engine and a client share."""

    def __init__(self) -> None:
        self._client_tools: dict[RunId, ClientTools] = {}
        """The tools that the program has brought to its runs."""

    @abstractmethod
    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        """Perform an operation of `treadle.operations`. With an idempotency key, a repeated call returns the first
        response."""

    @property
    def mcp(self) -> "McpMethods":
        """The MCP servers: to list, inspect and approve them."""
        from treadle.api.mcp_servers import McpMethods

        return McpMethods(self)

    # ── Reading ──

    async def show(self, run_id: str) -> RunDetail:
        """Return a run, with its result if it has ended."""
        return await self.call(runs.SHOW, runs.ShowRun(RunId(run_id)))

    async def list_runs(
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
        wanted = runs.ListRuns(
            agent=agent,
            session_id=None if session is None else SessionId(session),
            status=status,
            outcome=outcome,
            unfinished=unfinished,
            since=since,
            until=until,
            text=text,
            tag=_list_tags(tag),
            metadata=format_metadata(metadata or {}),
            user=user,
        )
        return await list_items(self, runs.LIST, wanted, limit)

    async def list_sessions(self, *, limit: int = 50, children: bool = False) -> list[SessionView]:
        """Return sessions, the latest first; with `children`, also those of sub-agents."""
        return await list_items(self, sessions.LIST, sessions.ListSessions(children=children), limit)

    async def show_session(self, session_id: str) -> SessionDetail:
        """Return a session."""
        return await self.call(sessions.SHOW, sessions.ShowSession(SessionId(session_id)))

    async def steps(self, run_id: str) -> "RunSteps":
        """Return the steps of a run: the model, the tokens, the time and the tool calls of each."""
        return await self.call(runs.STEPS, runs.OneRun(RunId(run_id)))

    async def transcript(self, run_id: str) -> "list[Item]":
        """Return the transcript of a run as people see it, with the text that is being written now."""
        from treadle.operations import transcripts

        items: list[Item] = []
        before: str | None = None
        while True:
            page = await self.call(transcripts.RUN, transcripts.ReadRunTranscript(RunId(run_id), before, limit=500))
            items[:0] = page.items
            if (before := page.next) is None:
                return items

    async def messages(self, session_id: str) -> "list[MessageItem | AnswerItem]":
        """Return the conversation of a session: the messages of the user and the texts of the agent."""
        from treadle.domain.transcript import AnswerItem, MessageItem
        from treadle.operations import transcripts

        items: list[MessageItem | AnswerItem] = []
        before: str | None = None
        while True:
            request = transcripts.ReadSessionTranscript(SessionId(session_id), before, limit=500)
            page = await self.call(transcripts.SESSION, request)
            items[:0] = [item for item in page.items if isinstance(item, MessageItem | AnswerItem)]
            if (before := page.next) is None:
                return items

    async def usage(
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
        from treadle.operations import usage_report

        first, last = (None if day is None else day.isoformat() for day in (since, until))
        request = usage_report.ShowUsage(by=by, since=first, until=last, tag=_list_tags(tag), user=user)
        return (await self.call(usage_report.SHOW, request)).items

    async def replay(self, run_id: str) -> "Replayed":
        """Replay a run with the current code, and return the first event that would differ. Nothing is changed."""
        from treadle.operations import replays

        return await self.call(replays.REPLAY, replays.ReplayRun(RunId(run_id)))

    async def compare(self, run_id: str, other_id: str) -> "RunDiff":
        """Return where two runs differ."""
        from treadle.operations import run_inspection

        return await self.call(run_inspection.DIFF, run_inspection.DiffRuns(RunId(run_id), RunId(other_id)))

    # ── Evaluations ──

    async def evaluate(self, *suites: "SuiteLike", **options: "Unpack[SuiteOptions]") -> "Evaluation":
        """Run the cases of suites, check what the agents did, record the results and return them. A suite is the
        name or the path of its file, or its content. On a server it needs a token with the scope `admin`."""
        from treadle.api.suites import evaluate_suites

        self._name_agent(options)
        return await evaluate_suites(self._operation_client, self._find_added_agent, suites, options)

    @property
    @abstractmethod
    def _operation_client(self) -> "OperationClient":
        """What performs operations and reads events."""

    def _name_agent(self, options: "SuiteOptions") -> None:  # noqa: B027 -- only an engine can run such agents
        """Put the name of an agent in the place of one that this program has defined, where it can run here."""

    def _find_added_agent(self, name: str) -> "AgentSpec | None":
        """Return an agent that only this program has, or None."""
        del name
        return None

    # ── Approvals and questions ──

    async def list_approvals(self, run_id: str | None = None) -> Sequence[ApprovalView]:
        """Return the approvals that wait for a decision, the oldest first."""
        wanted = approvals.ListApprovals(None if run_id is None else RunId(run_id))
        return (await self.call(approvals.LIST, wanted)).items

    async def list_questions(self, run_id: str) -> Sequence[Question]:
        """Return the questions of a run that have no answer yet."""
        return (await self.call(runs.QUESTIONS, runs.OneRun(RunId(run_id)))).items

    async def decide(
        self,
        approval_id: str,
        decision: Decision | bool,
        *,
        arguments: dict[str, Any] | None = None,
        note: str = "",
        by: str = "",
        remember: Remember = "once",
    ) -> int:
        """Decide an approval: `"approve"` or `"deny"`, optionally with edited arguments. Return the sequence of the
        event."""
        decision = read_decision(decision)
        request = approvals.DecideApproval(
            approval_id=ApprovalId(approval_id),
            decision=decision,
            arguments=arguments,
            note=note,
            remember=remember,
            by=by,
        )
        return (await self.call(approvals.DECIDE, request)).sequence

    async def answer(self, run_id: str, call_id: str, text: str) -> int:
        """Answer a question that an agent asked with `clarify`. Return the sequence of the event."""
        request = run_control.AnswerQuestion(RunId(run_id), call_id, text)
        return (await self.call(run_control.ANSWER, request)).sequence

    # ── Calls that the program runs ──

    async def list_client_calls(self, run_id: str) -> "Sequence[OpenCall]":
        """Return the calls of tools that the program brought for which the run waits."""
        from treadle.operations import client_calls

        return (await self.call(client_calls.LIST, runs.OneRun(RunId(run_id)))).items

    async def deliver_result(self, run_id: str, call_id: str, content: str, *, is_error: bool = False) -> int:
        """Deliver the result of a call that the program has run. Return the sequence of the event. A result is
        final: the same one again is accepted, another is refused."""
        from treadle.operations.client_calls import DELIVER, DeliverResult

        request = DeliverResult(RunId(run_id), call_id, content, is_error)
        return (await self.call(DELIVER, request)).sequence

    def _keep_client_tools(self, run_id: str, tools: "ClientTools | None") -> None:
        """Run the calls of these tools whenever the program waits for the run."""
        if tools is not None:
            self._client_tools[RunId(run_id)] = tools

    async def _run_client_calls(self, run_id: RunId, calls: "Sequence[OpenCall]") -> bool:
        """Run the calls whose code the program has brought, and deliver their results. Return whether there were
        some."""
        tools = self._client_tools.get(run_id)
        chosen = [] if tools is None else tools.select(calls)
        if tools is None or not chosen:
            return False
        from treadle.operations import client_calls

        for result in await tools.run(run_id, chosen):
            with suppress(InvalidState):  # another message came first
                await self._deliver(client_calls.DELIVER, result)
        return True

    async def _deliver(self, operation: Operation[Q, R], request: Q) -> R:
        return await self.call(operation, request)

    # ── Acting on runs ──

    async def steer(self, run_id: str, message: str, mode: SteerMode = "steer") -> int:
        """Send a message to a run in progress, for its next step or at once. Return the sequence of the event."""
        return (await self.call(run_control.STEER, run_control.SteerRun(RunId(run_id), message, mode))).sequence

    async def interrupt(self, run_id: str) -> int:
        """Stop the work in progress. The run waits until it is resumed. Return the sequence of the event."""
        return (await self.call(run_control.INTERRUPT, run_control.StopRun(RunId(run_id)))).sequence

    async def resume(self, run_id: str) -> int:
        """Resume a run that waits. Return the sequence of the event."""
        return (await self.call(run_control.RESUME, runs.OneRun(RunId(run_id)))).sequence

    async def cancel(self, run_id: str) -> int:
        """Cancel a run. Return the sequence of the event."""
        return (await self.call(run_control.CANCEL, run_control.StopRun(RunId(run_id)))).sequence


def _list_tags(tag: str | Sequence[str]) -> tuple[str, ...]:
    return (tag,) if isinstance(tag, str) else tuple(tag)
