"""The stream of an exchange: opening, snapshots, the changes of the transcript as events, and the end."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from itertools import takewhile
from typing import Any

import msgspec

from treadle.domain.errors import StoreError
from treadle.domain.ids import RunId
from treadle.domain.transcript import EndItem
from treadle.operations.context import Context
from treadle.operations.pauses import ApprovalPause, ClientPause, QuestionPause, find_pauses
from treadle.operations.transcript_stream import TranscriptChanges
from treadle.operations.transcripts import RunTranscript, load_transcript
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.ag_ui import events as e
from treadle.surfaces.http.ag_ui.interrupts import (
    APPROVAL_SCHEMA,
    OpenInterrupt,
    ProtocolError,
    describe_pause,
    format_time,
    list_interrupts,
    make_interrupt_id,
)
from treadle.surfaces.http.ag_ui.messages import adopt_ids, make_messages
from treadle.surfaces.http.ag_ui.requests import RunInput
from treadle.surfaces.http.ag_ui.threads import Exchange
from treadle.surfaces.http.ag_ui.writer import TranscriptWriter
from treadle.surfaces.http.stream_memory import ReaderMemory

MAX_SNAPSHOT_MESSAGES = 1000
"""A snapshot has the latest messages of a thread."""
_decode = msgspec.json.Decoder(TranscriptChanges).decode


def write_protocol_error(wanted: RunInput, error: ProtocolError) -> bytes:
    """Return the whole stream of a request that breaks a rule of AG-UI."""
    started = e.RunStarted(
        thread_id=wanted.thread_id, run_id=wanted.run_id, protocol_version=e.PROTOCOL_VERSION, metadata={}
    )
    return e.encode_event(started) + e.encode_event(e.RunError(message=str(error), code=error.code))


class ExchangeStream:
    """Makes the stream of one exchange."""

    def __init__(self, context: Context, wanted: RunInput, exchange: Exchange, memory: ReaderMemory) -> None:
        self._context = context
        self._wanted = wanted
        self._exchange = exchange
        self._memory = memory
        self._client_tools = frozenset(tool.name for tool in wanted.tools or ())

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events until the run ends, or waits for a person or for the client."""
        exchange = self._exchange
        metadata = {"treadle": {"run_id": exchange.run_id, "session_id": exchange.session_id}}
        yield e.encode_event(
            e.RunStarted(
                thread_id=self._wanted.thread_id,
                run_id=self._wanted.run_id,
                protocol_version=e.PROTOCOL_VERSION,
                metadata=metadata,
            )
        )
        try:
            async with aclosing(self._read_run()) as events:
                async for event in events:
                    yield event
        except StoreError as error:
            yield e.encode_event(e.RunError(message=str(error), code="store_error"))

    async def _read_run(self) -> AsyncGenerator[bytes, None]:
        exchange, service = self._exchange, self._context.service
        until = None if exchange.needs_messages else exchange.after
        earlier = await self._list_earlier_runs() if exchange.needs_messages else ()
        is_early = any(run.outcome is None for run in earlier)
        transcript = await self._load(exchange.run_id, until)
        asked = "" if exchange.needs_messages else exchange.asked
        writer = TranscriptWriter(
            items=transcript.items,
            totals=transcript.totals,
            state=self._wanted.state,
            asked=asked,
            client_tools=self._client_tools,
            known_results=frozenset(
                each.tool_call_id or "" for each in self._wanted.messages if each.role == "tool"
            ),
        )
        if exchange.needs_messages and not is_early:
            yield await self._write_snapshot(writer)
        yield _encode(writer.begin())
        after, is_over = transcript.sequence, False
        while not is_over:
            async with aclosing(service.follow_transcript(exchange.run_id, after, self._memory)) as stream:
                async for encoded in stream:
                    changes = _decode(encoded)
                    after = changes.sequence
                    body = _encode(writer.apply(changes.changes))
                    if is_early and writer.totals.status != "pending":  # the earlier runs have ended
                        is_early = False
                        writer.is_outdated = True
                    if writer.is_outdated:
                        writer.is_outdated = False
                        body += await self._write_snapshot(writer)
                    end = await self._find_end(writer)
                    is_over = end is not None
                    if body or end:
                        yield body + (end or b"")
                    if is_over:
                        return

    async def _load(self, run_id: RunId, until: int | None) -> RunTranscript:
        """Return the transcript of a run up to a sequence, or up to now."""
        if until is None:
            return await load_transcript(run_id, self._context.service.read_stored(run_id))
        transcript = RunTranscript(run_id)
        if until > 0:
            async with aclosing(self._context.service.read_stored(run_id)) as stored:
                async for event in stored:
                    if event.sequence > until:
                        break
                    transcript.apply(event)
        return transcript

    async def _write_snapshot(self, writer: TranscriptWriter) -> bytes:
        """Return a snapshot of all messages of the thread."""
        messages = writer.messages
        for run in reversed(await self._list_earlier_runs()):
            if len(messages) >= MAX_SNAPSHOT_MESSAGES:
                break
            transcript = await self._load(run.origin.run_id, None)
            messages = [*make_messages(transcript.items, self._client_tools), *messages]
        latest = messages[-MAX_SNAPSHOT_MESSAGES:]
        return e.encode_event(e.MessagesSnapshot(messages=tuple(adopt_ids(latest, self._wanted.messages))))

    async def _list_earlier_runs(self) -> list[RunRecord]:
        """Return the runs of the thread before the one of the exchange."""
        found = await self._context.visible_runs_of(self._exchange.session_id)
        runs = [run for run in found if run.origin.parent_run_id is None]
        return list(takewhile(lambda run: run.origin.run_id != self._exchange.run_id, runs))

    async def _find_end(self, writer: TranscriptWriter) -> bytes | None:
        """Return the end of the stream, if the run has ended or waits for someone; otherwise None."""
        if (end := writer.end) is not None:
            return _encode([*writer.close(is_suspended=False), self._make_end(end, writer)])
        if writer.totals.status != "waiting" and not writer.has_open_question:
            return None
        record = await self._context.service.run(self._exchange.run_id)
        pauses = await find_pauses(self._context, record)
        if found := list_interrupts(pauses):
            interrupts = tuple([self._make_interrupt(each, writer) for each in found])
            return self._finish(writer, e.Interrupted(interrupts), is_suspended=True)
        calls = [call_id for each in pauses if isinstance(each, ClientPause) for call_id in each.call_ids]
        if calls:
            pending = tuple(map(writer.find_call, calls))
            return self._finish(writer, e.Success(pending), is_suspended=True)
        return None

    def _finish(self, writer: TranscriptWriter, outcome: Any, *, is_suspended: bool) -> bytes:
        finished = e.RunFinished(
            thread_id=self._wanted.thread_id,
            run_id=self._wanted.run_id,
            outcome=outcome,
            usage=writer.make_usage(),
        )
        return _encode([*writer.close(is_suspended=is_suspended), finished])

    def _make_end(self, end: EndItem, writer: TranscriptWriter) -> e.AgUiEvent:
        if end.status == "failed":
            message = " ".join(part for part in (end.reason, end.next) if part) or f"The run ended: {end.outcome}."
            return e.RunError(message=message, code=end.outcome, usage=writer.make_usage())
        answer = next((item for item in writer.items if item.key == end.answer_key), None)
        text = end.text or getattr(answer, "text", "")
        return e.RunFinished(
            thread_id=self._wanted.thread_id,
            run_id=self._wanted.run_id,
            outcome=e.Cancelled() if end.status == "cancelled" else e.Success(),
            result=None if end.status == "cancelled" else {"outcome": end.outcome, "text": text},
            usage=writer.make_usage(),
        )

    def _make_interrupt(self, pause: OpenInterrupt, writer: TranscriptWriter) -> e.Interrupt:
        run_id = pause.record.origin.run_id if isinstance(pause, ApprovalPause) else pause.run_id
        is_own = run_id == self._exchange.run_id
        subagent = "" if is_own else run_id
        match pause:
            case ApprovalPause(record):
                return e.Interrupt(
                    id=make_interrupt_id(pause),
                    reason="tool_call",
                    message=f"{record.tool} needs an approval: {record.reason}.",
                    tool_call_id=writer.find_call(record.call_id) if is_own else "",
                    response_schema=APPROVAL_SCHEMA,
                    expires_at=format_time(record.expires_at),
                    subagent_run_id=subagent,
                    metadata={"treadle": {"tool": record.tool, "arguments": record.arguments}},
                )
            case QuestionPause():
                answer = {"type": "string", **({"enum": list(pause.options)} if pause.options else {})}
                return e.Interrupt(
                    id=make_interrupt_id(pause),
                    reason="input_required",
                    message=pause.question,
                    tool_call_id=writer.find_call(pause.during or pause.call_id) if is_own else "",
                    response_schema={"type": "object", "properties": {"answer": answer}, "required": ["answer"]},
                    expires_at=format_time(pause.expires_at),
                    subagent_run_id=subagent,
                )
            case _:
                return e.Interrupt(
                    id=make_interrupt_id(pause),
                    reason=f"treadle:{pause.reason}",
                    message=describe_pause(pause),
                    subagent_run_id=subagent,
                )


def _encode(events: Iterable[e.AgUiEvent] | Iterator[e.AgUiEvent]) -> bytes:
    return b"".join(map(e.encode_event, events))
