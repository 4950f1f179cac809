"""Starting runs: the one way from a message of any surface to a run.

Callers of the API send `NewRun`, which has only what they may choose; the rest follows from who they are. Surfaces
of this machine send a `RequestedRun`."""

from typing import TYPE_CHECKING, Annotated, Literal, cast

import msgspec
from msgspec import Meta, Struct

from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import user
from treadle.domain.modes import ApprovalMode
from treadle.domain.tools import ClientTool
from treadle.operations.attachments import Attachments, make_part
from treadle.operations.context import Context
from treadle.operations.operation import LocalCaller, Operation
from treadle.operations.refusal import refuse_wider_mode
from treadle.operations.requested_run import Overrides, RequestedRun
from treadle.operations.runs import RunDetail, Wait, run_detail, wait_for_end
from treadle.operations.schemas import ClientTools, FirstSaid, Metadata, ServedUser, SessionName, Tags, Ticket

if TYPE_CHECKING:
    from treadle.domain.events import EventData
    from treadle.operations.service import LocalService


class Accepted(Struct, frozen=True):
    """A run was queued, or a message went to the run that waits in its session."""

    run_id: RunId
    session_id: SessionId
    status: Literal["pending"] = "pending"
    """The status when the request was accepted."""


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class NewRun(Struct, frozen=True, forbid_unknown_fields=True):
    message: FirstSaid
    session_id: SessionName | None = None
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
    tags: Tags = ()
    metadata: Metadata = {}
    client_tools: ClientTools = ()
    mode: Annotated[
        ApprovalMode | None,
        Meta(description="The mode of the session from this message on. Null: as it is."),
    ] = None


class StartRun(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    """The agent: `NAME`, or `NAME@VERSION` with a number or a label."""
    run: NewRun
    wait: Wait | None = None


class StartLocalRun(Struct, frozen=True, forbid_unknown_fields=True):
    run: RequestedRun


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
)
START_LOCAL = Operation(
    "local.start",
    "POST",
    "/v1/submissions",
    scope="admin",
    request=StartLocalRun,
    response=Ticket,
    status=202,
    public=False,
    whole_body="run",
)


@START.handler
async def start_run(context: Context, request: StartRun) -> Accepted | RunDetail:
    """Send an agent a message.

    Start a run, or send a message to the run that waits in the session. With `wait`, respond when the run has ended
    (200) or when that time is over (202), with the state of the run and what it waits for."""
    new, context = request.run, context.for_user(request.run.user)
    chosen = await context.choose_agent(request.name)
    agent, overrides, principal = chosen.spec, new.overrides, context.principal
    session = None if new.session_id is None else await context.open_session(new.session_id)
    if overrides is not None:
        from treadle.operations.overrides import apply_permitted_overrides  # few runs have some

        agent = apply_permitted_overrides(agent, overrides, principal)
    message = user(new.message, *map(make_part, new.attachments))
    resumed = None if new.resumed_from is None else await context.addressed_run(new.resumed_from)
    run = RequestedRun(
        agent=agent,
        message=message,
        session_id=session,
        resumed_from=None if resumed is None else resumed.origin.run_id,
        asker=context.asker,
        user=principal.user,
        anonymous=principal.is_anonymous,
        only_own=principal.only_owner is not None,
        has_own_model=overrides is not None and overrides.model is not None,
        tags=new.tags,
        metadata=new.metadata,
        client_tools=tuple([ClientTool(each.name, each.description, each.schema) for each in new.client_tools]),
        after_current=new.after_current,
        version=0 if overrides is not None and overrides.settings is not None else chosen.version,
        mode=new.mode,
    )
    if new.mode is not None:
        known = None if session is None else await context.sessions.basics(session)
        refuse_wider_mode(new.mode, None if known is None else known.mode, principal)
    ticket = await submit(context, run)
    seconds = new.wait if request.wait is None else request.wait
    if not seconds:
        return Accepted(ticket.run_id, ticket.session_id)
    await wait_for_end(context, ticket.run_id, seconds)
    return await run_detail(context, await context.service.run(ticket.run_id))


@START_LOCAL.handler
async def start_local_run(context: Context, request: StartLocalRun) -> Ticket:
    """Start a run as another surface of this machine asks for it, with the agent as that surface has read it."""
    return await submit(context, request.run)


async def submit(context: Context, run: RequestedRun) -> Ticket:
    """Submit a message on the account of the caller. Nothing else makes a submission."""
    from treadle.operations.submissions import Submission  # which imports the engine

    terms = msgspec.structs.asdict(run)
    terms["trace_parent"] = run.trace_parent or context.trace_parent
    submission = Submission(
        **terms,
        key=context.key,
        token=context.principal.token_id,
        token_quotas=context.principal.quotas,
    )
    return await context.service.submit(submission, context.cause, context.run_id)


async def start_here(
    service: "LocalService",
    run: RequestedRun,
    key: str | None = None,
    cause: "EventData | None" = None,
    run_id: RunId | None = None,
) -> Ticket:
    """Start a run in this process, with the rights of the owner of the home. `key` is that of the journal: the same
    key returns the same run. `cause` is the event that made this process start it. A new run gets `run_id`."""
    caller = LocalCaller(Context(service=service, key=key, cause=cause, run_id=run_id))
    return await caller.call(START_LOCAL, StartLocalRun(run))
