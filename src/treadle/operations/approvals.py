"""Approvals: tool calls that wait for a decision."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from treadle.domain.errors import UsageError
from treadle.domain.events import Decision, Remember
from treadle.domain.ids import AgentId, ApprovalId, RunId, SessionId
from treadle.domain.modes import ApprovalMode
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import Workspace
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.refusal import show_workspace
from treadle.operations.schemas import Delivered, Page, maybe, moment
from treadle.ports.approvals import ApprovalRecord

if TYPE_CHECKING:
    from treadle.operations.approval_service import Answer


class ApprovalView(Struct, frozen=True):
    """A tool call that waits, or waited, for a decision.

    For example:

        def decide(call: treadle.ApprovalView) -> bool:
            return call.tool == "bash" and call.named_arguments["command"].startswith("git ")

        agent = treadle.Agent(name="helper", model="provider/model-id", approvals={"default": "ask"})
        result = treadle.Engine("sqlite:///helper.db").run_sync(agent, "Hello.", on_approval=decide)
        print(result.text)
    """

    approval_id: ApprovalId
    run_id: RunId
    session_id: SessionId
    agent_id: AgentId
    parent_run_id: RunId | None
    call_id: str
    tool: str
    arguments: str
    """As JSON text: exactly what would run."""
    reason: str
    pattern: str | None
    requested_at: datetime
    expires_at: datetime | None
    decision: Literal["approve", "deny", "expired"] | None
    owner: UserId = LOCAL_USER
    """The user that its run is for."""
    agent: str = ""
    """The name of its agent."""
    summary: str = ""
    """The beginning of the message that the run answers."""
    destructive: str | None = None
    """What the call would destroy. It can be approved only once."""
    is_plan: bool = False
    """The call shows a plan: its approval ends plan mode."""
    workspace: Workspace | None = None
    """The folder in which its run works, and its workspace. Null: it is not known, or the caller is not an
    administrator."""

    @property
    def named_arguments(self) -> dict[str, Any]:
        """The arguments by their names."""
        return msgspec.json.decode(self.arguments, type=dict[str, Any])


class ListApprovals(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId | None = None


class ShowApproval(Struct, frozen=True, forbid_unknown_fields=True):
    approval_id: ApprovalId


class DecideApproval(Struct, frozen=True, forbid_unknown_fields=True):
    approval_id: ApprovalId
    decision: Decision
    arguments: dict[str, Any] | None = None
    """Run it with these arguments instead."""
    note: Annotated[str, Meta(max_length=10_000)] = ""
    remember: Remember = "once"
    mode: ApprovalMode | None = None
    """The mode in which the session continues, with an approval. Null: as it is; after a plan, `ask`."""
    by: Annotated[str, Meta(max_length=200)] = ""
    """Who decides; by default, the caller."""


LIST = Operation(
    "approvals.list",
    "GET",
    "/v1/approvals",
    scope="read",
    also="approve",
    request=ListApprovals,
    response=Page[ApprovalView],
    errors=(404,),
)
SHOW = Operation(
    "approvals.show",
    "GET",
    "/v1/approvals/{approval_id}",
    scope="read",
    also="approve",
    request=ShowApproval,
    response=ApprovalView,
    errors=(404,),
)
DECIDE = Operation(
    "approvals.decide",
    "POST",
    "/v1/approvals/{approval_id}",
    scope="approve",
    request=DecideApproval,
    response=Delivered,
    errors=(404, 409, 422),
)


@LIST.handler
async def list_approvals(context: Context, request: ListApprovals) -> Page[ApprovalView]:
    """List the approvals that wait for a decision.

    The oldest first."""
    of_run = None if request.run_id is None else (await context.visible_run(request.run_id)).origin.run_id
    found = await context.service.approvals(of_run)
    return Page(tuple([await _make_view(context, record) for record in found if context.sees(record)]))


@SHOW.handler
async def show_approval(context: Context, request: ShowApproval) -> ApprovalView:
    """Get an approval."""
    return await _make_view(context, await context.visible_approval(request.approval_id))


@DECIDE.handler
async def decide_approval(context: Context, request: DecideApproval) -> Delivered:
    """Decide an approval, once."""
    from treadle.operations.approval_service import Answer

    record = await context.visible_approval(request.approval_id)
    await context.addressed_run(record.origin.run_id)
    edited = None if request.arguments is None else msgspec.json.encode(request.arguments).decode()
    by = context.resolve_signer(request.by)
    answer = Answer(
        decision=request.decision,
        arguments=edited,
        note=request.note,
        by=by,
        remember=request.remember,
        mode=request.mode,
    )
    return Delivered(await context.service.decide(record.approval_id, answer))


def decision_of(approval_id: ApprovalId, answer: "Answer") -> DecideApproval:
    """Return the request that gives an answer. Raises UsageError for edited arguments that are not a JSON
    object."""
    try:
        arguments = None if answer.arguments is None else msgspec.json.decode(answer.arguments, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"The edited arguments are not a JSON object: {error}. Edit them again.") from None
    return DecideApproval(
        approval_id=approval_id,
        decision=answer.decision,
        arguments=arguments,
        note=answer.note,
        remember=answer.remember,
        mode=answer.mode,
        by=answer.by,
    )


async def _make_view(context: Context, record: ApprovalRecord) -> ApprovalView:
    origin, is_pending = record.origin, record.decision is None
    request = await context.service.approval_service.find_request(record) if is_pending else None
    return ApprovalView(
        approval_id=record.approval_id,
        run_id=origin.run_id,
        session_id=origin.session_id,
        agent_id=origin.agent_id,
        parent_run_id=origin.parent_run_id,
        call_id=record.call_id,
        tool=record.tool,
        arguments=record.arguments,
        reason=record.reason,
        pattern=record.pattern,
        requested_at=moment(record.requested_at),
        expires_at=maybe(record.expires_at),
        decision=record.decision,
        agent=record.agent,
        summary=record.message,
        owner=record.owner,
        destructive=None if request is None else request.destructive,
        is_plan=request is not None and request.is_plan,
        workspace=show_workspace(record.workspace, context.principal),
    )
