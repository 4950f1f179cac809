"""What people are asked, and their answers: approvals of calls, and questions that agents put to them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events import (
    ApprovalDecided,
    ClarifyAnswered,
    ClarifyRequested,
    Decision,
    Delivery,
    Remember,
    RunEnd,
    ToolCallEnd,
    ToolCallError,
)
from treadle.domain.ids import ApprovalId, RunId
from treadle.domain.messages import make_sendable, user
from treadle.operations.event_factory import Drafts
from treadle.operations.journal_pages import stored_events
from treadle.operations.submissions import check_message
from treadle.ports.approvals import ApprovalRecord, Approvals
from treadle.ports.journal import Journal
from treadle.ports.tool import InvalidArguments, Toolbox
from treadle.ports.vault import Vault


class Answer(Struct, frozen=True):
    """A person's answer to an approval."""

    decision: Decision
    arguments: str | None = None
    """Run it with these instead."""
    note: str = ""
    by: str = ""
    remember: Remember = "once"


class People:
    def __init__(
        self, journal: Journal, approvals: Approvals, tools: Toolbox, vault: Vault, drafts: Drafts
    ) -> None:
        self._journal = journal
        self._approvals = approvals
        self._tools = tools
        self._vault = vault
        self._drafts = drafts

    async def decide(self, approval_id: ApprovalId, answer: Answer) -> int:
        """Answer an approval. There is one answer: a second one raises InvalidState."""
        record = await self._approvals.find(approval_id)
        if record.decision is not None:
            raise InvalidState(_decided_already(record))
        if answer.arguments is not None and answer.decision == "deny":
            raise UsageError("A call that is denied does not run: give other arguments only to approve it.")
        if answer.arguments is not None:
            self._check_edited(record.tool, answer.arguments)
        if self._vault.redactor.redact(answer.arguments or "").names:
            raise UsageError("The edited arguments hold the value of a secret; use its handle: {{vault:NAME}}.")
        decided = ApprovalDecided(
            approval_id, answer.decision, answer.arguments, _sendable(answer.note), answer.by, answer.remember
        )
        sequence = await self._answer(record.origin.run_id, decided, approval_id)
        if sequence is None:
            raise InvalidState(_decided_already(await self._approvals.find(approval_id)))
        return sequence

    async def answer(self, run_id: RunId, call_id: str, text: str, by: str = "") -> int:
        """Answer a question that an agent asked. There is one answer: a second one raises InvalidState."""
        check_message(user(text))
        if call_id not in {asked.call_id for asked in await self.questions(run_id)}:
            raise InvalidState(
                f"{run_id} has no open question {call_id}. `treadle runs show {run_id}` shows its state."
            )
        told = self._vault.redactor.redact(text).text
        sequence = await self._answer(
            run_id, ClarifyAnswered(call_id, make_sendable(told), by), f"answer/{call_id}"
        )
        if sequence is None:
            raise InvalidState(f"The question {call_id} of {run_id} was answered by somebody else.")
        return sequence

    async def approvals(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        """What waits for a decision, of one run or of all."""
        return await self._approvals.pending(run_id)

    async def approval(self, approval_id: ApprovalId) -> ApprovalRecord:
        return await self._approvals.find(approval_id)

    async def questions(self, run_id: RunId) -> Sequence[ClarifyRequested]:
        """What a run has asked and nobody has answered."""
        open_: dict[str, ClarifyRequested] = {}
        async for event in stored_events(self._journal, run_id):
            match event.data:
                case ClarifyRequested(call_id) as asked:
                    open_[call_id] = asked
                case ClarifyAnswered(call_id) | ToolCallEnd(call_id) | ToolCallError(call_id):
                    open_.pop(call_id, None)
                case RunEnd():
                    open_.clear()
                case _:
                    pass
        return list(open_.values())

    def _check_edited(self, tool_name: str, arguments: str) -> None:
        tool = self._tools.find(tool_name)
        if tool is None:
            return  # its own engine will look at them
        try:
            tool.parse(arguments)
        except InvalidArguments as error:
            raise UsageError(f"The edited arguments do not fit `{tool_name}`: {error}") from None

    async def _answer(self, run_id: RunId, event: Delivery, key: str) -> int | None:
        """Deliver an answer; None when somebody else's came first."""
        made = self._drafts.make(event)
        sequence = await self._journal.deliver(run_id, made, key)
        if sequence is None:
            raise InvalidState(f"{run_id} has ended: nobody waits for this answer any more.")
        [stored] = await self._journal.read(run_id, sequence - 1, 1)
        return sequence if stored.event_id == made.event_id else None


def _sendable(note: Any) -> Any:
    return make_sendable(note) if isinstance(note, str) else note  # and what is no text is refused with the rest


def _decided_already(record: ApprovalRecord) -> str:
    what = {"approve": "approved already", "deny": "denied already"}.get(record.decision or "", "no longer open")
    return f"{record.approval_id} (`{record.tool}` in {record.origin.run_id}) is {what}."
