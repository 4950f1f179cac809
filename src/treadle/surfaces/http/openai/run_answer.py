"""A run that a client asks for as it would ask a model: begun, followed to its end, and stopped with its client."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send
from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import InvalidState, StoreError
from treadle.domain.events import RunEnd, RunWaiting, StreamReset
from treadle.domain.ids import RunId, SessionId
from treadle.operations.refusal import Refusal
from treadle.operations.run_stream import Reader
from treadle.operations.service import LocalService
from treadle.operations.submissions import Submission
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import ApiRequest, context_of, services_of
from treadle.surfaces.http.idempotency import submission_key
from treadle.surfaces.http.openai.conversation import Conversation
from treadle.surfaces.http.openai.deltas import (
    AnswerPiece,
    AnswerText,
    DeltaTracker,
    Ended,
    ReasoningText,
    Restart,
    StepBreak,
    Waiting,
)
from treadle.surfaces.http.openai.refusals import find_run_failure
from treadle.surfaces.http.streams import EventStream, Pieces

FIRST_BYTE_SECONDS = 10.0
"""For so long a failure can still be the answer itself; then the answer begins, whatever comes of it."""
SESSION_HEADER = "X-Treadle-Session"
RUN_HEADER = "X-Treadle-Run"
ON_DISCONNECT_HEADER = "X-Treadle-On-Disconnect"
"""A header with which a client says `keep`: the run goes on without it."""

Answer = TypeVar("Answer")
AnswerPieces = AsyncGenerator[Sequence[AnswerPiece], None]


class RunRequest(Struct, frozen=True):
    """What a client asks an agent for."""

    agent: AgentSpec
    conversation: Conversation
    session_id: SessionId | None = None
    """To go on in; None: a new one, which begins with the conversation."""
    stays: bool = False
    """The run goes on when the client leaves."""


@dataclass
class RunAnswer:
    """A run that a client waits for."""

    service: LocalService
    agent: AgentSpec
    run_id: RunId
    session_id: SessionId
    after: int
    """The sequence after which it answers this client."""
    created: int
    stays: bool
    has_told: bool = False
    """The client has all that there is to tell now."""

    @property
    def headers(self) -> dict[str, str]:
        return {SESSION_HEADER: self.session_id, RUN_HEADER: self.run_id}

    async def told(self) -> AnswerPieces:
        """What the client is told, those pieces together that are there at once; the last is how it stands."""
        telling, last, cut_off = DeltaTracker(self.agent), self.after, True
        while cut_off:
            cut_off = False
            async with aclosing(self.service.batches(Reader(self.run_id, last))) as batches:
                async for batch in batches:
                    pieces: list[AnswerPiece] = []
                    for event in batch:
                        last = event.sequence if event.durable else last
                        pieces += telling.hear(event)
                        if isinstance(event.data, StreamReset):
                            cut_off = True
                        elif isinstance(event.data, RunWaiting) and (words := await self._standing(event.data)):
                            pieces.append(Waiting(words))
                            break
                    self.has_told = bool(pieces) and isinstance(pieces[-1], Waiting | Ended)
                    if pieces:
                        yield pieces
                    if self.has_told:
                        return

    async def outcome(self) -> Ended | Waiting:
        """How it ended, or what it waits for."""
        async with aclosing(self.told()) as told:
            async for pieces in told:
                if isinstance(last := pieces[-1], Ended | Waiting):
                    return last
        raise AssertionError(f"the stream of {self.run_id} ended before the run")

    async def stop(self) -> None:
        """Nobody waits for it any more."""
        if not self.stays and not self.has_told:
            with suppress(InvalidState):  # it has ended, meanwhile
                await self.service.cancel(self.run_id, "the client that asked for it has gone")

    async def _standing(self, waiting: RunWaiting) -> str:
        """In words, what a run waits for that does not go on by itself; empty: it does."""
        return await describe_wait(self.service, self.run_id, waiting)


async def describe_wait(service: LocalService, run_id: RunId, waiting: RunWaiting) -> str:
    """What a run waits for that goes on only when somebody does something; empty: it goes on by itself. It may have
    been answered since."""
    if (await service.run(run_id)).status != "waiting":
        return ""
    match waiting.reason:
        case "approval":
            asked = [
                f"- {record.approval_id}: {record.tool} {record.arguments} ({record.reason})"
                for record in await service.approvals(run_id)
            ]
            if not asked:
                return ""
            listed = "\n".join(asked)
            how = "Decide with `treadle approvals approve ID` or POST /v1/approvals/ID"
            return f"The agent waits for an approval:\n{listed}\n{how}; {run_id} goes on then."
        case "answer":
            questions = "\n".join(each.question for each in await service.questions(run_id))
            return f"The agent asks:\n{questions}\nThe next message of this session answers; {run_id} waits."
        case _ if waiting.wake_at is None:
            why = f"{waiting.reason}: {waiting.detail}" if waiting.detail else waiting.reason
            return f"{run_id} waits ({why}). It goes on when it is resumed."
        case _:
            return ""


async def start_run(wanted: RunRequest, request: ApiRequest) -> RunAnswer:
    """Have the agent asked. Raises whatever can be known to be wrong."""
    service, principal = services_of(request).service, principal_of(request)
    talk, goes_on = wanted.conversation, wanted.session_id is not None
    before = {}
    if wanted.session_id is not None:
        before = {run.origin.run_id: run.sequence for run in await service.runs_of(wanted.session_id)}
    ticket = await service.submit(
        Submission(
            wanted.agent,
            talk.latest() if goes_on else talk.message,
            wanted.session_id,
            submission_key(request.scope),
            token=principal.token_id,
            token_quotas=principal.quotas,
            before=() if goes_on else talk.before,
            instructions=talk.instructions,
            user=principal.user,
            only_own=principal.only_owner is not None,
        )
    )
    record = await service.run(ticket.run_id)
    after = 0 if record.outcome is not None else before.get(ticket.run_id, 0)
    return RunAnswer(
        service, wanted.agent, ticket.run_id, ticket.session_id, after, int(record.created_at), wanted.stays
    )


async def find_open_session(session_id: str, request: ApiRequest) -> SessionId:
    """One that is there, and exists for whoever asks."""
    seen = await context_of(request).open_session(session_id)
    return (await services_of(request).service.session(seen)).session_id


async def wait_for_answer(going: RunAnswer, request: ApiRequest) -> Ended | Waiting:
    """How the run ended; or what it waits for. Raises how it failed."""
    match await _while_connected(going.outcome(), going, request):
        case Ended(end) if (failure := find_run_failure(going.run_id, end)) is not None:
            raise failure
        case over:
            return over


async def _while_connected(
    work: Coroutine[Any, Any, Answer], going: RunAnswer, request: ApiRequest, seconds: float | None = None
) -> Answer:
    """What comes of the work, while the client is there. Raises TimeoutError when that time is over."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait((working, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if leaving.done():
            await going.stop()
            raise Refusal(408, "ClientGone", "The client has disconnected.")
        raise TimeoutError
    finally:
        leaving.cancel()
        working.cancel()


