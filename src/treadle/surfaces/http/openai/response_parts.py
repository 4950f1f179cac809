"""Responses as the journal has them: each is a part of a run."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from treadle.domain.agents import AgentSpec
from treadle.domain.client_tools import ClientTool
from treadle.domain.envelope import Event
from treadle.domain.events import RunEnd, RunQueued, RunWaiting
from treadle.domain.runs import RunPart
from treadle.domain.tools import ToolChoice
from treadle.operations.not_found import unknown_run
from treadle.operations.service import LocalService
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.dependencies import ApiRequest, get_context
from treadle.surfaces.http.openai.deltas import Called, Waiting
from treadle.surfaces.http.openai.offered_tools import describe_choice, describe_tool
from treadle.surfaces.http.openai.response_schemas import (
    ConversationRef,
    ReasoningConfig,
    ResponseObject,
    make_response_id,
    parse_response_id,
)
from treadle.surfaces.http.openai.response_stream import ResponseWriter
from treadle.surfaces.http.openai.response_tracker import ResponseTracker
from treadle.surfaces.http.openai.run_answer import PartCount, RunAnswer, find_wait, write_piece


async def find_part(response: str, request: ApiRequest) -> tuple[RunPart, RunRecord]:
    """Return the part of a run that a response is, if the caller may read it."""
    part = parse_response_id(response)
    record = await get_context(request).readable_run(part.run_id)
    if part.after > record.sequence:
        raise unknown_run(part.run_id)
    return part, record


async def reopen_answer(
    part: RunPart, record: RunRecord, service: LocalService
) -> tuple[RunAnswer, ResponseObject]:
    """Return a part of a run as an answer that can be read again, and the response with which it begins."""
    queued = await _read_queued(part, service)
    answer = RunAnswer(
        service=service,
        agent=queued.agent,
        run_id=part.run_id,
        session_id=record.origin.session_id,
        after=part.after,
        until=await service.find_part_end(part),
        created=int(record.created_at),
        keeps_running=True,
    )
    response = start_response(answer, queued.instructions, queued.client_tools, queued.tool_choice)
    metadata = dict(queued.metadata)
    followed = None if queued.follows is None or part.after else make_response_id(queued.follows)
    return answer, structs.replace(response, metadata=metadata, previous_response_id=followed)


async def read_response(part: RunPart, record: RunRecord, service: LocalService) -> ResponseObject:
    """Return a response as recorded in the journal."""
    answer, response = await reopen_answer(part, record, service)
    tools = (await _read_queued(part, service)).client_tools
    writer, tracker = ResponseWriter(part.run_id, response, tools), ResponseTracker(answer.agent)
    count, waiting = PartCount(part.after), None
    async for event in service.read_stored(part.run_id, part.after):
        if answer.until is not None and event.sequence > answer.until:
            break
        waiting = _find_wait(event, waiting)
        count.add_event(event)
        for piece in tracker.add_event(event):
            write_piece(count.complete(piece), writer, part.run_id)
    if waiting is not None and not writer.is_done:
        wait = await find_wait(service, part.run_id, waiting, count)
        if isinstance(wait, Called):
            write_piece(wait, writer, part.run_id)
        elif wait is not None and answer.until is None:
            write_piece(wait, writer, part.run_id)
            return structs.replace(writer.response, status="in_progress", incomplete_details=None)
    if answer.until is not None and not writer.is_done:
        write_piece(Waiting(""), writer, part.run_id)
    if writer.is_done:
        return writer.response
    return structs.replace(response, status="queued" if record.status == "pending" else "in_progress")


def start_response(
    answer: RunAnswer,
    instructions: str | None,
    tools: Sequence[ClientTool] = (),
    choice: ToolChoice | None = None,
) -> ResponseObject:
    """Return the response of a run that has just started."""
    settings = answer.agent.model_settings
    return ResponseObject(
        make_response_id(RunPart(answer.run_id, answer.after)),
        answer.created,
        answer.agent.name,
        ConversationRef(answer.session_id),
        instructions=instructions or None,
        max_output_tokens=settings.max_tokens,
        temperature=1.0 if settings.temperature is None else settings.temperature,
        top_p=1.0 if settings.top_p is None else settings.top_p,
        presence_penalty=settings.presence_penalty or 0.0,
        frequency_penalty=settings.frequency_penalty or 0.0,
        reasoning=ReasoningConfig(settings.reasoning),
        text={"format": _text_format(answer.agent)},
        tools=tuple(map(describe_tool, tools)),
        tool_choice=describe_choice(choice),
        parallel_tool_calls=settings.parallel_tool_calls is not False,
    )


def _text_format(agent: AgentSpec) -> dict[str, Any]:
    if agent.output is None:
        return {"type": "text"}
    return {"type": "json_schema", "name": "output", "schema": agent.output}


async def _read_queued(part: RunPart, service: LocalService) -> RunQueued:
    [first] = await service.page(part.run_id, 0, 1)
    assert isinstance(first.data, RunQueued), f"the first event of {part.run_id} is {first.type}"
    return first.data


def _find_wait(event: Event, waiting: RunWaiting | None) -> RunWaiting | None:
    """Return what a run waits for after an event."""
    match event.data:
        case RunWaiting() as wait:
            return wait
        case RunEnd():
            return None
        case _:
            return waiting
