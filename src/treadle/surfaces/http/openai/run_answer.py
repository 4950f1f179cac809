"""A run that answers OpenAI clients: started, followed to its end, and cancelled when the last one disconnects."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treadle.domain.agents import AgentSpec
from treadle.domain.client_tools import ClientTool
from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState, StoreError
from treadle.domain.events import ClientCallRequested, LlmError, LlmResponse, RunEnd, RunWaiting, StreamReset
from treadle.domain.ids import RunId, SessionId
from treadle.domain.runs import RunPart, Usage
from treadle.domain.tools import ToolChoice
from treadle.operations.refusal import Refusal
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_start import submit
from treadle.operations.run_stream import StreamReader
from treadle.operations.service import LocalService
from treadle.surfaces.http.dependencies import ApiRequest, get_context, get_services, wait_for_disconnect
from treadle.surfaces.http.openai.conversation import ClientConversation
from treadle.surfaces.http.openai.deltas import (
    AnswerPiece,
    AnswerText,
    CallAsked,
    Called,
    Ended,
    ReasoningText,
    Restart,
    StepBreak,
    Waiting,
)
from treadle.surfaces.http.openai.refusals import find_run_failure
from treadle.surfaces.http.openai.waiting_clients import WaitingClients
from treadle.surfaces.http.streams import EventStream, Pieces, split_bytes

FIRST_BYTE_SECONDS = 10.0
"""How long a failure can still become the response itself. After that the response starts, whatever follows."""
SESSION_HEADER = "X-Treadle-Session"
RUN_HEADER = "X-Treadle-Run"
IGNORED_HEADER = "X-Treadle-Ignored"
"""Names the parameters of the request that have no effect."""
ON_DISCONNECT_HEADER = "X-Treadle-On-Disconnect"
"""A client sends `keep` in this header to let the run continue without it."""

Answer = TypeVar("Answer")
AnswerPieces = AsyncGenerator[Sequence[AnswerPiece], None]


class RunRequest(Struct, frozen=True):
    """What a client requests from an agent."""

    agent: AgentSpec
    conversation: ClientConversation
    version: int | None = None
    """The version of the agent that the client names; None: the current one."""
    session_id: SessionId | None = None
    """The session to continue; None: a new one, which starts with the conversation."""
    follows: RunPart | None = None
    """The part of a run that the message answers, instead of the session."""
    client_tools: tuple[ClientTool, ...] = ()
    tool_choice: ToolChoice | None = None
    metadata: dict[str, str] = {}
    keeps_running: bool = False
    """The run continues when the client disconnects."""
    ignored: tuple[str, ...] = ()
    """The parameters of the request that have no effect."""


class Tracker(Protocol):
    """Converts the events of a run into the pieces for a client."""

    def add_event(self, event: Event) -> Iterable[AnswerPiece]: ...


@dataclass
class RunAnswer:
    """A run that a client waits for."""

    service: LocalService
    agent: AgentSpec
    run_id: RunId
    session_id: SessionId
    after: int
    """The sequence number after which the run answers this client."""
    created: int
    keeps_running: bool
    until: int | None = None
    """Sequence of the last event of the part of the run that answers this client; None: it is the last part."""
    ignored: tuple[str, ...] = ()
    """The parameters of the request that have no effect."""
    is_settled: bool = False
    """The client has everything that there is to send now."""

    @property
    def headers(self) -> dict[str, str]:
        named: dict[str, str] = {SESSION_HEADER: self.session_id, RUN_HEADER: self.run_id}
        return {**named, IGNORED_HEADER: ", ".join(self.ignored)} if self.ignored else named

    async def read_pieces(self, tracker: Tracker) -> AnswerPieces:
        """Yield the pieces for the client, grouped as they become available. The last piece says how the run ended
        or what it waits for."""
        last, cut_off, count = self.after, True, PartCount(self.after)
        while cut_off:
            cut_off = False
            async with aclosing(self.service.batches(StreamReader(self.run_id, last))) as batches:
                async for batch in batches:
                    pieces: list[AnswerPiece] = []
                    for event in batch:
                        last = event.sequence if event.durable else last
                        if self.until is not None and last > self.until:
                            pieces.append(Waiting(""))
                            break
                        count.add_event(event)
                        pieces += map(count.complete, tracker.add_event(event))
                        if isinstance(event.data, StreamReset):
                            cut_off = True
                        elif wait := await self._find_wait(event, count):
                            pieces.append(wait)
                            break
                    self.is_settled = bool(pieces) and isinstance(pieces[-1], Called | Waiting | Ended)
                    if pieces:
                        yield pieces
                    if self.is_settled:
                        return

    async def stop(self, clients: WaitingClients) -> None:
        """Cancel the run if its client has disconnected before the end, and no other one waits for it."""
        if not self.keeps_running and not self.is_settled and clients.count(self.run_id) <= 1:
            with suppress(InvalidState):  # it has ended meanwhile
                await self.service.cancel(self.run_id, "the client has disconnected")

    async def _find_wait(self, event: Event, count: "PartCount") -> Called | Waiting | None:
        """Return what the run waits for since an event, if the client or a person has to act."""
        if not isinstance(event.data, RunWaiting):
            return None
        return await find_wait(self.service, self.run_id, event.data, count)


class PartCount:
    """Counts what a part of a run uses, and the calls that it asks the client to run."""

    def __init__(self, after: int) -> None:
        self._is_whole = not after
        self.usage = Usage()
        self.calls = 0
        self.at = 0.0
        """When the latest event happened."""

    def add_event(self, event: Event) -> None:
        self.at = event.timestamp
        match event.data:
            case LlmResponse(usage=usage) | LlmError(usage=usage):
                self.usage = add_usage(self.usage, usage)
            case ClientCallRequested():
                self.calls += 1
            case _:
                pass

    def complete(self, piece: AnswerPiece) -> AnswerPiece:
        """Return the piece, the last one with the usage of the part and its time."""
        if not isinstance(piece, Ended):
            return piece
        return Ended(piece.end, None if self._is_whole else self.usage, self.at)


def add_usage(one: Usage, other: Usage) -> Usage:
    """Return the sum of both."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cache_read_tokens + other.cache_read_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
    )