async def _wait_for_disconnect(request: ApiRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


class AnswerWriter(Protocol):
    """How a format writes what a client is told, as server-sent events."""

    def opening(self) -> bytes: ...

    def piece(self, piece: AnswerText | ReasoningText | StepBreak | Restart) -> bytes: ...

    def standing(self, text: str) -> bytes:
        """The end of a stream whose run waits."""
        ...

    def over(self, end: RunEnd) -> bytes: ...

    def failed(self, failure: Refusal, end: RunEnd | None) -> bytes:
        """The end of a stream that has no answer; without an end of the run where the database has failed."""
        ...


async def stream_answer(going: RunAnswer, writer: AnswerWriter, request: ApiRequest) -> ASGIApp:
    """The answer as it comes. What fails before any of it has come is raised."""
    told = going.told()
    first = asyncio.ensure_future(anext(told))
    try:
        with suppress(TimeoutError):
            pieces = await _while_connected(_shield(first), going, request, FIRST_BYTE_SECONDS)
            if isinstance(over := pieces[0], Ended) and (failure := find_run_failure(going.run_id, over.end)):
                raise failure
    except BaseException:
        first.cancel()
        await asyncio.wait((first,))
        await told.aclose()
        raise
    headers = [(name.lower().encode(), value.encode()) for name, value in going.headers.items()]
    stream = EventStream(_write_pieces(first, told, writer, going), bytes, request, headers, comes_again=False)
    return _CancellingStream(stream, going)


async def _shield(first: "asyncio.Future[Sequence[AnswerPiece]]") -> Sequence[AnswerPiece]:
    return await asyncio.shield(first)


async def _write_pieces(
    first: "asyncio.Future[Sequence[AnswerPiece]]", told: AnswerPieces, writer: AnswerWriter, going: RunAnswer
) -> Pieces:
    async with aclosing(told):
        opening = writer.opening()
        if not first.done():
            yield opening
            opening = b""
        try:
            yield opening + b"".join([_encode_piece(piece, writer, going) for piece in await first])
            async for pieces in told:
                if body := b"".join([_encode_piece(piece, writer, going) for piece in pieces]):
                    yield body
        except StoreError as error:
            yield writer.failed(Refusal(503, "StoreError", f"{error} ({going.run_id})"), None)


def _encode_piece(piece: AnswerPiece, writer: AnswerWriter, going: RunAnswer) -> bytes:
    match piece:
        case Ended(end):
            failure = find_run_failure(going.run_id, end)
            return writer.over(end) if failure is None else writer.failed(failure, end)
        case Waiting(text):
            return writer.standing(text)
        case said:
            return writer.piece(said)


class _CancellingStream:
    """A stream whose run is stopped when the client leaves. What ends it otherwise (the server, the token) does
    not."""

    def __init__(self, stream: EventStream[bytes], going: RunAnswer) -> None:
        self._stream = stream
        self._going = going

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = False

        async def heard() -> Any:
            nonlocal left
            message: HTTPReceiveMessage = await receive()  # pyright: ignore[reportAssignmentType] -- a request has no other messages
            left = left or message["type"] == "http.disconnect"
            return message

        await self._stream(scope, heard, send)
        if left:
            await self._going.stop()
