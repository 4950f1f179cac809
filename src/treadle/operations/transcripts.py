"""The transcript of a session for people: messages, replies, tool calls with their results, and how runs ended.

It is derived from the journals, so it also shows what a compaction removed from what the model sees."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from treadle.domain import events as e
from treadle.domain.commands import format_command
from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Image, Message, Text, Thinking, ToolUse
from treadle.domain.runs import OutcomeKind
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.run_records import CallStatus
from treadle.operations.schemas import Page, moment
from treadle.ports.journal import RunRecord

EntryKind = Literal["user", "assistant", "tool", "end", "note"]
"""user: a message to the agent. assistant: a reply of the model. tool: one call with its result. end: how the run
ended, with its answer where no reply holds it. note: a compaction, a fork or a session command."""


class TranscriptEntry(Struct, frozen=True, omit_defaults=True):
    """One entry of a transcript."""

    kind: EntryKind
    run_id: RunId
    sequence: int
    """The event of the run that the entry begins with. With the run it is the identity of the entry."""
    at: datetime
    agent: str = ""
    text: str = ""
    """The message, the reply, the result of the call, or the answer of the run."""
    thinking: str = ""
    images: int = 0
    """How many images the message has."""
    steered: bool = False
    """The message was delivered to a run in progress."""
    step: int = 0
    call_id: str = ""
    tool: str = ""
    arguments: str = ""
    """The JSON text of the arguments that the call ran with."""
    status: CallStatus | None = None
    duration_ms: int = 0
    child_run_id: RunId | None = None
    """The child run that the call started."""
    outcome: OutcomeKind | None = None
    reason: str = ""
    next: str = ""
    """What can be done after the end."""


class ReadTranscript(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId
    before: Annotated[str, Meta(max_length=200, description="`next` of the page before.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=500, description="How many entries.")] = 100


TRANSCRIPT = Operation(
    "sessions.transcript",
    "GET",
    "/v1/sessions/{session_id}/transcript",
    scope="read",
    request=ReadTranscript,
    response=Page[TranscriptEntry],
    errors=(404,),
)


@TRANSCRIPT.handler
async def read_transcript(context: Context, request: ReadTranscript) -> Page[TranscriptEntry]:
    """Get the transcript of a session.

    The latest entries, in the order in which they happened. `next` is the value of `before` for the page with the
    entries before these."""
    record = await context.visible_session(request.session_id)
    runs = [run for run in await context.visible_runs_of(record.session_id) if run.origin.parent_run_id is None]
    until, before = _parse_cursor(request.before, runs)
    entries: list[TranscriptEntry] = []
    for run in reversed(runs[: until + 1]):
        events = [event async for event in context.service.read_stored(run.origin.run_id)]
        found = build_transcript(events, run.agent)
        if before is not None and run is runs[until]:
            found = [entry for entry in found if entry.sequence < before]
        entries = [*found, *entries]
        if len(entries) > request.limit:
            entries = entries[-request.limit :]
            return Page(tuple(entries), f"{entries[0].run_id}:{entries[0].sequence}")
    return Page(tuple(entries))


def _parse_cursor(cursor: str | None, runs: Sequence[RunRecord]) -> tuple[int, int | None]:
    """Return the index of the last run to read, and the sequence before which its entries count."""
    if cursor is None:
        return len(runs) - 1, None
    run_id, _, sequence = cursor.rpartition(":")
    for index, run in enumerate(runs):
        if run.origin.run_id == run_id and sequence.isdigit():
            return index, int(sequence)
    raise UsageError("before: no page has this cursor. Use `next` of the page before.")


# ── From events to entries ─────────────────────────────────────────────────────────────────────────


def build_transcript(events: Iterable[Event], agent: str) -> list[TranscriptEntry]:
    """Return the entries of one run."""
    transcript = _Transcript(agent)
    for event in events:
        transcript.add(event)
    return transcript.entries


class _Transcript:
    """Collects entries. A call has its entry from the reply that requests it; later events fill it in."""

    def __init__(self, agent: str) -> None:
        self.entries: list[TranscriptEntry] = []
        self._agent = agent
        self._calls: dict[str, int] = {}
        self._last_text = ""

    def add(self, event: Event) -> None:
        match event.data:
            case e.UserMessage(message=message):
                self._say(event, message)
            case e.MessageSteered(message=message):
                self._say(event, message, steered=True)
            case e.RunQueued(command=command) if command is not None:
                self._append(event, "note", text=format_command(command))
            case e.RunForked(step=step, run_id=source, asked=asked):
                self._append(event, "note", text=f"Continues from step {step} of {source}.")
                if asked:
                    self._append(event, "user", text=asked)
            case e.CommandObeyed(said=said):
                self._append(event, "note", text=said)
                self._last_text = said
            case e.ContextCompacted():
                self._append(event, "note", text="The earlier conversation was replaced with a summary.")
            case e.LlmResponse():
                self._reply(event, event.data)
            case e.RunEnd():
                self._end(event, event.data)
            case _:
                self._add_to_call(event)

    def _append(self, event: Event, kind: EntryKind, **fields: object) -> None:
        self.entries.append(
            TranscriptEntry(kind, event.run_id, event.sequence, moment(event.timestamp), self._agent, **fields)  # pyright: ignore[reportArgumentType] -- the callers name fields of the entry
        )

    def _say(self, event: Event, message: Message, steered: bool = False) -> None:
        images = sum(isinstance(part, Image) for part in message.parts)
        self._append(event, "user", text=message.text, images=images, steered=steered)

    def _reply(self, event: Event, reply: e.LlmResponse) -> None:
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        thinking = "\n\n".join(part.text for part in reply.parts if isinstance(part, Thinking) and part.text)
        if text or thinking:
            self._append(
                event, "assistant", text=text, thinking=thinking, step=reply.step, duration_ms=reply.duration_ms
            )
        self._last_text = text or self._last_text
        for part in reply.parts:
            if isinstance(part, ToolUse):
                self._calls[part.call_id] = len(self.entries)
                self._append(
                    event,
                    "tool",
                    step=reply.step,
                    call_id=part.call_id,
                    tool=part.name,
                    arguments=part.arguments,
                    status="asked",
                )

    def _end(self, event: Event, end: e.RunEnd) -> None:
        text = "" if end.text == self._last_text else end.text
        self._append(event, "end", text=text, outcome=end.outcome, reason=end.reason, next=end.next)

    def _add_to_call(self, event: Event) -> None:
        match event.data:
            case e.ToolCallStart(call_id=call_id, arguments=arguments):
                self._fill(call_id, arguments=arguments, status="running")
            case e.ToolCallEnd(call_id=call_id, content=content, duration_ms=duration):
                self._fill(call_id, text=content, status="ok", duration_ms=duration)
            case e.ToolCallError(call_id=call_id, content=content, kind=kind, duration_ms=duration):
                self._fill(call_id, text=content, status=kind, duration_ms=duration)
            case (
                e.ToolCallBlocked(call_id=call_id, content=content)
                | e.HookBlocked(call_id=call_id, content=content)
            ):
                self._fill(call_id, text=content, status="blocked")
            case e.AgentSpawn(call_id=call_id, run_id=child):
                self._fill(call_id, child_run_id=child)
            case _:
                pass

    def _fill(self, call_id: str, **fields: object) -> None:
        index = self._calls.get(call_id)
        if index is not None:
            self.entries[index] = replace(self.entries[index], **fields)