async def find_wait(
    service: LocalService, run_id: RunId, waiting: RunWaiting, count: PartCount
) -> Called | Waiting | None:
    """Return what a run waits for if the client or a person has to act. Calls come first: the client reports what
    else there is with their results."""
    if waiting.reason == "client_tool":
        return Called(count.usage, count.at) if count.calls else None  # others have their results already
    words = await describe_wait(service, run_id, waiting)
    if not words:
        return None
    return Called(count.usage, count.at) if count.calls else Waiting(words)


async def describe_wait(service: LocalService, run_id: RunId, waiting: RunWaiting) -> str:
    """Return what a run waits for if it needs a person to act, else "". It may have been answered since."""
    if (await service.run(run_id)).status != "waiting":
        return ""
    match waiting.reason:
        case "approval":
            pending = [
                f"- {record.approval_id}: {record.tool} {record.arguments} ({record.reason})"
                for record in await service.approvals(run_id)
            ]
            if not pending:
                return ""
            listed = "\n".join(pending)
            how = "Decide with `treadle approvals approve ID` or POST /v1/approvals/ID"
            return f"The agent waits for an approval:\n{listed}\n{how}; {run_id} continues then."
        case "answer":
            questions = "\n".join(each.question for each in await service.questions(run_id))
            return f"The agent asks:\n{questions}\nThe next message of this session answers; {run_id} waits."
        case _ if waiting.wake_at is None:
            why = f"{waiting.reason}: {waiting.detail}" if waiting.detail else waiting.reason
            return f"{run_id} waits ({why}). It continues when it is resumed."
        case _:
            return ""


async def start_run(run_request: RunRequest, request: ApiRequest) -> RunAnswer:
    """Submit the run. Raise an error for an invalid request."""
    context = get_context(request)
    service, principal = context.service, context.principal
    conversation = run_request.conversation
    continues = run_request.session_id is not None or run_request.follows is not None
    run = RequestedRun(
        agent=run_request.agent,
        version=run_request.version,
        message=conversation.latest() if continues else conversation.message,
        session_id=run_request.session_id,
        follows=run_request.follows,
        before=() if continues else conversation.before,
        instructions=conversation.instructions,
        user=principal.user,
        anonymous=principal.is_anonymous,
        only_own=principal.only_owner is not None,
        metadata=run_request.metadata,
        client_tools=run_request.client_tools,
        tool_choice=run_request.tool_choice,
    )
    ticket = await submit(context, run)
    record = await service.run(ticket.run_id)
    return RunAnswer(
        service=service,
        agent=run_request.agent,
        run_id=ticket.run_id,
        session_id=ticket.session_id,
        after=ticket.after,
        created=int(record.created_at),
        keeps_running=run_request.keeps_running,
        ignored=run_request.ignored,
    )


def outlives_client(request: ApiRequest) -> bool:
    """Return whether the run continues when the client disconnects: it says so, or may send the request again."""
    return request.headers.get(ON_DISCONNECT_HEADER, "").lower() == "keep" or get_context(request).key is not None


async def find_open_session(session_id: str, request: ApiRequest) -> SessionId:
    """Return the id of a session that exists and that the caller may use."""
    session = await get_context(request).open_session(session_id)
    return (await get_services(request).service.session(session)).session_id


