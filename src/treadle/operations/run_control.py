"""Runs: steering, answering, ending and forking them."""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from treadle.domain.errors import InvalidState, UnknownRun
from treadle.domain.events import RunQueued, SteerMode
from treadle.domain.ids import RunId
from treadle.domain.messages import user
from treadle.domain.workspaces import Workspace, is_same_place
from treadle.operations.attachments import Attachments, make_part
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.refusal import check_workspace_name, refuse_other_model
from treadle.operations.run_start import Accepted
from treadle.operations.runs import OneRun
from treadle.operations.schemas import AgentName, Delivered, Said

if TYPE_CHECKING:
    from treadle.domain.agents import AgentSpec
    from treadle.ports.journal import RunRecord

# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class SteerRun(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    message: Said
    mode: Annotated[
        SteerMode,
        Meta(description="`steer`: at its next step. `interrupt`: at once."),
    ] = "steer"
    attachments: Attachments = ()
    workspace: Workspace | None = None
    """Where the sender works. A run that works elsewhere does not get the message."""


class StopRun(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    reason: Annotated[str, Meta(max_length=1000)] = ""


class AnswerQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    call_id: str
    text: Said
    by: Annotated[str, Meta(max_length=200, description="Who answers; by default, the caller.")] = ""


class ForkRun(Struct, frozen=True, forbid_unknown_fields=True):
    """The step to fork from, and what the new run has in place of the old one's."""

    run_id: RunId
    step: Annotated[int, Meta(ge=1)] | None = None
    """Just before this step of the old run; null: before its last one."""
    model: Annotated[str, Meta(min_length=1, max_length=300)] | None = None
    message: Said | None = None
    """At the first step it replaces the message of the old run; later it follows the results."""
    agent: AgentName | None = None
    """Another agent, by its name."""


# ── Operations ─────────────────────────────────────────────────────────────────────────────────────

STEER = Operation(
    "runs.steer",
    "POST",
    "/v1/runs/{run_id}/messages",
    scope="run",
    request=SteerRun,
    response=Delivered,
    status=202,
    errors=(404, 409, 422),
)
INTERRUPT = Operation(
    "runs.interrupt",
    "POST",
    "/v1/runs/{run_id}/interrupt",
    scope="run",
    request=StopRun,
    response=Delivered,
    status=202,
    errors=(404, 409, 422),
)
RESUME = Operation(
    "runs.resume",
    "POST",
    "/v1/runs/{run_id}/resume",
    scope="run",
    request=OneRun,
    response=Delivered,
    status=202,
    errors=(404, 409, 422),
)
CANCEL = Operation(
    "runs.cancel",
    "POST",
    "/v1/runs/{run_id}/cancel",
    scope="run",
    request=StopRun,
    response=Delivered,
    status=202,
    errors=(404, 409, 422),
)
ANSWER = Operation(
    "runs.answer",
    "POST",
    "/v1/runs/{run_id}/answers/{call_id}",
    scope="approve",
    request=AnswerQuestion,
    response=Delivered,
    status=202,
    errors=(404, 409, 422),
)
FORK = Operation(
    "runs.fork",
    "POST",
    "/v1/runs/{run_id}/fork",
    scope="run",
    request=ForkRun,
    response=Accepted,
    status=202,
    errors=(402, 404, 409, 422),
)


@STEER.handler
async def steer_run(context: Context, request: SteerRun) -> Delivered:
    """Send a message to a run in progress."""
    record = await context.addressed_run(request.run_id)
    if request.workspace is not None:
        check_workspace_name(request.workspace.id, context.principal)
        await _refuse_other_place(context, record.origin.run_id, request.workspace)
    message = user(request.message, *map(make_part, request.attachments))
    return Delivered(await context.service.steer(record.origin.run_id, message, request.mode, context.key))


async def _refuse_other_place(context: Context, run_id: RunId, here: Workspace) -> None:
    """Raise InvalidState if a run works in another workspace."""
    [first] = await context.service.page(run_id, 0, 1)
    there = first.data.workspace if isinstance(first.data, RunQueued) else None
    if there is not None and not is_same_place(there, here):
        raise InvalidState(
            f"{run_id} works in {there.folder}, not in {here.folder}, and does not get the message. Send it to the "
            "session: a run of its own answers it."
        )


@INTERRUPT.handler
async def interrupt_run(context: Context, request: StopRun) -> Delivered:
    """Interrupt a run; it waits until it is resumed."""
    record = await context.addressed_run(request.run_id)
    reason = request.reason or f"interrupted by {context.principal.name}"
    return Delivered(await context.service.interrupt(record.origin.run_id, reason))


@RESUME.handler
async def resume_run(context: Context, request: OneRun) -> Delivered:
    """Resume a run that waits."""
    record = await context.addressed_run(request.run_id)
    return Delivered(await context.service.resume(record.origin.run_id))


@CANCEL.handler
async def cancel_run(context: Context, request: StopRun) -> Delivered:
    """Cancel a run."""
    record = await context.addressed_run(request.run_id)
    reason = request.reason or f"asked for by {context.principal.name}"
    return Delivered(await context.service.cancel(record.origin.run_id, reason))


@ANSWER.handler
async def answer_question(context: Context, request: AnswerQuestion) -> Delivered:
    """Answer a question of an agent."""
    record = await context.addressed_run(request.run_id)
    by = context.resolve_signer(request.by)
    return Delivered(await context.service.answer(record.origin.run_id, request.call_id, request.text, by))


@FORK.handler
async def fork_run(context: Context, request: ForkRun) -> Accepted:
    """Start a new run from a step of this one.

    It begins where the old run was just before that step, with all results up to there, in a session of its own.
    Nothing of the old run is repeated."""
    from treadle.operations.forks import Fork  # which imports the engine

    record, principal = await _forkable_run(context, request.run_id), context.principal
    version = None
    if request.agent is not None:
        chosen = await context.choose_agent(request.agent)
        agent, version = chosen.spec, chosen.version
    else:
        agent = await _agent_for_fork(context, record)
    if request.model is not None and not principal.may("admin"):
        refuse_other_model(request.model, agent or context.visible_agent(record.agent))
    ticket = await context.service.fork(
        Fork(
            run_id=record.origin.run_id,
            step=request.step,
            model=request.model,
            message=request.message,
            agent=agent,
            version=version,
            key=context.key,
            asker=context.asker,
            token=principal.token_id,
            token_quotas=principal.quotas,
        )
    )
    return Accepted(ticket.run_id, ticket.session_id)


async def _forkable_run(context: Context, run_id: RunId) -> "RunRecord":
    """Return a run whose whole session the caller may see: the fork would show all of it."""
    await context.addressed_run(run_id)
    record = await context.readable_run(run_id)
    if context.principal.agents is not None:
        session = await context.sessions.runs(record.origin.session_id)
        if not all(context.principal.sees(run.agent) for run in session):
            raise UnknownRun(f"There is no run {run_id} that can be forked with this token.")
    return record


async def _agent_for_fork(context: Context, record: "RunRecord") -> "AgentSpec | None":
    """Return None for the agent as the old run had it. A caller that may not change agents, and did not start that
    run, gets the agent as its file is now: the run may have had more than the caller may give it."""
    if context.principal.may("admin"):
        return None
    [first] = await context.service.page(record.origin.run_id, 0, 1)
    if isinstance(first.data, RunQueued) and first.data.token == context.principal.token_id:
        return None
    return context.visible_agent(record.agent)
