"""Calls of tools that the client runs: listing those that wait, and delivering results."""

from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.events import ClientResult
from treadle.domain.ids import RunId
from treadle.domain.messages import Image, Text
from treadle.operations.attachments import Attachments, make_part
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.runs import OneRun, OpenCall, make_client_call
from treadle.operations.schemas import Delivered, Page


class DeliverResult(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    call_id: Annotated[str, Meta(max_length=256)]
    content: str
    """What the tool returned, as text."""
    is_error: bool = False
    """The tool failed, and `content` says why."""
    attachments: Attachments = ()
    """Images and text files that it returned, too."""


LIST = Operation(
    "runs.calls",
    "GET",
    "/v1/runs/{run_id}/calls",
    scope="run",
    request=OneRun,
    response=Page[OpenCall],
    errors=(404,),
)
DELIVER = Operation(
    "runs.result",
    "POST",
    "/v1/runs/{run_id}/results/{call_id}",
    scope="run",
    request=DeliverResult,
    response=Delivered,
    errors=(404, 409, 422),
)


@LIST.handler
async def list_client_calls(context: Context, request: OneRun) -> Page[OpenCall]:
    """List the calls that wait for a result of the client.

    They are calls of tools that the client brought when it started the run."""
    record = await context.readable_run(request.run_id)
    found = await context.service.client_calls.list_open(record)
    return Page(tuple(map(make_client_call, found)))


@DELIVER.handler
async def deliver_result(context: Context, request: DeliverResult) -> Delivered:
    """Deliver the result of a call that the client has run.

    Only the token that brought the tool may do so. A result is final: the same one again is accepted, another is
    refused."""
    run_id, service, token = request.run_id, context.service.client_calls, context.principal.token_id
    parts = list(map(make_part, request.attachments))
    result = ClientResult(
        call_id=request.call_id,
        content="\n\n".join([request.content, *(part.text for part in parts if isinstance(part, Text))]),
        is_error=request.is_error,
        images=tuple(part for part in parts if isinstance(part, Image)),
    )
    queued, sequence = service.find_queued(run_id), None
    if queued is not None and context.addresses(queued.agent.name, queued.user):
        sequence = await service.deliver_here(run_id, result, token)
    if sequence is None:
        sequence = await service.deliver(await context.addressed_run(run_id), result, token)
    return Delivered(sequence)
