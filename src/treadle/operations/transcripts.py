"""The transcript of runs and sessions, in pages. One fold makes it: `core.transcript`."""

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from treadle.core.transcript.fold import RunTranscript
from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.transcript import Item, RunTotals
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.schemas import Page
from treadle.ports.journal import RunRecord

_BEFORE = Meta(max_length=200, description="`next` of the page before.")
BeforeInRun = Annotated[str, _BEFORE, Meta(extra_json_schema={"pattern": r"^[0-9]+\.[0-9]+$"})]
BeforeInSession = Annotated[str, _BEFORE, Meta(extra_json_schema={"pattern": r"^.+:[0-9]+\.[0-9]+$"})]
Limit = Annotated[int, Meta(ge=1, le=500, description="How many items.")]


class TranscriptPage(Struct, frozen=True):
    """Items of a run, in their order."""

    items: tuple[Item, ...]
    sequence: int
    """The last durable event that the items include. A stream of changes continues after it."""
    totals: RunTotals
    next: str | None = None
    """The value of `before` for the items before these; null: there are none."""


class ReadRunTranscript(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    before: BeforeInRun | None = None
    limit: Limit = 100


class ReadSessionTranscript(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId
    before: BeforeInSession | None = None
    limit: Limit = 100


RUN = Operation(
    "runs.transcript",
    "GET",
    "/v1/runs/{run_id}/transcript",
    scope="read",
    request=ReadRunTranscript,
    response=TranscriptPage,
    errors=(404,),
)
SESSION = Operation(
    "sessions.transcript",
    "GET",
    "/v1/sessions/{session_id}/transcript",
    scope="read",
    request=ReadSessionTranscript,
    response=Page[Item],
    errors=(404,),
)


@RUN.handler
async def read_run_transcript(context: Context, request: ReadRunTranscript) -> TranscriptPage:
    """Get the transcript of a run.

    The latest items, with the text that is being written now. To follow the run, stream its events with
    `view=transcript` after `sequence`."""
    record = await context.visible_run(request.run_id)
    transcript = await load_transcript(request.run_id, context.service.read_stored(request.run_id))
    if record.outcome is None:
        for event in context.service.list_live_events(record.origin):
            transcript.apply(event)
    items = transcript.items
    if request.before is not None:
        place = _parse_place(request.before)
        items = [item for item in items if (item.sequence, item.part) < place]
    page = items[-request.limit :]
    following = f"{page[0].sequence}.{page[0].part}" if len(page) < len(items) else None
    return TranscriptPage(tuple(page), transcript.sequence, transcript.totals, following)


@SESSION.handler
async def read_session_transcript(context: Context, request: ReadSessionTranscript) -> Page[Item]:
    """Get the transcript of a session.

    The latest items of its runs, in their order. `next` is the value of `before` for the page with the items before
    these."""
    record = await context.visible_session(request.session_id)
    runs = [run for run in await context.visible_runs_of(record.session_id) if run.origin.parent_run_id is None]
    until, before = _parse_cursor(request.before, runs)
    items: list[Item] = []
    for run in reversed(runs[: until + 1]):
        found = (await load_transcript(run.origin.run_id, context.service.read_stored(run.origin.run_id))).items
        if before is not None and run is runs[until]:
            found = [item for item in found if (item.sequence, item.part) < before]
        items = [*found, *items]
        if len(items) > request.limit:
            items = items[-request.limit :]
            return Page(tuple(items), f"{items[0].run_id}:{items[0].sequence}.{items[0].part}")
    return Page(tuple(items))


async def load_transcript(run_id: RunId, events: AsyncIterable[Event]) -> RunTranscript:
    """Return the transcript of stored events."""
    transcript = RunTranscript(run_id)
    async for event in events:
        transcript.apply(event)
    return transcript


def fold_events(run_id: RunId, events: Iterable[Event]) -> RunTranscript:
    """Return the transcript of events, of a whole run or of a part that begins with a step."""
    transcript = RunTranscript(run_id)
    for event in events:
        transcript.apply(event)
    return transcript


def _parse_place(cursor: str) -> tuple[int, int]:
    """Return the place of the item that follows a page."""
    sequence, _, part = cursor.partition(".")
    if not (sequence.isdecimal() and part.isdecimal() and cursor.isascii()):
        raise UsageError("before: no page has this cursor. Use `next` of the page before.")
    return int(sequence), int(part)


def _parse_cursor(cursor: str | None, runs: Sequence[RunRecord]) -> tuple[int, tuple[int, int] | None]:
    """Return the index of the last run to read, and the place before which its items count."""
    if cursor is None:
        return len(runs) - 1, None
    run_id, _, place = cursor.rpartition(":")
    for index, run in enumerate(runs):
        if run.origin.run_id == run_id:
            return index, _parse_place(place)
    raise UsageError("before: no page has this cursor. Use `next` of the page before.")
