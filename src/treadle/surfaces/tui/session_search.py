"""Search in the messages of all sessions."""

from typing import TYPE_CHECKING

from treadle.operations.search import FIND, FindText
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.terminal.output import when

if TYPE_CHECKING:
    from treadle.surfaces.tui.picker_screen import PickerRow

MAX_PAGES = 5
MAX_HITS = 50


async def search_sessions(link: HomeLink, query: str) -> "list[PickerRow]":
    """Return the sessions whose messages contain a text, the latest first."""
    from treadle.surfaces.tui.picker_screen import PickerRow

    found: dict[str, PickerRow] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await link.call(FIND, FindText(query[:200], cursor, MAX_HITS))
        for hit in page.items:
            if hit.session_id not in found:
                title = hit.title or hit.session_id
                found[hit.session_id] = PickerRow(hit.session_id, title, when(hit.at), found=hit.snippet)
        cursor = page.next
        if cursor is None or len(found) >= MAX_HITS:
            break
    return list(found.values())
