"""Search in the transcript of the session: what was found is listed, and the one that is chosen is shown."""

from collections.abc import Iterator, Sequence

from treadle.domain.transcript import AnswerItem, CallItem, MessageItem, NoteItem, QuestionItem, ThinkingItem
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.controlled_app import ControlledApp
from treadle.surfaces.tui.picker_screen import PickerRow, PickerScreen
from treadle.surfaces.tui.transcript import ShownItem

MAX_FOUND = 200
BEFORE, AFTER = 30, 90
"""Characters around what was found."""


async def choose_found(app: ControlledApp) -> None:
    """Let the user search, and scroll to what is chosen."""
    items = list(app.child_runs.transcript.items)

    async def load() -> Sequence[PickerRow]:
        return [row for index, item in reversed(list(enumerate(items))) for row in _make_rows(index, item, "")]

    async def search(query: str) -> Sequence[PickerRow]:
        found = (row for index, item in reversed(list(enumerate(items))) for row in _make_rows(index, item, query))
        return [row for _, row in zip(range(MAX_FOUND), found, strict=False)]

    picked = await app.ask(
        PickerScreen(app.palette, app.key_map, texts.FIND_TITLE, texts.FIND_HINT, load, search=search)
    )
    if picked is not None:
        app.view.show_item(items[int(picked.key)])


def _make_rows(index: int, shown: ShownItem, query: str) -> Iterator[PickerRow]:
    """Yield the row of an item. Without a query only messages are listed; with one, what contains it."""
    kind, text = _find_text(shown)
    if not query:
        if isinstance(shown.item, MessageItem):
            yield PickerRow(str(index), one_line(text), kind)
        return
    at = text.casefold().find(query.casefold())
    if at >= 0:
        start = max(0, at - BEFORE)
        yield PickerRow(str(index), one_line(text[start : at + len(query) + AFTER]), kind)


def _find_text(shown: ShownItem) -> tuple[str, str]:
    match shown.item:
        case MessageItem(text=text):
            return texts.FIND_KINDS["message"], text
        case AnswerItem(text=text):
            return texts.FIND_KINDS["answer"], text
        case ThinkingItem(text=text):
            return texts.FIND_KINDS["thinking"], text
        case CallItem(name=name, arguments=arguments, result=result):
            return name, f"{arguments}\n{result}"
        case QuestionItem(question=question, answer=answer):
            return texts.FIND_KINDS["question"], f"{question} {answer}"
        case NoteItem(text=text):
            return texts.FIND_KINDS["note"], text
        case _:
            return "", ""
