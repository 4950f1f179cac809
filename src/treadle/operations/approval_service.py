"""Answers of reviewers and users: approvals of tool calls, and questions of agents."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events import (
    ApprovalDecided,
    ApprovalRequested,
    ClarifyAnswered,
    ClarifyRequested,
    Decision,
    Delivery,
    Remember,
    RunEnd,
    RunQueued,
    ToolCallEnd,
    ToolCallError,
)
from treadle.domain.ids import ApprovalId, RunId
from treadle.domain.messages import make_sendable, user
from treadle.domain.modes import ApprovalMode
from treadle.domain.permissions import ApprovalRule, ConcernKind, is_exact_pattern
from treadle.domain.tools import ToolSpec
from treadle.operations.event_factory import DraftFactory
from treadle.operations.journal_pages import read_latest_step
from treadle.operations.mode_service import ModeService
from treadle.ports.approvals import ApprovalRecord, Approvals, Grant
from treadle.ports.journal import Journal, Runs
from treadle.ports.tool import InvalidArguments, Subjects, Toolbox
from treadle.ports.vault import Vault


class Answer(Struct, frozen=True):
    """A reviewer's answer to an approval."""

    decision: Decision
    arguments: str | None = None
    """Run the call with these arguments instead."""
    note: str = ""
    by: str = ""
    remember: Remember = "once"
    mode: ApprovalMode | None = None
    """The mode in which the session continues, with an approval; None: as it is. A plan is left for `ask`."""


