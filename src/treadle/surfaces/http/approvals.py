"""What waits for a person's decision."""

from contextlib import suppress

import msgspec
from litestar import Router, get, post
from litestar.params import FromPath, FromQuery, JSONBody

from treadle.domain.access import Principal
from treadle.domain.errors import UnknownApproval
from treadle.domain.ids import ApprovalId
from treadle.operations import Answer
from treadle.operations.schemas import ApprovalView, DecisionBody, Delivered, Page, approval_view
from treadle.ports.approvals import ApprovalRecord
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, said_by, seen_run, served_of
from treadle.surfaces.http.openapi import asks


@get("/v1/approvals", **asks("read", "List pending approvals", 404))
async def list_approvals(request: Asked, run_id: FromQuery[str | None] = None) -> Page[ApprovalView]:
    """Oldest first."""
    service, principal = served_of(request).service, principal_of(request)
    of_run = None if run_id is None else (await seen_run(run_id, request)).origin.run_id
    found = await service.approvals(of_run)
    return Page(tuple([approval_view(record) for record in found if _is_seen(record, principal)]))


@get("/v1/approvals/{approval_id:str}", **asks("read", "Get an approval", 404))
async def show(approval_id: FromPath[str], request: Asked) -> ApprovalView:
    return approval_view(await _seen(approval_id, request))


@post(
    "/v1/approvals/{approval_id:str}",
    status_code=200,
    **asks("approve", "Approve or deny a call", 404, 409, 422),
)
async def decide(approval_id: FromPath[str], data: JSONBody[DecisionBody], request: Asked) -> Delivered:
    record = await _seen(approval_id, request)
    edited = None if data.arguments is None else msgspec.json.encode(data.arguments).decode()
    by = said_by(data.by, principal_of(request))
    answer = Answer(data.decision, edited, data.note, by, data.remember)
    return Delivered(await served_of(request).service.decide(record.approval_id, answer))


async def _seen(approval_id: FromPath[str], request: Asked) -> ApprovalRecord:
    """An approval, if its run exists for whoever asks."""
    record = None
    with suppress(UnknownApproval):
        record = await served_of(request).service.approval(ApprovalId(approval_id))
    if record is None or not _is_seen(record, principal_of(request)):
        raise UnknownApproval(f"There is no approval {approval_id}. `treadle approvals list` shows what waits.")
    return record


def _is_seen(record: ApprovalRecord, principal: Principal) -> bool:
    return principal.sees(record.agent) and principal.sees_owner(record.owner)


ROUTES = Router("/", route_handlers=[list_approvals, show, decide], tags=["approvals"])