async def wait_for_answer(answer: RunAnswer, tracker: Tracker, request: ApiRequest) -> list[AnswerPiece]:
    """Return the pieces of the whole answer. The last one says how the run ended, or what it waits for. Raise
    NoAnswer if it failed."""
    pieces = await _finish_while_connected(_collect(answer.read_pieces(tracker)), answer, request)
    if isinstance(last := pieces[-1], Ended) and (failure := find_run_failure(answer.run_id, last.end)):
        raise failure
    return pieces


async def _collect(batches: AnswerPieces) -> list[AnswerPiece]:
    async with aclosing(batches):
        return [piece async for pieces in batches for piece in pieces]


async def _finish_while_connected(
    work: Coroutine[Any, Any, Answer], answer: RunAnswer, request: ApiRequest, seconds: float | None = None
) -> Answer:
    """Return the result of the work while the client is connected. Raise TimeoutError after `seconds`."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect(request))
    clients = request.services.waiting_clients
    try:
        with clients.wait(answer.run_id):
            await asyncio.wait((working, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            if leaving.done():
                await answer.stop(clients)
                raise Refusal(408, "ClientGone", "The client has disconnected.")
            raise TimeoutError
    finally:
        leaving.cancel()
        working.cancel()


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


class AnswerWriter(Protocol):
    """Writes the pieces of an answer as server-sent events in one format."""

    def write_opening(self) -> bytes: ...

    def write_piece(self, write_piece: AnswerText | ReasoningText | StepBreak | Restart | CallAsked) -> bytes: ...

    def write_calls(self, called: Called) -> bytes:
        """Return the end of a stream whose run waits for the results of calls."""
        ...

    def write_waiting(self, text: str) -> bytes:
        """Return the end of a stream whose run waits."""
        ...

    def write_end(self, ended: Ended) -> bytes: ...

    def write_failure(self, failure: Refusal, end: RunEnd | None) -> bytes:
        """Return the end of a stream without an answer. `end` is None if the database failed."""
        ...


async def stream_answer(
    answer: RunAnswer, tracker: Tracker, writer: AnswerWriter, request: ApiRequest, *, fails: bool = True
) -> ASGIApp:
    """Return the answer as a stream. Raise errors that occur before the first piece, also that of a failed run
    unless `fails` is False."""
    batches = answer.read_pieces(tracker)
    first = asyncio.ensure_future(anext(batches))
    try:
        with suppress(TimeoutError):
            pieces = await _finish_while_connected(_shield(first), answer, request, FIRST_BYTE_SECONDS)
            ended = pieces[0]
            if fails and isinstance(ended, Ended) and (failure := find_run_failure(answer.run_id, ended.end)):
                raise failure
    except BaseException:
        first.cancel()
        await asyncio.wait((first,))
        await batches.aclose()
        raise
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    stream = EventStream(
        _write_pieces(first, batches, writer, answer), split_bytes, request, headers, will_reconnect=False
    )
    return _CancellingStream(stream, answer, request.services.waiting_clients)


async def _shield(first: "asyncio.Future[Sequence[AnswerPiece]]") -> Sequence[AnswerPiece]:
    return await asyncio.shield(first)


async def _write_pieces(
    first: "asyncio.Future[Sequence[AnswerPiece]]", batches: AnswerPieces, writer: AnswerWriter, answer: RunAnswer
) -> Pieces:
    async with aclosing(batches):
        opening = writer.write_opening()
        if not first.done():
            yield opening
            opening = b""
        try:
            yield opening + b"".join([write_piece(piece, writer, answer.run_id) for piece in await first])
            async for pieces in batches:
                if body := b"".join([write_piece(piece, writer, answer.run_id) for piece in pieces]):
                    yield body
        except StoreError as error:
            yield writer.write_failure(Refusal(503, "StoreError", f"{error} ({answer.run_id})"), None)


def write_piece(piece: AnswerPiece, writer: AnswerWriter, run_id: RunId) -> bytes:
    match piece:
        case Ended(end) as ended:
            failure = find_run_failure(run_id, end)
            return writer.write_end(ended) if failure is None else writer.write_failure(failure, end)
        case Called() as called:
            return writer.write_calls(called)
        case Waiting(text):
            return writer.write_waiting(text)
        case text_piece:
            return writer.write_piece(text_piece)


class _CancellingStream:
    """A stream whose run is cancelled when the last client disconnects. If the server or the token ends the stream,
    the run continues."""

    def __init__(self, stream: EventStream[bytes], answer: RunAnswer, clients: WaitingClients) -> None:
        self._stream = stream
        self._answer = answer
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_left = False

        async def receive_message() -> Message:
            nonlocal has_left
            message = await receive()
            has_left = has_left or message["type"] == "http.disconnect"
            return message

        with self._clients.wait(self._answer.run_id):
            await self._stream(scope, receive_message, send)
            if has_left:
                await self._answer.stop(self._clients)
