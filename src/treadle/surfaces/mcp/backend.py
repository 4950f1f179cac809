"""What the MCP server does for one caller, through operations. What it may not see does not exist for it."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.access import Principal
from treadle.domain.envelope import Event
from treadle.domain.errors import TreadleError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.transcript import (
    ApprovalItem,
    CallItem,
    Change,
    ItemAdded,
    ItemChanged,
    NoteItem,
    QuestionItem,
    TotalsChanged,
)
from treadle.operations import run_control, run_start, runs, sessions
from treadle.operations.operation import Operation, OperationClient, Q, R
from treadle.operations.run_tree import list_members

PARKED = ("approval", "answer", "interrupted", "unavailable", "quota", "budget")
"""What a run may wait for that can take long: a person, or an operator."""
LISTED = 50
"""Runs and sessions that the list of resources has: the newest."""


class NotPermitted(Exception):
    """The caller lacks a scope. It is told the same as for something that does not exist."""


class SkillPrompt(Struct, frozen=True):
    """An approved skill."""

    name: str
    description: str
    read: Callable[[], str]
    """Returns its instructions."""


class McpBackend:
    """The operations of one caller."""

    def __init__(
        self,
        client: OperationClient,
        principal: Principal,
        list_agents: Callable[[], Sequence[str]],
        list_skills: Callable[[], Sequence[SkillPrompt]],
    ) -> None:
        self._client = client
        self.principal = principal
        self._list_agents = list_agents
        self._list_skills = list_skills

    @property
    def agents(self) -> Sequence[str]:
        """The agents that the caller may send messages to."""
        if not self.principal.may("run"):
            return ()
        return [name for name in self._list_agents() if self.principal.sees(name)]

    @property
    def skills(self) -> Sequence[SkillPrompt]:
        """The approved skills of the home. A token that is limited to some agents sees none."""
        return self._list_skills() if self.principal.may("read") and self.principal.agents is None else ()

    async def start(self, agent: str, message: str, session: str | None) -> RunId:
        """Start a run and return its id."""
        request = run_start.StartRun(agent, run_start.NewRun(message, session))
        return (await self._call(run_start.START, request)).run_id

    def follow(self, run_id: RunId) -> AsyncGenerator[Event, None]:
        return self._client.events(run_id)

    async def cancel(self, run_id: str, reason: str) -> None:
        await self._call(run_control.CANCEL, run_control.StopRun(RunId(run_id), reason))

    async def cancel_quietly(self, run_id: str, reason: str) -> None:
        """Cancel a run that may have ended by now."""
        with suppress(TreadleError, NotPermitted):
            await self.cancel(run_id, reason)

    async def show(self, run_id: str, wait: float | None = None) -> runs.RunDetail:
        """Return a run. A caller that may only run sees the runs of its own user."""
        may_read = self.principal.may("read")
        shown = await self._call(runs.SHOW, runs.ShowRun(RunId(run_id), wait), scope="read" if may_read else "run")
        if not may_read and not self.principal.owns(shown.owner):
            raise NotPermitted
        return shown

    async def list_questions(self, run_id: RunId) -> list[tuple[RunId, runs.Question]]:
        """Return the open questions of a run and its child runs, if the caller may answer them."""
        if not (self.principal.may("read") and self.principal.may("approve")):
            return []
        found: list[tuple[RunId, runs.Question]] = []
        for member in await list_members(self._client, run_id, unfinished=True):
            if member.run.waiting_for == "answer":
                page = await self._call(runs.QUESTIONS, runs.OneRun(member.run.run_id))
                found += [(member.run.run_id, question) for question in page.items]
        return found

    async def answer(self, run_id: RunId, call_id: str, text: str) -> None:
        await self._call(run_control.ANSWER, run_control.AnswerQuestion(run_id, call_id, text))

    async def list_runs(self) -> Sequence[runs.RunView]:
        if not self.principal.may("read"):
            return ()
        return (await self._call(runs.LIST, runs.ListRuns(limit=LISTED))).items

    async def list_sessions(self) -> Sequence[sessions.SessionView]:
        if not self.principal.may("read"):
            return ()
        return (await self._call(sessions.LIST, sessions.ListSessions(limit=LISTED))).items

    async def read_session(self, session_id: str) -> dict[str, Any]:
        """Return a session and its runs with their messages and results."""
        shown = await self._call(sessions.SHOW, sessions.ShowSession(SessionId(session_id)))
        request = runs.ListRuns(session_id=SessionId(session_id), limit=LISTED)
        found = (await self._call(runs.LIST, request)).items
        details = [await self.show(run.run_id) for run in reversed(found)]
        return {"session": msgspec.to_builtins(shown), "runs": [msgspec.to_builtins(each) for each in details]}

    async def _call(self, operation: Operation[Q, R], request: Q, scope: Any = None) -> R:
        needed = operation.scopes if scope is None else (scope,)
        if needed and not self.principal.may(*needed):
            raise NotPermitted
        return await self._client.call(operation, request)


def list_progress(changes: Sequence[Change], steps: int) -> Iterator[str]:
    """Yield what to tell a client that waits for a run, which has seen this many steps."""
    for change in changes:
        match change:
            case TotalsChanged(totals) if totals.steps > steps:
                yield f"step {totals.steps}"
            case ItemAdded(item) | ItemChanged(item):
                match item:
                    case CallItem(state="running", name=name):
                        yield f"calls {name}"
                    case ApprovalItem(state="pending", name=name, reason=reason):
                        yield f"waits for an approval: {name} ({reason})"
                    case QuestionItem(state="open", question=question):
                        yield f"asks: {question}"
                    case NoteItem(topic="llm_retry", wake_at=float()):
                        yield "retries a model call"
                    case _:
                        pass
            case _:
                pass
