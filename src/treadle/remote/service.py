"""The service of another process."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event, from_json
from treadle.domain.events import ClarifyRequested, RunEnd, SteerMode
from treadle.domain.ids import ApprovalId, RunId, SessionId
from treadle.domain.messages import Message
from treadle.operations import Answer, EndedRun, Fork, Replayed, Submission, Ticket
from treadle.operations.schemas import (
    AnswerBody,
    ApprovalView,
    DecisionBody,
    Delivered,
    Page,
    Question,
    Reason,
    RunDetail,
    RunView,
    SessionDetail,
    SessionView,
    Steer,
    approval_record,
    run_record,
    segment_record,
    session_record,
)
from treadle.ports.approvals import ApprovalRecord
from treadle.ports.journal import ALL_RUNS, Placed, RunFilter, RunRecord
from treadle.ports.sessions import SegmentRecord, SessionRecord
from treadle.remote.connection import Connection

WAIT_SECONDS = 30
MOST = 500
"""On one page."""


class RemoteService:
    """Implements `service.Service` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._ask = connection

    # ── What can be done ──

    async def submit(self, submission: Submission) -> Ticket:
        return await self._ask.post("/v1/submissions", Ticket, submission)

    async def fork(self, fork: Fork) -> Ticket:
        return await self._ask.post("/v1/forks", Ticket, fork)

    async def steer(
        self, run_id: RunId, message: Message, mode: SteerMode = "queue", key: str | None = None
    ) -> int:
        return await self._deliver(f"/v1/runs/{run_id}/messages", Steer(message.text, mode), key)

    async def interrupt(self, run_id: RunId, reason: str = "Interrupted by the user.") -> int:
        return await self._deliver(f"/v1/runs/{run_id}/interrupt", Reason(reason))

    async def resume(self, run_id: RunId) -> int:
        return await self._deliver(f"/v1/runs/{run_id}/resume")

    async def cancel(self, run_id: RunId, reason: str = "asked for by the user") -> int:
        return await self._deliver(f"/v1/runs/{run_id}/cancel", Reason(reason))

    async def decide(self, approval_id: ApprovalId, answer: Answer) -> int:
        arguments: dict[str, Any] | None = (
            None if answer.arguments is None else msgspec.json.decode(answer.arguments)
        )
        body = DecisionBody(answer.decision, arguments, answer.note, answer.remember, answer.by)
        return await self._deliver(f"/v1/approvals/{approval_id}", body)

    async def answer(self, run_id: RunId, call_id: str, text: str, by: str = "") -> int:
        return await self._deliver(f"/v1/runs/{run_id}/answers/{call_id}", AnswerBody(text, by))

    async def _deliver(self, path: str, body: object = None, key: str | None = None) -> int:
        return (await self._ask.post(path, Delivered, body, key)).sequence

    # ── What happens ──

    async def wait(self, run_id: RunId) -> EndedRun:
        while (found := await self._ask.get(f"/v1/runs/{run_id}", RunDetail, wait=WAIT_SECONDS)).outcome is None:
            pass
        record = run_record(found)
        async with aclosing(self.stored(run_id, record.sequence - 1)) as events:
            async for event in events:
                if isinstance(event.data, RunEnd):
                    return record.origin, event.data
        raise AssertionError(f"the last event of {run_id} is its end")

    async def events(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        async with aclosing(self._ask.stream(f"/v1/runs/{run_id}/events", after=after)) as stream:
            async for _, data in stream:
                yield from_json(data)

    async def stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        last: int | None = after
        while last is not None:
            page = await self._ask.get(f"/v1/runs/{run_id}/journal", Page[msgspec.Raw], after=last, limit=MOST)
            for item in page.items:
                yield from_json(bytes(item))
            last = None if page.next is None else int(page.next)

    async def feed(
        self, after: int | None = None, agents: Sequence[str] | None = None
    ) -> AsyncGenerator[Placed, None]:
        path = "/v1/events" if agents is None or len(agents) != 1 else f"/v1/agents/{agents[0]}/events"
        async with aclosing(self._ask.stream(path, after=after)) as stream:
            async for position, data in stream:
                if position is not None:
                    yield Placed(int(position), from_json(data))

    # ── What there is ──

    async def run(self, run_id: RunId) -> RunRecord:
        return run_record(await self._ask.get(f"/v1/runs/{run_id}", RunDetail))

    async def runs(self, wanted: RunFilter = ALL_RUNS, limit: int = 50) -> Sequence[RunRecord]:
        found: list[RunRecord] = []
        before: str | None = wanted.before
        while len(found) < limit:
            page = await self._ask.get(
                "/v1/runs" if wanted.parent_run_id is None else f"/v1/runs/{wanted.parent_run_id}/children",
                Page[RunView],
                agent=wanted.agents[0] if wanted.agents else None,
                session_id=wanted.session_id,
                status=wanted.status,
                outcome=wanted.outcome,
                unfinished=wanted.unfinished or None,
                cursor=before,
                limit=min(MOST, limit - len(found)),
            )
            found += map(run_record, page.items)
            before = page.next
            if before is None:
                break
        return found

    async def unfinished(self) -> Sequence[RunRecord]:
        return list(reversed(await self.runs(RunFilter(unfinished=True), 2**31)))

    async def agent_of(self, run_id: RunId) -> AgentSpec:
        return await self._ask.get(f"/v1/runs/{run_id}/agent", AgentSpec)

    async def replay(self, run_id: RunId) -> Replayed:
        return await self._ask.get(f"/v1/runs/{run_id}/replay", Replayed)

    async def approvals(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        page = await self._ask.get("/v1/approvals", Page[ApprovalView], run_id=run_id)
        return [approval_record(view) for view in page.items]

    async def approval(self, approval_id: ApprovalId) -> ApprovalRecord:
        return approval_record(await self._ask.get(f"/v1/approvals/{approval_id}", ApprovalView))

    async def questions(self, run_id: RunId) -> Sequence[ClarifyRequested]:
        page = await self._ask.get(f"/v1/runs/{run_id}/questions", Page[Question])
        return [ClarifyRequested(asked.call_id, asked.question, asked.options) for asked in page.items]

    async def sessions(self, limit: int = 50, before: SessionId | None = None) -> Sequence[SessionRecord]:
        page = await self._ask.get("/v1/sessions", Page[SessionView], limit=min(MOST, limit), cursor=before)
        return [session_record(view) for view in page.items]

    async def session(self, session_id: SessionId) -> SessionRecord:
        return session_record(await self._ask.get(f"/v1/sessions/{session_id}", SessionDetail))

    async def segments(self, session_id: SessionId) -> Sequence[SegmentRecord]:
        found = await self._ask.get(f"/v1/sessions/{session_id}", SessionDetail)
        return [segment_record(view) for view in found.lineage]

    async def runs_of(self, session_id: SessionId) -> Sequence[RunRecord]:
        page = await self._ask.get(f"/v1/sessions/{session_id}/runs", Page[RunView])
        return [run_record(view) for view in page.items]
