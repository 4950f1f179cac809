"""Search in the titles of sessions and in what users and agents said."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId, SessionId
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.schemas import Cursor, Page, moment
from treadle.ports.overview import SearchQuery

SNIPPET_BEFORE, SNIPPET_AFTER = 60, 140
"""Characters of a snippet before and after the beginning of the match."""

HitKind = Literal["message", "answer"]


class SearchHit(Struct, frozen=True):
    """A message or an answer that contains the text."""

    kind: HitKind
    session_id: SessionId
    title: str
    """Of the session."""
    run_id: RunId
    sequence: int
    at: datetime
    snippet: str
    """The text around the match, on one line."""


class FindText(Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=200, description="The text to find. Case is ignored.")]
    cursor: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=100, description="How many.")] = 20


FIND = Operation("search.find", "GET", "/v1/search", scope="read", request=FindText, response=Page[SearchHit])


@FIND.handler
async def find_text(context: Context, request: FindText) -> Page[SearchHit]:
    """Search in messages and answers, the latest first.

    One request reads a limited part of the journal: a page can be empty and still have a `next`."""
    if request.cursor is not None and not request.cursor.isdecimal():
        raise UsageError("cursor: no page has this cursor. Use `next` of the page before.")
    principal = context.principal
    found = await context.overview.search(
        SearchQuery(
            request.text,
            None if request.cursor is None else int(request.cursor),
            request.limit,
            principal.agents,
            principal.only_owner,
        )
    )
    titles = await _read_titles(context, {placed.event.origin.session_id for placed in found.events})
    hits = [
        hit
        for placed in found.events
        if (hit := _make_hit(placed.event, request.text, titles.get(placed.event.origin.session_id))) is not None
    ]
    return Page(tuple(hits), None if found.next is None else str(found.next))


async def _read_titles(context: Context, sessions: Iterable[SessionId]) -> dict[SessionId, str]:
    records = [await context.sessions.find(session_id) for session_id in sorted(sessions)]
    return {record.session_id: record.title for record in records if record is not None}


def _make_hit(event: Event, text: str, title: str | None) -> SearchHit | None:
    """Return the hit in an event; None if the text is not in what was said, or its session was deleted."""
    match event.data:
        case e.UserMessage(message=message) | e.MessageSteered(message=message):
            kind, said = "message", message.text
        case e.RunForked(asked=asked):
            kind, said = "message", asked
        case e.RunEnd(text=answer):
            kind, said = "answer", answer
        case _:
            return None
    at = said.lower().find(text.lower())
    if at < 0 or title is None:
        return None
    begin, end = max(0, at - SNIPPET_BEFORE), at + SNIPPET_AFTER
    snippet = " ".join(said[begin:end].split())
    snippet = f"{'…' if begin else ''}{snippet}{'…' if end < len(said) else ''}"
    where = event.origin
    return SearchHit(
        kind=kind,
        session_id=where.session_id,
        title=title,
        run_id=where.run_id,
        sequence=event.sequence,
        at=moment(event.timestamp),
        snippet=snippet,
    )
