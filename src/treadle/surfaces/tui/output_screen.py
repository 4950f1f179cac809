"""The whole output of a tool call on the full screen. It reads the next part when the user scrolls to it."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.markup import escape
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip

from treadle.domain.errors import TreadleError
from treadle.domain.transcript import CallItem
from treadle.surfaces.markdown.palette import PLAIN, Palette
from treadle.surfaces.markdown.wrapping import clean, hard_wrap
from treadle.surfaces.terminal.call_view import summarize_call
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.keys import KeyMap

MORE_SCREENS = 2
"""The next part is read when at most this many screens are left below."""
Read = Callable[[CallItem], AsyncIterator[str]]


class OutputView(ScrollView, can_focus=True):
    """Shows rows of text, wrapped to its width. Only visible lines are drawn."""

    DEFAULT_CSS = """
    OutputView {
        height: 1fr; background: $surface; border: round $primary; padding: 0 1; scrollbar-size-vertical: 1;
        overflow-x: hidden; overflow-y: scroll;
    }
    OutputView:focus { border: round $primary; }
    """

    class NearEnd(Message):
        """The user has scrolled close to the last line that is read."""

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._palette = palette
        self._rows: list[str] = []
        self._lines: list[str] = []
        self._starts: list[int] = []
        """The first line of each row."""
        self._wrapped_width = 0

    @property
    def rows(self) -> int:
        return len(self._rows)

    @property
    def top_row(self) -> int:
        """The first row that is visible, counted from 1."""
        return bisect_right(self._starts, self.scroll_offset.y)

    @property
    def bottom_row(self) -> int:
        return bisect_right(self._starts, self.scroll_offset.y + max(0, self.size.height - 1))

    @property
    def is_near_end(self) -> bool:
        height = max(1, self.size.height)
        return self.scroll_target_y + (1 + MORE_SCREENS) * height >= len(self._lines)

    def clear(self) -> None:
        self._rows, self._lines, self._starts = [], [], []
        self.scroll_to(y=0, animate=False, immediate=True, force=True)

    def add(self, rows: Sequence[str]) -> None:
        """Add rows at the end."""
        self._rows += rows
        self._wrap(rows)

    def _wrap(self, rows: Sequence[str]) -> None:
        width = self._wrapped_width = max(1, self.scrollable_content_region.width)
        for row in rows:
            self._starts.append(len(self._lines))
            shown = clean(row)
            if len(shown) <= width and shown.isascii():
                self._lines.append(shown)
            else:
                found = hard_wrap([(shown, PLAIN)], width) or [[]]
                self._lines += ["".join(segment.text for segment in line) for line in found]
        self.virtual_size = Size(width, len(self._lines))
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Wrap the rows again and keep the first visible one in its place."""
        if self._wrapped_width not in (0, self.scrollable_content_region.width):
            top = max(0, self.top_row - 1)
            self._lines, self._starts = [], []
            self._wrap(self._rows)
            if self._starts:
                self.scroll_to(y=self._starts[top], animate=False, immediate=True, force=True)
        self.post_message(self.NearEnd())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.NearEnd())

    def render_line(self, y: int) -> Strip:
        line = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        text = self._lines[line] if line < len(self._lines) else ""
        style = self.rich_style + self._palette.text
        return Strip([Segment(text, style)]).adjust_cell_length(width, style)


class OutputScreen(ModalScreen[None]):
    """Shows the output of one of several calls."""

    DEFAULT_CSS = """
    OutputScreen { background: $background; }
    """

    def __init__(
        self, palette: Palette, key_map: KeyMap, calls: Sequence[CallItem], index: int, read: Read
    ) -> None:
        super().__init__()
        self._key_map = key_map
        self._calls, self._index, self._read = calls, index, read
        self._view = OutputView(palette)
        self._parts: AsyncIterator[str] | None = None
        self._rest = ""
        """The last row of what is read, which the next part may continue."""
        self._error = ""
        self._is_reading = False
        self._goes_to_end = False

    def compose(self) -> ComposeResult:
        yield self._view

    def on_mount(self) -> None:
        self._view.focus()
        self.call_after_refresh(self._open)

    def _open(self) -> None:
        """Begin to show the current call."""
        item = self._calls[self._index]
        self._parts, self._rest, self._error, self._goes_to_end = self._read(item), "", "", False
        self._view.clear()
        place = texts.COUNT.format(index=self._index + 1, count=len(self._calls))
        room = max(10, self.size.width - len(item.name) - len(place) - 12)
        self._view.border_title = escape(f"{one_line(item.name)} {summarize_call(item.arguments, room)} · {place}")
        self._read_more()

    def on_output_view_near_end(self) -> None:
        self._show_place()
        if self._view.is_near_end:
            self._read_more()

    def _read_more(self) -> None:
        if self._parts is not None and not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read_part(self._parts))

    async def _read_part(self, parts: AsyncIterator[str]) -> None:
        """Read the next part; or all of them, to go to the end."""
        part, error = None, ""
        try:
            part = await anext(parts, None)
        except TreadleError as failure:
            error = str(failure)
        self._is_reading = False
        if parts is not self._parts:  # another call is shown meanwhile
            self._read_more()
            return
        if part is None:
            self._parts, self._error = None, error
            self._view.add([self._rest] if self._rest or not self._view.rows else [])
        else:
            *rows, self._rest = f"{self._rest}{part}".split("\n")
            self._view.add(rows)
        if self._goes_to_end:
            self._view.scroll_end(animate=False, immediate=True, force=True)
        self._show_place()
        if self._goes_to_end or self._view.is_near_end:
            self._read_more()

    def _show_place(self) -> None:
        view = self._view
        more = "" if self._parts is None else "+"
        place = texts.OUTPUT_PLACE.format(first=view.top_row, last=view.bottom_row, count=f"{view.rows}{more}")
        view.border_subtitle = escape(f"{self._error or place} · {texts.OUTPUT_HINT.format(keys=self._key_map)}")

    def on_key(self, event: events.Key) -> None:
        view, action = self._view, self._key_map.find_action("output", event.key)
        if action is None:
            return
        event.stop()
        event.prevent_default()
        page = max(1, view.size.height - 1)
        match action:
            case "close":
                self.dismiss(None)
            case "line_down" | "line_up":
                self._go_to(view.scroll_offset.y + (1 if action == "line_down" else -1))
            case "read_on" | "read_back":
                self._go_to(view.scroll_offset.y + (page if action == "read_on" else -page))
            case "begin":
                self._go_to(0)
            case "end":
                self._goes_to_end = True
                view.scroll_end(animate=False, immediate=True, force=True)
                self._read_more()
            case _:
                self._index = (self._index + (1 if action == "next_call" else -1)) % len(self._calls)
                self._open()

    def _go_to(self, y: float) -> None:
        self._goes_to_end = False
        self._view.scroll_to(y=y, animate=False, immediate=True, force=True)
