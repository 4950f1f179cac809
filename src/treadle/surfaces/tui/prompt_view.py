"""The message that the user writes, with what belongs to it: attachments, suggestions and the queue."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static, TextArea

from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.terminal.text import cut, inert, one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.attachments import Chip
from treadle.surfaces.tui.chat_state import QueuedMessage
from treadle.surfaces.tui.keys import KeyMap
from treadle.surfaces.tui.suggestions import MAX_SHOWN, Suggestion

Mode = Literal["message", "note", "edit", "answer", "search", "fork"]
"""What Enter does: sends a message, denies with a note, runs an edited call, answers, takes from the history, or
forks."""


class MessageEditor(TextArea):
    """The text that is being written. The app performs what its keys mean."""

    DEFAULT_CSS = """
    MessageEditor {
        height: auto; min-height: 3; max-height: 40%; padding: 0 1; background: $surface; color: $foreground;
        border: round $panel; scrollbar-size-vertical: 1;
        & .text-area--placeholder { color: $dim; }
        & .text-area--cursor { background: $foreground; color: $background; }
        & .text-area--selection { background: $input-selection-background; }
    }
    MessageEditor:focus { border: round $primary; }
    MessageEditor.-asking { border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+b", "cursor_left", show=False),
        Binding("alt+b", "cursor_word_left", show=False),
        Binding("alt+f", "cursor_word_right", show=False),
        Binding("alt+left", "cursor_word_left", show=False),
        Binding("alt+right", "cursor_word_right", show=False),
        Binding("alt+backspace", "delete_word_left", show=False),
    ]

    @dataclass
    class Action(Message):
        """A key of the key map was pressed."""

        name: str

    @dataclass
    class Pasted(Message):
        """Text was pasted."""

        text: str

    @dataclass
    class EmptyKey(Message):
        """A key that the app may use instead of the text, such as `?` in an empty message."""

        key: str

    def __init__(self, key_map: KeyMap) -> None:
        super().__init__(soft_wrap=True, highlight_cursor_line=False, placeholder="")
        self.cursor_blink = False
        self._key_map = key_map
        self.mode: Mode = "message"
        self.has_suggestions = False

    @property
    def before_cursor(self) -> str:
        """Return the text of the current line up to the cursor."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    @property
    def is_on_first_line(self) -> bool:
        return self.wrapped_document.location_to_offset(self.cursor_location).y == 0

    @property
    def is_on_last_line(self) -> bool:
        return self.wrapped_document.location_to_offset(self.cursor_location).y >= self.wrapped_document.height - 1

    def take_focus(self) -> None:
        """Take the keys at once: the next one is meant for the text."""
        self.screen.set_focus(self)

    def put(self, text: str) -> None:
        """Replace the text and move the cursor to its end."""
        self.text = inert(text).replace("\t", "    ")
        self.move_cursor(self.document.end)

    def replace_before_cursor(self, count: int, text: str) -> None:
        """Replace some characters before the cursor."""
        row, column = self.cursor_location
        self.replace(text, (row, column - count), (row, column))

    async def _on_key(self, event: events.Key) -> None:
        action = self._action_of(event.key)
        if action is not None:
            event.stop()
            event.prevent_default()
            if action == "newline":
                self.insert("\n")
            else:
                self.post_message(self.Action(action))
            return
        if not self.text and (event.character == "?" or (event.key == "backspace")) and self.mode == "message":
            self.post_message(self.EmptyKey(event.key))
            if event.character == "?":
                event.stop()
                event.prevent_default()
                return
        await super()._on_key(event)

    def _action_of(self, key: str) -> str | None:
        action = self._key_map.find_action("message", key)
        if action in ("previous", "next") and not self.has_suggestions and self.mode != "search":
            is_edge = self.is_on_first_line if action == "previous" else self.is_on_last_line
            return action if is_edge and self.mode == "message" else None
        if action is None and key not in ("ctrl+home", "ctrl+end"):
            return self._key_map.find_action("anywhere", key)
        return action

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.post_message(self.Pasted(event.text))


class PromptExtras(Static):
    """The lines above the message: queued messages, attachments and suggestions."""

    DEFAULT_CSS = "PromptExtras { height: auto; padding: 0 2; background: $background; display: none; }"

    def __init__(self, palette: Palette, key_map: KeyMap) -> None:
        super().__init__()
        self.palette = palette
        self._key_map = key_map
        self.suggestions: list[Suggestion] = []
        self.selected = 0
        self.chips: list[Chip] = []
        self.queued: list[QueuedMessage] = []
        self.remark: str = ""
        """A line after the suggestions."""

    def choose(self, step: int) -> None:
        """Select another suggestion."""
        if self.suggestions:
            self.selected = (self.selected + step) % len(self.suggestions)
            self.show()

    def set_suggestions(self, suggestions: list[Suggestion], remark: str = "") -> None:
        if suggestions != self.suggestions or remark != self.remark:
            self.suggestions, self.selected, self.remark = suggestions, 0, remark
            self.show()

    def show(self) -> None:
        """Draw the lines."""
        rows = [*self._queue_rows(), *self._chip_rows(), *self._suggestion_rows()]
        self.display = bool(rows)
        self.update(Text("\n").join(rows))

    def _queue_rows(self) -> list[Text]:
        width = max(20, self.screen.size.width - 6)
        rows = [
            Text(
                cut(f"↳ {texts.QUEUED.format(text=one_line(message.text))}", width), self.palette.dim, no_wrap=True
            )
            for message in self.queued[:5]
        ]
        if rows:
            rows[-1].append(f"   {texts.QUEUED_HINT.format(keys=self._key_map)}", self.palette.dim)
            rows[-1].truncate(width)
        return rows

    def _chip_rows(self) -> list[Text]:
        if not self.chips:
            return []
        row = Text(no_wrap=True)
        for number, chip in enumerate(self.chips, start=1):
            row.append(f"[{number}] {one_line(chip.label, 50)}", self.palette.accent)
            row.append("  ")
        width = max(20, self.screen.size.width - 6)
        if row.cell_len + len(texts.CHIP_HINT) <= width:
            row.append(texts.CHIP_HINT, self.palette.dim)
        row.truncate(width, overflow="ellipsis")
        return [row]

    def _suggestion_rows(self) -> list[Text]:
        width = max(20, self.screen.size.width - 6)
        rows: list[Text] = []
        longest = max((len(one_line(each.text, 60)) for each in self.suggestions if each.help), default=0)
        count = len(self.suggestions)
        first = max(0, min(self.selected - MAX_SHOWN // 2, count - MAX_SHOWN))
        for index, each in list(enumerate(self.suggestions))[first : first + MAX_SHOWN]:
            is_selected = index == self.selected
            row = Text(no_wrap=True)
            row.append("▸ " if is_selected else "  ", self.palette.accent)
            row.append(
                one_line(each.text, 60),
                self.palette.text + (self.palette.strong if is_selected else self.palette.text),
            )
            if each.help:
                row.append(" " * (longest - len(one_line(each.text, 60))))
                row.append(f"  {one_line(each.help)}", self.palette.dim)
            row.truncate(width)
            rows.append(row)
        if count > MAX_SHOWN:
            place = texts.COUNT.format(index=self.selected + 1, count=count)
            rows.append(Text(f"  {place} · {texts.MORE_SUGGESTIONS}", self.palette.dim))
        if self.remark:
            rows.append(Text(self.remark, self.palette.dim))
        return rows
