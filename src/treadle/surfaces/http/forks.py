"""A new run from a step of an old one, over HTTP; and an old one through the code of today."""

from litestar import Router, get, post
from litestar.params import FromPath, JSONBody

from treadle.domain.access import Principal
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UnknownRun
from treadle.domain.events import RunQueued
from treadle.operations import Fork, Replayed
from treadle.operations.schemas import Accepted, ForkBody
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.agent_overrides import refuse_other_model
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, readable_run, seen_agent, seen_run, served_of
from treadle.surfaces.http.idempotency import submission_key
from treadle.surfaces.http.openapi import asks


@post(
    "/v1/runs/{run_id:str}/fork",
    status_code=202,
    **asks("run", "Fork a run", 402, 404, 409, 422),
)
async def fork(run_id: FromPath[str], request: Asked, data: JSONBody[ForkBody | None] = None) -> Accepted:
    """The new run starts where the old run was before the step, with all results up to it, in a session of its own.
    No tool call of the old run is repeated."""
    record, wanted = await _seen_whole(run_id, request), data or ForkBody()
    principal = principal_of(request)
    if wanted.agent is not None:
        agent = seen_agent(wanted.agent, request)
    else:
        agent = await _as_it_may_be(record, principal, request)
    if wanted.model is not None and not principal.may("admin"):
        refuse_other_model(wanted.model, agent or seen_agent(record.agent, request))
    ticket = await served_of(request).service.fork(
        Fork(
            record.origin.run_id,
            wanted.step,
            wanted.model,
            wanted.message,
            agent,
            submission_key(request),
            token=principal.token_id,
            token_quotas=principal.quotas,
        )
    )
    return Accepted(ticket.run_id, ticket.session_id)


async def _seen_whole(run_id: str, request: Asked) -> RunRecord:
    """A run with all that was said before it: where an agent has spoken in its session that whoever asks may not
    see, the run does not exist for them."""
    record = await readable_run(run_id, request)
    principal = principal_of(request)
    if principal.agents is not None:
        session = await served_of(request).service.runs_of(record.origin.session_id)
        if not all(principal.sees(run.agent) for run in session):
            raise UnknownRun(f"There is no run {run_id} that can be forked with this token.")
    return record


async def _as_it_may_be(record: RunRecord, principal: Principal, request: Asked) -> AgentSpec | None:
    """None: the agent as the old run had it. Whoever may not change agents, and did not ask for that run, gets it
    as its file is today: the run may have had more than they may give it."""
    if principal.may("admin"):
        return None
    [first] = await served_of(request).service.page(record.origin.run_id, 0, 1)
    if isinstance(first.data, RunQueued) and first.data.token == principal.token_id:
        return None
    return seen_agent(record.agent, request)


@get("/v1/runs/{run_id:str}/replay", **asks("read", "Replay a run with the current code", 404))
async def replay(run_id: FromPath[str], request: Asked) -> Replayed:
    """Replays the journal with the recorded replies and results, and returns the first event that the current code
    writes differently, if any. Nothing is changed."""
    record = await seen_run(run_id, request)
    return await served_of(request).service.replay(record.origin.run_id)


ROUTES = Router("/", route_handlers=[fork, replay], tags=["runs"])
