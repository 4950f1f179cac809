"""Search in the titles of sessions and in what users and agents said."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.said import Speaker, read_said
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.schemas import Cursor, Page, moment
from treadle.ports.overview import SearchQuery

SNIPPET_BEFORE, SNIPPET_AFTER = 60, 140
"""Characters of a snippet before and after the beginning of the match."""

MAX_CURSOR_DIGITS = 18
"""Both databases count positions with 64 bits."""
MAX_READS = 5
"""How often one request reads on in the journal."""


NumberCursor = Annotated[Cursor, Meta(extra_json_schema={"pattern": f"^[0-9]{{1,{MAX_CURSOR_DIGITS}}}$"})]


class SearchHit(Struct, frozen=True):
    """A message or an answer that contains the text."""

    kind: Speaker
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
    cursor: Annotated[Cursor, Meta(extra_json_schema={"pattern": f"^[0-9]{{1,{MAX_CURSOR_DIGITS}}}$"})] | None = (
        None
    )
    limit: Annotated[int, Meta(ge=1, le=100, description="How many.")] = 20


FIND = Operation("search.find", "GET", "/v1/search", scope="read", request=FindText, response=Page[SearchHit])


@FIND.handler
async def find_text(context: Context, request: FindText) -> Page[SearchHit]:
    """Search in messages and answers, the latest first.

    One request reads a limited part of the journal: a page can be empty and still have a `next`."""
    if request.cursor is not None and not (request.cursor.isdecimal() and len(request.cursor) <= MAX_CURSOR_DIGITS):
        raise UsageError("cursor: no page has this cursor. Use `next` of the page before.")
    principal = context.principal
    hits, cursor = list[SearchHit](), None if request.cursor is None else int(request.cursor)
    for _ in range(MAX_READS):
        missing = request.limit - len(hits)
        query = SearchQuery(request.text, cursor, missing, principal.agents, principal.only_owner)
        found = await context.overview.search(query)
        titles = await _read_titles(context, {placed.event.origin.session_id for placed in found.events})
        for placed in found.events:
            hit = _make_hit(placed.event, request.text, titles.get(placed.event.origin.session_id))
            hits += () if hit is None else (hit,)
        cursor = found.next
        if cursor is None or len(hits) == request.limit:
            break
    return Page(tuple(hits), None if cursor is None else str(cursor))


async def _read_titles(context: Context, sessions: Iterable[SessionId]) -> dict[SessionId, str]:
    records = [await context.sessions.find(session_id) for session_id in sorted(sessions)]
    return {record.session_id: record.title for record in records if record is not None}


def _make_hit(event: Event, text: str, title: str | None) -> SearchHit | None:
    """Return the hit in an event; None if the text is not in what was said, or its session was deleted."""
    if (found := read_said(event.data)) is None:
        return None
    kind, said = found
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
