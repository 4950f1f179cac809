"""The transcript as a widget: pre-rendered lines, of which only the visible ones are drawn.

Finished items are rendered once. The answer that is being written keeps the lines of its finished blocks. Changes
are collected and drawn at most five times a second. Older items are rendered when the user scrolls to them."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.events import Click, MouseScrollUp, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from treadle.domain.transcript import AnswerItem, CallItem, ChildItem, MessageItem, NoteItem, ThinkingItem
from treadle.surfaces.markdown.palette import PLAIN, Palette
from treadle.surfaces.markdown.stream import MarkdownStream
from treadle.surfaces.markdown.wrapping import Line
from treadle.surfaces.tui.item_view import MARGIN, MAX_WIDTH, list_children, render_item
from treadle.surfaces.tui.keys import DEFAULT_KEYS, KeyMap
from treadle.surfaces.tui.transcript import SessionTranscript, ShownItem

FLUSH_SECONDS = 0.2
"""The display changes at most five times a second."""
ECHO_PAUSE_SECONDS = 0.03
MAX_PAUSES = 4
"""A key is shown first: while keys arrive, changes of the transcript wait for them, this many times at most."""
FIRST_LINES = 120
"""Lines that are rendered when a session is opened, or after the width has changed."""
MORE_LINES = 200
FINAL_CHARACTERS = 30_000
"""A finished answer of at most this length is rendered again as a whole, which highlights code more exactly."""


class _Block:
    """An item and its lines."""

    __slots__ = ("consumed", "done_strips", "item", "key", "stream", "strips")

    def __init__(self, item: ShownItem) -> None:
        self.item = item
        self.key: object = None
        """What the lines were rendered for."""
        self.strips: list[Strip] = []
        self.stream: MarkdownStream | None = None
        self.consumed = 0
        self.done_strips: list[Strip] = []


class TranscriptView(ScrollView, can_focus=False):
    """Shows a transcript."""

    DEFAULT_CSS = """
    TranscriptView {
        height: 1fr; background: $background; scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: scroll;
    }
    """

    class ReachedTop(Message):
        """The user has scrolled to the first item that is loaded."""

    @dataclass
    class ChildClicked(Message):
        """The user has clicked on the line of a child run."""

        shown: ShownItem
        child: ChildItem

    def __init__(
        self, transcript: Callable[[], SessionTranscript], palette: Palette, key_map: KeyMap = DEFAULT_KEYS
    ) -> None:
        super().__init__()
        self._key_map = key_map
        self._transcript = transcript
        self.palette = palette
        self.details = False
        self.thinking = False
        self._blocks: list[_Block] = []
        self._first = 0
        """The first item that is rendered."""
        self._tops: list[int] = []
        self._height = 0
        self._known: dict[int, _Block] = {}
        self._dirty: set[int] = set()
        self._all_dirty = True
        self._flush_planned = False
        self._pauses = 0
        self.is_key_pending: Callable[[], bool] = lambda: False
        self._follows = True
        """Whether the view stays at the end."""
        self.has_news = False
        """Something was added below what is visible."""
        self.on_news: Callable[[], None] = lambda: None
        self._rendered_width = 0
        self._cache: dict[int, Strip] = {}
        """Visible lines as they were drawn: a line that only moves is not rendered again."""
        self.asked_top = False

    @property
    def allow_select(self) -> bool:
        return True

    # ── Changes ──

    def note_change(self, item: ShownItem | None) -> None:
        """Plan to draw a change."""
        if item is None or id(item) not in self._known:
            self._all_dirty = True
        else:
            self._dirty.add(id(item))
        if not self._flush_planned and self.is_mounted:
            self._flush_planned = True
            self.set_timer(FLUSH_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        if self._pauses < MAX_PAUSES and self.is_key_pending():
            self._pauses += 1
            self.set_timer(ECHO_PAUSE_SECONDS, self._flush_now)
            return
        self._flush_planned, self._pauses = False, 0
        self.flush()

    def flush(self) -> None:
        """Draw all changes."""
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        if width != self._rendered_width:
            self._rendered_width, self._first, self._all_dirty = width, -1, True
            self._known.clear()
        was_at_end, height = self._follows, self._height
        if self._all_dirty:
            self._rebuild(width)
            start = 0
        else:
            start = self._render_dirty(width)
        self._dirty.clear()
        self._all_dirty = False
        self._measure(start)
        if was_at_end:
            self.scroll_to(y=self._height, animate=False, immediate=True, force=True)
        elif self._height > height:
            self._set_news(True)
        self.refresh()

    def _set_news(self, has_news: bool) -> None:
        if has_news != self.has_news:
            self.has_news = has_news
            self.on_news()

    def _rebuild(self, width: int) -> None:
        """Match the blocks to the items. Only the last items of a long transcript are rendered."""
        items = self._transcript().items
        shown = self._blocks[0].item if self._blocks and self._first >= 0 else None
        self._first = next((index for index, item in enumerate(items) if item is shown), -1) if shown else -1
        known, self._known = self._known, {}
        blocks: list[_Block] = []
        lines, index = 0, len(items)
        while index > 0 and (index > self._first >= 0 or (self._first < 0 and lines < FIRST_LINES)):
            index -= 1
            block = known.get(id(items[index])) or _Block(items[index])
            self._draw(block, width)
            self._known[id(block.item)] = block
            blocks.append(block)
            lines += len(block.strips)
        self._blocks, self._first = blocks[::-1], index

    def _render_dirty(self, width: int) -> int:
        """Render the changed items and return the index of the first one."""
        first = len(self._blocks)
        for index in range(len(self._blocks) - 1, -1, -1):
            block = self._blocks[index]
            if id(block.item) in self._dirty:
                self._draw(block, width)
                first = index
        return first

    def _measure(self, start: int) -> None:
        """Compute where the blocks begin, from an index on."""
        start = min(start, len(self._tops), len(self._blocks))
        top = self._tops[start - 1] + len(self._blocks[start - 1].strips) if start else 0
        del self._tops[start:]
        self._cache = {line: strip for line, strip in self._cache.items() if line < top} if start else {}
        for block in self._blocks[start:]:
            self._tops.append(top)
            top += len(block.strips)
        self._height = top + 1
        size = Size(self._rendered_width, self._height)
        if size != self.virtual_size:
            self.virtual_size = size

    # ── Lines ──

    def _draw(self, block: _Block, width: int) -> None:
        item = block.item
        key = (item.version, width, self.palette.name, item.expanded, self.details, self.thinking)
        if key == block.key:
            return
        block.key = key
        answer = item.item
        if isinstance(answer, AnswerItem) and (not item.is_final or self._keeps_stream(block, answer)):
            self._render_stream(block, answer, width)
            return
        block.stream = None
        lines = render_item(item, width, self.palette, self._key_map, details=self.details, thinking=self.thinking)
        block.strips = self._make_strips(lines, width)

    def _keeps_stream(self, block: _Block, item: AnswerItem) -> bool:
        """Return whether a finished answer keeps the lines that it was streamed with."""
        return (
            block.stream is not None
            and len(item.text) > FINAL_CHARACTERS
            and item.text.startswith(item.text[: block.consumed])
        )

    def _render_stream(self, block: _Block, item: AnswerItem, width: int) -> None:
        """Render what was added to an answer that is being written."""
        inner = min(max(10, width - len(MARGIN) - 1), MAX_WIDTH)
        if block.stream is None or len(item.text) < block.consumed:
            block.stream, block.consumed, block.done_strips = MarkdownStream(inner, self.palette), 0, []
        stream = block.stream
        stream.append(item.text[block.consumed :])
        block.consumed = len(item.text)
        if item.state != "writing":
            stream.finish()
        else:
            stream.update()
        if not block.done_strips:
            block.done_strips = self._make_strips([[]], width)
        fresh = stream.finished_lines[len(block.done_strips) - 1 :]
        block.done_strips += self._make_strips([_indent(line) for line in fresh], width)
        block.strips = block.done_strips + self._make_strips([_indent(line) for line in stream.open_lines], width)

    def _make_strips(self, lines: list[Line], width: int) -> list[Strip]:
        base = self.rich_style
        made: list[Strip] = []
        for line in lines:
            segments = [Segment(segment.text, base + (segment.style or PLAIN)) for segment in line]
            made.append(Strip(segments).adjust_cell_length(width, base))
        return made

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return visible lines. The view has no border, padding or tint, so it does not need the general way, which
        takes several times as long and delays the echo of keys."""
        width, base = self.region.width, self.rich_style
        strips = [self.render_line(y).adjust_cell_length(width, base) for y in crop.line_range]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, self.background_colors[1]) for strip in strips]
        first, last = crop.column_span
        return strips if (first, last) == (0, width) else [strip.crop(first, last) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """Return one visible line."""
        line = y + self.scroll_offset.y
        selection = self.text_selection
        if selection is None and line in self._cache:
            return self._cache[line]
        width = self.size.width
        index = bisect_right(self._tops, line) - 1
        if index < 0 or line - self._tops[index] >= len(self._blocks[index].strips):
            return Strip.blank(width, self.rich_style)
        strip = self._blocks[index].strips[line - self._tops[index]]
        drawn = strip.crop_extend(0, width, self.rich_style)
        if selection is not None:
            span = selection.get_span(line)
            drawn = drawn if span is None else _select(drawn, span, self.palette.selected)
            return drawn.apply_offsets(0, line)
        drawn = self._cache[line] = drawn.apply_offsets(0, line)
        return drawn

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text under the selection, without the spaces at the ends of lines."""
        rows = [strip.text.rstrip() for block in self._blocks for strip in block.strips]
        return selection.extract("\n".join(rows)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    # ── Scrolling ──

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._follows = new_value >= self.max_scroll_y - 1
        if self._follows:
            self._set_news(False)
        if new_value < 3 and new_value < old_value:
            self.show_earlier()

    def show_earlier(self) -> None:
        """Render the items before the first one, or ask for more."""
        if self._first > 0:
            self._render_earlier()
        elif not self.asked_top:
            self.asked_top = True
            self.post_message(self.ReachedTop())

    def _render_earlier(self) -> None:
        items, added, lines = self._transcript().items, list[_Block](), 0
        while self._first > 0 and lines < MORE_LINES:
            self._first -= 1
            block = _Block(items[self._first])
            self._draw(block, self._rendered_width)
            self._known[id(block.item)] = block
            added.append(block)
            lines += len(block.strips)
        self._blocks[:0] = added[::-1]
        position = self.scroll_offset.y + lines
        self._measure(0)
        self._follows = False
        self.scroll_to(y=position, animate=False, immediate=True, force=True)
        self.refresh()

    def keep_place(self) -> None:
        """Show the items that were just added before the first one, without moving what is visible."""
        items = self._transcript().items
        shown = self._blocks[0].item if self._blocks else None
        self._first = next((index for index, item in enumerate(items) if item is shown), 0)
        self.asked_top = False
        self._all_dirty = False
        if self._blocks:
            self._render_earlier()
        else:
            self._all_dirty = True
            self.flush()

    def show_item(self, shown: ShownItem) -> None:
        """Scroll to an item of the transcript."""
        while self._first > 0 and id(shown) not in self._known:
            self._render_earlier()
        index = next((number for number, block in enumerate(self._blocks) if block.item is shown), None)
        if index is not None:
            self._follows = False
            self.scroll_to(y=self._tops[index], animate=False, immediate=True, force=True)

    def show_neighbour(self, direction: int) -> bool:
        """Scroll to the message of the user before the first visible line, or to the one after it. Return whether
        there is one."""
        while True:
            top = self.scroll_offset.y
            tops = [
                start
                for start, block in zip(self._tops, self._blocks, strict=True)
                if isinstance(block.item.item, MessageItem) and (start - top) * direction > 0
            ]
            if tops:
                self.scroll_to(
                    y=min(tops, key=lambda start: abs(start - top)), animate=False, immediate=True, force=True
                )
                return True
            if direction > 0 or self._first == 0:
                return False
            self._render_earlier()

    @property
    def last_visible(self) -> ShownItem | None:
        """The item at the last visible line."""
        index = bisect_right(self._tops, self.scroll_offset.y + self.size.height - 1) - 1
        return self._blocks[index].item if index >= 0 else None

    def follow_end(self) -> None:
        """Go to the end and stay there."""
        self._follows = True
        self.scroll_to(y=self._height, animate=False, immediate=True, force=True)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        if self.scroll_offset.y < 3:
            self.show_earlier()

    def scroll_page(self, direction: int) -> None:
        step = max(1, self.size.height - 2) * direction
        if direction < 0 and self.scroll_offset.y == 0:
            self.show_earlier()
        self.scroll_to(y=self.scroll_offset.y + step, animate=False, immediate=True, force=True)

    def on_resize(self, event: Resize) -> None:
        self.flush()

    def redraw(self) -> None:
        """Render everything again: the palette or what is shown has changed."""
        self._rendered_width = 0
        self.flush()

    def on_click(self, event: Click) -> None:
        """Open or close the item under the mouse."""
        index = bisect_right(self._tops, event.y + self.scroll_offset.y) - 1
        if not 0 <= index < len(self._blocks):
            return
        item = self._blocks[index].item
        children = list_children(item)
        below = len(self._blocks[index].strips) - (event.y + self.scroll_offset.y - self._tops[index])
        if 0 < below <= len(children):
            self.post_message(self.ChildClicked(item, children[-below]))
            return
        if isinstance(item.item, CallItem | ThinkingItem | MessageItem | NoteItem):
            default = self.details if isinstance(item.item, CallItem | NoteItem) else False
            default = self.thinking if isinstance(item.item, ThinkingItem) else default
            item.expanded = not (default if item.expanded is None else item.expanded)
            self._dirty.add(id(item))
            follows, self._follows = self._follows, False
            had_news = self.has_news
            self.flush()
            self._set_news(had_news)
            self._follows = follows and self.scroll_offset.y >= self.max_scroll_y - 1


def _indent(line: Line) -> Line:
    return [Segment(MARGIN, PLAIN), *line] if line else []


def _select(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    start, end = span
    end = strip.cell_length if end == -1 else min(end, strip.cell_length)
    if start >= end:
        return strip
    before, inside, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
    marked = Strip([Segment(segment.text, (segment.style or PLAIN) + style) for segment in inside])
    return Strip.join([before, marked, after])