class ApprovalService:
    def __init__(
        self,
        journal: Journal,
        runs: Runs,
        approvals: Approvals,
        tools: Toolbox,
        vault: Vault,
        drafts: DraftFactory,
        modes: ModeService,
    ) -> None:
        self._journal = journal
        self._runs = runs
        self._approvals = approvals
        self._tools = tools
        self._vault = vault
        self._drafts = drafts
        self._modes = modes

    async def decide(self, approval_id: ApprovalId, answer: Answer) -> int:
        """Decide an approval. Raise InvalidState if it is decided already."""
        record = await self._approvals.find(approval_id)
        if record.decision is not None:
            raise InvalidState(_describe_decision(record))
        if answer.arguments is not None and answer.decision == "deny":
            raise UsageError("A denied call does not run: pass edited arguments only with an approval.")
        if answer.decision == "approve" and answer.remember == "session":
            await self._check_remembered(record)
        if answer.arguments is not None and answer.remember == "session" and is_exact_pattern(record.pattern):
            raise UsageError(
                "Edited arguments cannot be remembered: the rule is for exactly the command as it was requested. "
                "Approve them once."
            )
        if answer.arguments is not None:
            self._check_edited(record.tool, answer.arguments)
        if self._vault.redactor.redact(answer.arguments or "").names:
            raise UsageError(
                "The edited arguments contain the value of a secret. Use its reference instead: {{vault:NAME}}."
            )
        if answer.decision == "approve":
            await self._change_mode(record, answer)
        decided = ApprovalDecided(
            approval_id=approval_id,
            decision=answer.decision,
            arguments=answer.arguments,
            note=_make_note_sendable(answer.note),
            by=answer.by,
            remember=answer.remember,
        )
        sequence = await self._answer(record.origin.run_id, decided, approval_id)
        if sequence is None:
            raise InvalidState(_describe_decision(await self._approvals.find(approval_id)))
        return sequence

    async def _change_mode(self, record: ApprovalRecord, answer: Answer) -> None:
        """Change the mode of the root's session, before the call runs in it. An approved plan ends plan mode."""
        request = await self.find_request(record)
        mode = answer.mode or ("ask" if request is not None and request.is_plan else None)
        if mode is None:
            return
        root = await self._runs.record(record.origin.run_id)
        while root.origin.parent_run_id is not None:
            root = await self._runs.record(root.origin.parent_run_id)
        await self._modes.change(root.origin.session_id, mode, answer.by)

    async def answer(self, run_id: RunId, call_id: str, text: str, by: str = "") -> int:
        """Answer a question of an agent. Raise InvalidState if it is answered already."""
        from treadle.operations.submissions import check_message

        check_message(user(text))
        if call_id not in {asked.call_id for asked in await self.questions(run_id)}:
            raise InvalidState(
                f"{run_id} has no open question {call_id}. `treadle runs show {run_id}` shows its state."
            )
        redacted = self._vault.redactor.redact(text).text
        sequence = await self._answer(
            run_id, ClarifyAnswered(call_id, make_sendable(redacted), by), f"answer/{call_id}"
        )
        if sequence is None:
            raise InvalidState(f"The question {call_id} of {run_id} is answered already.")
        return sequence

    async def explain_rule(self, approval_id: ApprovalId, pattern: str) -> str | None:
        """Return why a call would need an approval although its agent had a rule that allows the pattern; None if
        the rule would permit it. The agent's own `ask` rules and those of the run's ancestors decide first."""
        from treadle.core.tools.permissions import apply_all_rules, extend_rules

        record = await self._approvals.find(approval_id)
        [queued] = [event.data for event in await self._journal.read(record.origin.run_id, 0, 1)]
        assert isinstance(queued, RunQueued), f"{record.origin.run_id} begins with another event"
        if (destructive := await self.find_destruction(record)) is not None:
            return f"{destructive}, and no rule that a reviewer adds allows that"
        tool = self._tools.find(record.tool, queued.agent)
        spec, subjects = ToolSpec(record.tool, "", {}), Subjects(())
        if tool is not None:
            spec = tool.spec
            try:
                subjects = tool.subjects(tool.parse(record.arguments))
            except Exception as raised:  # tools may be third-party code
                return f"`{record.tool}` does not say what it would do: {type(raised).__name__}"
        rules = extend_rules(queued, ApprovalRule(record.tool, "auto", pattern))
        ruling = apply_all_rules(rules, spec, subjects)
        return None if ruling.verdict == "auto" else ruling.reason

    async def find_destruction(self, record: ApprovalRecord) -> str | None:
        """Return what the call of a pending approval would destroy, or None."""
        request = await self.find_request(record)
        return None if request is None else request.destructive

    async def _check_remembered(self, record: ApprovalRecord) -> None:
        """Raise UsageError if a call can be approved only once."""
        destructive = await self.find_destruction(record)
        if destructive is not None:
            raise UsageError(
                f"{record.approval_id} can be approved only once, because {destructive}. Approve it without "
                "remembering it."
            )
        if record.pattern is None:
            raise UsageError(
                f"{record.approval_id} can be approved only once: no rule matches such calls of `{record.tool}` "
                "and no others. Approve it without remembering it."
            )

    async def list_grants(self, run_id: RunId) -> Sequence[Grant]:
        """Return what was approved for the session of a run."""
        return await self._approvals.grants(run_id)

    async def revoke_grant(self, run_id: RunId, grant: Grant) -> None:
        """Remove what was approved for the session of a run: such calls are asked about again. Raise UsageError if
        there is no such grant."""
        if not await self._approvals.revoke(run_id, grant):
            raise UsageError(
                f"`{grant.tool} {grant.pattern}` is not allowed for this session. Nothing was removed."
            )

    async def find_concern(self, approval_id: ApprovalId) -> ConcernKind | None:
        """Return what the tool found on this machine that needs a reviewer, or None."""
        request = await self.find_request(await self._approvals.find(approval_id))
        return None if request is None else request.concern

    async def find_request(self, record: ApprovalRecord) -> ApprovalRequested | None:
        """Return the request of a pending approval. It belongs to the latest step of its run."""
        run = await self._runs.record(record.origin.run_id)
        for event in await read_latest_step(self._journal, record.origin.run_id, run.sequence):
            if isinstance(event.data, ApprovalRequested) and event.data.approval_id == record.approval_id:
                return event.data
        return None

    async def questions(self, run_id: RunId) -> Sequence[ClarifyRequested]:
        """Return the questions of a run that have no answer yet. They belong to calls of its latest step: the calls
        of earlier ones have results."""
        open_: dict[str, ClarifyRequested] = {}
        record = await self._runs.record(run_id)
        if record.outcome is not None:
            return ()
        for event in await read_latest_step(self._journal, run_id, record.sequence):
            match event.data:
                case ClarifyRequested(call_id) as asked:
                    open_[call_id] = asked
                case ClarifyAnswered(call_id):
                    open_.pop(call_id, None)
                case ToolCallEnd(call_id) | ToolCallError(call_id):
                    open_ = {key: asked for key, asked in open_.items() if call_id not in (key, asked.during)}
                case RunEnd():
                    open_.clear()
                case _:
                    pass
        return list(open_.values())

    def _check_edited(self, tool_name: str, arguments: str) -> None:
        tool = self._tools.find(tool_name)
        if tool is None:
            return  # the engine that has the tool checks them
        try:
            tool.parse(arguments)
        except InvalidArguments as error:
            raise UsageError(f"The edited arguments do not fit `{tool_name}`: {error}") from None

    async def _answer(self, run_id: RunId, event: Delivery, key: str) -> int | None:
        """Deliver an answer. Return None if another answer came first."""
        made = self._drafts.make(event)
        sequence = await self._journal.deliver(run_id, made, key)
        if sequence is None:
            raise InvalidState(f"{run_id} has ended and no longer waits for this answer.")
        [stored] = await self._journal.read(run_id, sequence - 1, 1)
        return sequence if stored.event_id == made.event_id else None


def _make_note_sendable(note: Any) -> Any:
    return make_sendable(note) if isinstance(note, str) else note  # other types are rejected with the other fields


def _describe_decision(record: ApprovalRecord) -> str:
    what = {"approve": "approved already", "deny": "denied already"}.get(record.decision or "", "no longer open")
    return f"{record.approval_id} (`{record.tool}` in {record.origin.run_id}) is {what}."
