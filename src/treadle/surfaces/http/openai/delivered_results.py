"""Results of the client's tools: a request that ends with them goes to the run that waits for them.

The same request sent again finds the results in the journal, and has the same answer. If the run has ended
otherwise, no longer waits, or the client now offers other tools, the request starts a session of its own, which has
the calls as text."""

from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from treadle.domain.errors import InvalidState, Unknown
from treadle.domain.events import CancelRequested, ClientCallRequested, ClientResult, RunQueued
from treadle.domain.ids import RunId
from treadle.domain.inert_text import make_inert
from treadle.domain.messages import Image, Message
from treadle.domain.runs import RunPart
from treadle.domain.tools import ToolChoice
from treadle.operations.context import Context
from treadle.operations.refusal import Refusal
from treadle.operations.service import LocalService
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.dependencies import ApiRequest, get_context
from treadle.surfaces.http.openai.call_ids import parse_call_id
from treadle.surfaces.http.openai.conversation import (
    ClientConversation,
    MadeCall,
    MadeResult,
    Turn,
    find_latest,
    make_message,
)
from treadle.surfaces.http.openai.refusals import InvalidParameterValue
from treadle.surfaces.http.openai.run_answer import RunAnswer, RunRequest, start_run

SUPERSEDED = "the client went on with other tools"


async def answer_request(turns: Sequence[Turn], run_request: RunRequest, request: ApiRequest) -> RunAnswer:
    """Return the run that answers a request: the one that waits for its results, or a new one."""
    if run_request.follows is not None:
        _refuse_unknown_calls(turns)
    sent = find_results(turns)
    if sent is not None and (answer := await deliver_results(sent, run_request, request)) is not None:
        return answer
    return await start_run(run_request, request)


class SentResults(Struct, frozen=True):
    """The results at the end of a request, all of one run."""

    run_id: RunId
    results: dict[int, MadeResult]
    """By the sequence of the request to run the call."""
    words: tuple[Turn, ...]
    """What the user says in addition."""


def find_results(turns: Sequence[Turn]) -> SentResults | None:
    """Return the results with which a request ends, or None if there are none, or some of other services."""
    latest = find_latest(turns)
    made = [part for turn in latest for part in turn.parts if isinstance(part, MadeResult)]
    places = [parse_call_id(part.call_id) for part in made]
    found = [place for place in places if place is not None]
    if not found or len(found) < len(places) or len({place.run_id for place in found}) > 1:
        return None
    words = [[part for part in turn.parts if not isinstance(part, MadeResult)] for turn in latest]
    results = {place.sequence: part for place, part in zip(found, made, strict=True)}
    return SentResults(found[0].run_id, results, tuple([Turn("user", tuple(parts)) for parts in words if parts]))


def _refuse_unknown_calls(turns: Sequence[Turn]) -> None:
    """Raise InvalidParameterValue for a result whose call neither Treadle made nor the request contains."""
    made = {part.call_id for turn in turns for part in turn.parts if isinstance(part, MadeCall)}
    for turn in find_latest(turns):
        for part in turn.parts:
            if isinstance(part, MadeResult) and part.call_id not in made and parse_call_id(part.call_id) is None:
                raise InvalidParameterValue(
                    "input",
                    f"No call has the id `{make_inert(part.call_id)[:80]}`. "
                    "Send each result with the `call_id` of its call.",
                )


async def deliver_results(sent: SentResults, run_request: RunRequest, request: ApiRequest) -> RunAnswer | None:
    """Deliver the results and return the run that goes on with them, or None if no run can. If it ends before it
    receives what the user says in addition, return the run of its session that answers this."""
    context = get_context(request)
    service = context.service
    try:
        record = await context.readable_run(sent.run_id)
        await context.addressed_run(sent.run_id)
    except Unknown:
        return None
    [first] = await service.page(sent.run_id, 0, 1)
    assert isinstance(first.data, RunQueued), f"the first event of {sent.run_id} is {first.type}"
    if not _is_same_client(first.data, run_request):
        if record.outcome is None:
            with suppress(InvalidState):
                await service.cancel(sent.run_id, SUPERSEDED)
        return None
    results = await _match_results(sent, record, run_request.tool_choice, context)
    if results is None:
        return None
    try:
        sequences = [
            await service.client_calls.deliver(record, result, context.principal.token_id) for result in results
        ]
    except (InvalidState, Unknown, Refusal):
        return None
    after = min(sequences) - 1
    part = RunPart(sent.run_id, after)
    if not await _deliver_words(sent, after, context):
        return await start_run(_follow_with_words(sent, part, run_request), request)
    until = await service.find_part_end(part)
    if until is None and await _is_cancelled(part, service):
        return None
    return RunAnswer(
        service=service,
        agent=first.data.agent,
        run_id=sent.run_id,
        session_id=record.origin.session_id,
        after=after,
        until=until,
        created=int(record.created_at),
        keeps_running=run_request.keeps_running,
        ignored=run_request.ignored,
    )


def _follow_with_words(sent: SentResults, part: RunPart, run_request: RunRequest) -> RunRequest:
    """Return the request for a run that answers only what the user says in addition."""
    said = [make_message(turn) for turn in sent.words]
    message = Message("user", tuple([part for each in said for part in each.parts]))
    conversation = ClientConversation((), message, run_request.conversation.instructions)
    return replace(run_request, conversation=conversation, session_id=None, follows=part)


async def _is_cancelled(part: RunPart, service: LocalService) -> bool:
    """Return whether someone has cancelled the run in this part, even if it has not ended yet."""
    if (await service.run(part.run_id)).outcome == "cancelled":
        return True
    events = service.read_stored(part.run_id, part.after)
    return any([isinstance(event.data, CancelRequested) async for event in events])


def _is_same_client(queued: RunQueued, run_request: RunRequest) -> bool:
    """Return whether a request is for the agent of the run, and offers the tools that the run knows."""
    known = {tool.name for tool in queued.client_tools}
    return queued.agent.name == run_request.agent.name and known == {tool.name for tool in run_request.client_tools}


async def _match_results(
    sent: SentResults, record: RunRecord, choice: ToolChoice | None, context: Context
) -> list[ClientResult] | None:
    """Return the results for the calls that the run has asked for. Raise InvalidParameterValue if a call that still
    waits has none."""
    results: list[ClientResult] = []
    for sequence, made in sent.results.items():
        events = await context.service.page(sent.run_id, sequence - 1, 1)
        asked = events[0].data if events else None
        if not isinstance(asked, ClientCallRequested):
            return None
        images = tuple([image for image in made.images if isinstance(image, Image)])
        results.append(ClientResult(asked.call_id, made.text, images=images, tool_choice=choice))
    given = {result.call_id for result in results}
    waiting = await context.service.client_calls.list_open(record)
    if any(asked.call_id in given for asked in waiting):
        for asked in waiting:
            if asked.call_id not in given:
                raise InvalidParameterValue(
                    "input", f"The call of {asked.name} has no result. Send the results of all calls together."
                )
    return results


async def _deliver_words(sent: SentResults, after: int, context: Context) -> bool:
    """Send the run what the user says in addition, once. Return False if the run has ended without it."""
    for place, turn in enumerate(sent.words):
        key = f"openai/{sent.run_id}/{after}/{place}"
        try:
            await context.service.steer(sent.run_id, make_message(turn), key=key)
        except InvalidState:
            return False
    return True
