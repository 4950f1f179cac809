"""`/v1/responses/{id}`: responses that exist already."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from starlette.responses import Response
from starlette.types import ASGIApp

from treadle.domain.errors import InvalidState
from treadle.domain.events import ClientResult, LlmRequest, MessageSteered, RunQueued, UserMessage
from treadle.domain.messages import Image, Message, Text, ToolResult
from treadle.domain.runs import RunPart
from treadle.operations.service import LocalService
from treadle.surfaces.http.dependencies import ApiRequest, get_context, get_services
from treadle.surfaces.http.openai.operations import (
    CANCEL_RESPONSE,
    DELETE_RESPONSE,
    LIST_INPUT_ITEMS,
    SHOW_RESPONSE,
    ListInputItems,
    OneResponse,
    ShowResponse,
)
from treadle.surfaces.http.openai.refusals import InvalidParameterValue
from treadle.surfaces.http.openai.response_parts import find_part, read_response, reopen_answer
from treadle.surfaces.http.openai.response_schemas import (
    DeletedResponse,
    InputItems,
    InputMessage,
    InputResult,
    InputText,
    OutputText,
    ShownImage,
)
from treadle.surfaces.http.openai.response_stream import ResponseWriter
from treadle.surfaces.http.openai.response_tracker import ResponseTracker
from treadle.surfaces.http.openai.run_answer import stream_answer
from treadle.surfaces.http.routing import make_json_response, serve
from treadle.surfaces.http.streams import refuse_if_full

CANCEL_WAIT_SECONDS = 5.0
"""How long to wait for a cancelled run to end before returning its current state."""


@serve(SHOW_RESPONSE)
async def show_response(wanted: ShowResponse, request: ApiRequest) -> ASGIApp:
    """Return the response as recorded in the journal, or its events."""
    part, record = await find_part(wanted.response, request)
    service = get_services(request).service
    if not wanted.stream:
        if wanted.starting_after is not None:
            raise InvalidParameterValue(
                "starting_after", "`starting_after` is for streams. Send `stream=true` too."
            )
        return make_json_response(await read_response(part, record, service))
    refuse_if_full(request)
    answer, response = await reopen_answer(part, record, service)
    after = -1 if wanted.starting_after is None else wanted.starting_after
    tools = await service.client_tools_of(part.run_id)
    writer = ResponseWriter(part.run_id, response, tools, after)
    return await stream_answer(answer, ResponseTracker(answer.agent), writer, request, fails=False)


@serve(CANCEL_RESPONSE)
async def cancel_response(wanted: OneResponse, request: ApiRequest) -> Response:
    """Cancel a response. A response that has ended stays as it is."""
    part, record = await find_part(wanted.response, request)
    service = get_services(request).service
    run_id = (await get_context(request).addressed_run(record.origin.run_id)).origin.run_id
    if await service.find_part_end(part) is None:
        with suppress(InvalidState, TimeoutError):
            await service.cancel(run_id, "asked for by the client")
            async with asyncio.timeout(CANCEL_WAIT_SECONDS):
                await service.wait(run_id)
    return make_json_response(await read_response(part, await service.run(run_id), service))


@serve(DELETE_RESPONSE)
async def delete_response(wanted: OneResponse, request: ApiRequest) -> Response:
    """Delete the session of a response that is the only one in it."""
    part, record = await find_part(wanted.response, request)
    context, session_id = get_context(request), record.origin.session_id
    await context.addressed_run(part.run_id)
    runs = await context.service.runs_of(session_id)
    if len(runs) > 1 or part.after or await context.service.find_part_end(part) is not None:
        raise InvalidState(
            f"{wanted.response} is not the only response of its session. Delete them together: "
            f"DELETE /v1/sessions/{session_id}."
        )
    await context.retention.delete_session(session_id, context.resolve_signer())
    return make_json_response(DeletedResponse(wanted.response))


@serve(LIST_INPUT_ITEMS)
async def list_input_items(wanted: ListInputItems, request: ApiRequest) -> Response:
    """Return what the client sent, a page at a time."""
    part, _ = await find_part(wanted.response, request)
    items = [
        _make_item(message, f"in_{part.run_id}_{part.after + place}")
        for place, message in enumerate(await _read_input(part, get_services(request).service))
    ]
    if wanted.order == "desc":
        items.reverse()
    if wanted.after is not None:
        places = [place for place, item in enumerate(items) if item.id == wanted.after]
        if not places:
            raise InvalidParameterValue("after", f"The response has no input item {wanted.after[:100]}.")
        items = items[places[0] + 1 :]
    page = tuple(items[: wanted.limit])
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return make_json_response(InputItems(page, first, last, len(items) > wanted.limit))


async def _read_input(part: RunPart, service: LocalService) -> list[Message]:
    """Return the messages that the client sent. A branch begins with a copy of a conversation, which is not part of
    them."""
    messages: list[Message] = []
    async for event in service.read_stored(part.run_id, part.after):
        match event.data:
            case RunQueued(before=before, follows=None):
                messages += before
            case UserMessage(message) | MessageSteered(message):
                messages.append(message)
            case ClientResult(call_id, content, images=images):
                messages.append(Message("tool", (ToolResult(call_id, content, images=images),)))
            case LlmRequest() if messages:
                break
            case _:
                pass
    return messages


def _make_item(message: Message, item_id: str) -> InputMessage | InputResult:
    if message.role == "tool":
        [result] = [part for part in message.parts if isinstance(part, ToolResult)]
        return InputResult(item_id, result.call_id, result.content)
    role = "assistant" if message.role == "assistant" else "user"
    return InputMessage(item_id, role, tuple(_make_content(message)))


def _make_content(message: Message) -> Iterable[InputText | OutputText | ShownImage]:
    for part in message.parts:
        match part:
            case Text("") if len(message.parts) > 1:
                pass  # it stands before an image
            case Text(text):
                yield OutputText(text) if message.role == "assistant" else InputText(text)
            case Image(media_type, data):
                yield ShownImage(f"data:{media_type};base64,{data}")
            case _:
                pass


ROUTES = [show_response, cancel_response, delete_response, list_input_items]
