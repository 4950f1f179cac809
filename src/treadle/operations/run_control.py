"""Runs: starting, steering, answering and ending them."""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from msgspec import Meta, Struct

from treadle.domain.attachments import format_attached_file
from treadle.domain.errors import InvalidState, UnknownRun, UsageError
from treadle.domain.events import RunQueued, SteerMode
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Image, Message, Text, user
from treadle.domain.workspaces import Workspace, is_same_place
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.refusal import check_workspace_name, refuse_other_model
from treadle.operations.runs import OneRun, RunDetail, Wait
from treadle.operations.schemas import AgentName, Delivered, FirstSaid, Said, ServedUser

if TYPE_CHECKING:
    from treadle.domain.agents import AgentSpec
    from treadle.ports.journal import RunRecord

MOST_ATTACHMENTS = 20


class Attachment(Struct, frozen=True, forbid_unknown_fields=True):
    """An image, as base64 text with its media type; or a text file, with its name."""

    media_type: str | None = None
    data: str | None = None
    name: str | None = None
    text: str | None = None


Attachments = Annotated[tuple[Attachment, ...], Meta(max_length=MOST_ATTACHMENTS)]


class Overrides(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for one run in place of those of its agent. A run cannot have more tools than its agent."""

    model: str | None = None
    limits: dict[str, Any] | None = None
    deadline: float | str | None = None
    cost: float | None = None
    tools: tuple[str, ...] | None = None
    output: dict[str, Any] | None = None


class Accepted(Struct, frozen=True):
    """A run was queued, or a message went to the run that waits in its session."""

    run_id: RunId
    session_id: SessionId
    status: Literal["pending"] = "pending"
    """The status when the request was accepted."""


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class NewRun(Struct, frozen=True, forbid_unknown_fields=True):
    message: FirstSaid
    session_id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    attachments: Attachments = ()
    overrides: Overrides | None = None
    wait: Wait | None = None
    """Seconds to wait for the end of the run before responding."""
    after_current: Annotated[
        bool, Meta(description="A run of its own after those of the session, even if one of them waits.")
    ] = False
    resumed_from: Annotated[
        RunId | None, Meta(description="The ended run that this one continues, in the session of that run.")
    ] = None
    user: ServedUser | None = None


class StartRun(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    """The agent."""
    run: NewRun
    wait: Wait | None = None


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

START = Operation[StartRun, Accepted | RunDetail](
    "runs.start",
    "POST",
    "/v1/agents/{name}/runs",
    scope="run",
    request=StartRun,
    response=cast("type[Accepted | RunDetail]", Accepted | RunDetail),
    status=202,
    errors=(402, 404, 409, 422),
    whole_body="run",
    in_query=("wait",),
    summary="Send an agent a message",
    description="Start a run, or send a message to the run that waits in the session. With `wait`, respond when "
    "the "
    "run has ended (200) or when that time is over (202), with the state of the run and what it waits for.",
    hand_written=True,
)
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


@START.handler
async def start_run(context: Context, request: StartRun) -> Accepted | RunDetail:
    """Start a run. The route applies overrides and waits; here a run has the settings of its agent."""
    from treadle.operations.submissions import Submission  # which imports the engine

    if request.run.overrides is not None or request.wait or request.run.wait:
        raise UsageError("Overrides and waiting are for the HTTP route. Start the run without them.")
    run, context = request.run, context.for_user(request.run.user)
    agent, principal = context.visible_agent(request.name), context.principal
    session = None if run.session_id is None else await context.open_session(run.session_id)
    submission = Submission(
        agent,
        user(run.message, *map(make_part, run.attachments)),
        session,
        context.key,
        asker=context.asker,
        token=principal.token_id,
        token_quotas=principal.quotas,
        user=principal.user,
        anonymous=principal.is_anonymous,
        only_own=principal.only_owner is not None,
        after_current=run.after_current,
        resumed_from=await continued_run(context, run),
    )
    ticket = await context.service.submit(submission)
    return Accepted(ticket.run_id, ticket.session_id)


async def continued_run(context: Context, run: NewRun) -> RunId | None:
    """Return the ended run that a new one continues, if any. Raise UnknownRun if the caller may not see it."""
    return None if run.resumed_from is None else (await context.addressed_run(run.resumed_from)).origin.run_id


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
    if request.agent is not None:
        agent = context.visible_agent(request.agent)
    else:
        agent = await _agent_for_fork(context, record)
    if request.model is not None and not principal.may("admin"):
        refuse_other_model(request.model, agent or context.visible_agent(record.agent))
    ticket = await context.service.fork(
        Fork(
            record.origin.run_id,
            request.step,
            request.model,
            request.message,
            agent,
            context.key,
            context.asker,
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


# ── Attachments ────────────────────────────────────────────────────────────────────────────────────


def make_part(attachment: Attachment) -> Image | Text:
    """Return an attachment as a part of a message. Raises UsageError for one that is neither image nor text."""
    match attachment:
        case Attachment(media_type=str(kind), data=str(data), name=None, text=None) if kind.startswith("image/"):
            try:
                b64decode(data, validate=True)
            except (NotBase64, ValueError):
                raise UsageError("The data of an attached picture is not base64.") from None
            return Image(kind, data)
        case Attachment(media_type=None, data=None, name=str(name), text=str(text)):
            return Text(format_attached_file(name, text))
        case _:
            raise UsageError(
                "An attachment is a picture (media_type image/… and data as base64) or a text file (name and text)."
            )


def make_attachments(message: Message) -> tuple[Attachment, ...]:
    """Return the images of a message as attachments."""
    return tuple(Attachment(part.media_type, part.data) for part in message.parts if isinstance(part, Image))
