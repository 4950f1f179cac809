"""A list to choose from, with a search: sessions, models, agents, messages."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from treadle.domain.errors import TreadleError
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.key_queue import HasKeyQueue
from treadle.surfaces.tui.keys import KeyMap
from treadle.surfaces.tui.suggestions import rank

SEARCH_PAUSE_SECONDS = 0.25
MAX_WIDTH, MARGINS = 100, 5
"""Columns of the list, and of its border, padding and scrollbar."""
PickedAction = Literal["open", "fork", "rename", "delete", "all"]


@dataclass(frozen=True, slots=True)
class PickerRow:
    """A line of the list."""

    key: str
    title: str
    detail: str = ""
    mark: str = ""
    found: str = ""
    """The text in which a search has found something."""

    @property
    def searched(self) -> str:
        return f"{self.title} {self.detail}"


@dataclass(frozen=True, slots=True)
class Picked:
    """What the user has chosen."""

    key: str
    action: PickedAction = "open"
    text: str = ""
    query: str = ""
    """The search, for a list that opens again."""


Search = Callable[[str], Awaitable[Sequence[PickerRow]]]


Load = Callable[[], Awaitable[Sequence[PickerRow]]]
EDITING_KEYS = ("backspace", "delete", "left", "right", "home", "end", "ctrl+u", "ctrl+w")
"""Keys that change the search, besides characters."""


class SearchField(Input):
    """The search. An open question of the list gets its keys first, because a field uses characters itself."""

    def __init__(self, value: str, use_key: Callable[[events.Key | events.Paste], bool]) -> None:
        super().__init__(value, placeholder=texts.PICKER_SEARCH)
        self._use_key = use_key

    async def _on_key(self, event: events.Key) -> None:
        if not self._use_key(event):
            await super()._on_key(event)

    def _on_paste(self, event: events.Paste) -> None:
        if not self._use_key(event):
            super()._on_paste(event)


class PickerScreen(ModalScreen[Picked | None]):
    """Shows rows and returns the one that is chosen.

    It opens at once and is filled when its rows have been loaded. The search can be typed before that; keys that
    choose a row wait for the rows."""

    DEFAULT_CSS = """
    PickerScreen { align: center middle; background: $background 60%; }
    PickerScreen Vertical {
        width: 100; max-width: 96%; height: 80%; background: $surface; border: round $primary; padding: 0 1;
    }
    PickerScreen Input { border: none; height: 1; padding: 0; background: $surface; margin: 0 0 1 0; }
    PickerScreen Input:focus { border: none; height: 1; }
    PickerScreen OptionList {
        height: 1fr; border: none; padding: 0; background: $surface; scrollbar-size-vertical: 1;
    }
    PickerScreen OptionList:focus { border: none; }
    PickerScreen Static { height: auto; max-height: 3; }
    """

    def __init__(
        self,
        palette: Palette,
        key_map: KeyMap,
        title: str,
        hint: str,
        load: Load,
        *,
        search: Search | None = None,
        allows_typed: bool = False,
        edits: bool = False,
        query: str = "",
        notice: str = "",
        highlighted: str = "",
    ) -> None:
        super().__init__()
        self._palette = palette
        self._key_map = key_map
        self._title, self._hint = title, hint.format(keys=key_map)
        self._load = load
        self._all: list[PickerRow] = []
        self._is_loaded = self._is_mounted = False
        self._shown: list[PickerRow] = []
        self._found: Sequence[PickerRow] = ()
        """What the search has found besides the rows that match."""
        self._search = search
        self._allows_typed = allows_typed
        self._edits = edits
        self._query = query
        self._notice = notice
        """What happened before the list was opened again, until a key is pressed."""
        self._highlighted = highlighted
        """The key of the row to begin with; the first row if there is no such row."""
        self._problem = ""
        self._renaming: PickerRow | None = None
        self._deleting: PickerRow | None = None

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self._title
            yield SearchField(self._query, self._use_key)
            yield OptionList()
            yield Static(Text(self._hint, self._palette.dim))

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        self.set_focus(field)  # at once: the next key is meant for it
        self._is_mounted = True
        self._filter(self._query)
        self.run_worker(self._fill(), group="fill")
        self._look_again()

    async def _fill(self) -> None:
        """Load the rows."""
        try:
            self._all = list(await self._load())
        except TreadleError as error:
            self._problem = str(error)
        self._is_loaded = True
        if not self._is_open:
            return
        self._filter(self.query_one(Input).value)
        self._look_again()

    def _look_again(self) -> None:
        app = cast("object", self.app)
        if isinstance(app, HasKeyQueue):
            app.key_queue.recheck()

    def is_ready_for(self, event: events.Key | events.Paste) -> bool:
        """Return whether a key can be used now: one that changes the search, or any after the rows are loaded."""
        if not self._is_mounted or self._is_loaded:
            return self._is_mounted
        if isinstance(event, events.Paste):
            return True
        return (
            event.is_printable
            or event.key in EDITING_KEYS
            or self._key_map.find_action("picker", event.key) == "close"
        )

    @property
    def _is_open(self) -> bool:
        """Whether there is a list to change: what was typed last may be handled after the list was closed."""
        return bool(self.query(OptionList))

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _chosen(self) -> PickerRow | None:
        index = self._list.highlighted
        return None if index is None or index >= len(self._shown) else self._shown[index]

    # ── The list ──

    def _filter(self, query: str) -> None:
        by_text = {f"{row.searched}\0{row.key}": row for row in self._all}
        matches = [by_text[name] for name in rank(query, list(by_text), 200)] if query else list(self._all)
        known = {row.key for row in matches}
        matches += [row for row in self._found if row.key not in known]
        if self._allows_typed and query.strip() and query.strip() not in known:
            matches.append(PickerRow(query.strip(), query.strip(), texts.USE_TYPED))
        self._shown = matches
        self._list.clear_options()
        self._list.add_options([Option(self._draw(row)) for row in matches])
        if matches:
            known_keys = [row.key for row in matches]
            self._list.highlighted = known_keys.index(self._highlighted) if self._highlighted in known_keys else 0
        empty = self._problem or (texts.PICKER_EMPTY if self._is_loaded else texts.PICKER_LOADING)
        self._say(self._notice or (self._hint if matches else empty))

    def _draw(self, row: PickerRow) -> Text:
        width = min(MAX_WIDTH, int(self.size.width * 0.96)) - MARGINS
        text = Text()
        text.append(f"{row.mark or ' '} ", self._palette.warning)
        text.append(one_line(row.title) or row.key, self._palette.text)
        if row.detail:
            text.append(f"   {one_line(row.detail)}", self._palette.dim)
        text.truncate(width, overflow="ellipsis")  # a list wraps lines that are too long
        if row.found:
            text.append(f"\n    {one_line(row.found, width - 4)}", self._palette.dim)
        return text

    def _say(self, text: str) -> None:
        self.query_one(Static).update(Text(text, self._palette.dim))

    @on(Input.Changed)
    def _on_changed(self, event: Input.Changed) -> None:
        if self._renaming is not None or not self._is_open:
            return
        self._highlighted, self._found = "", ()
        self._filter(event.value)
        if self._search is not None and len(event.value.strip()) >= 2:
            self.run_worker(self._search_soon(event.value), exclusive=True)

    async def _search_soon(self, query: str) -> None:
        import asyncio

        await asyncio.sleep(SEARCH_PAUSE_SECONDS)
        assert self._search is not None
        found = await self._search(query.strip())
        if self._is_open and self.query_one(Input).value == query and self._renaming is None:
            self._found = found
            if self._deleting is None:  # the question whether to delete stays
                self._filter(query)

    # ── Keys ──

    @on(Input.Submitted)
    def _on_submitted(self, event: Input.Submitted) -> None:
        if self._renaming is not None:
            self.dismiss(Picked(self._renaming.key, "rename", event.value))
        elif (row := self._chosen) is not None:
            self.dismiss(Picked(row.key))

    @on(OptionList.OptionSelected)
    def _on_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(Picked(self._shown[event.option_index].key))

    def _use_key(self, event: events.Key | events.Paste) -> bool:
        """Use a key as the answer to whether a session is deleted; return whether that was asked."""
        if self._notice:
            self._notice = ""
            self._say(self._hint)
        if self._deleting is None:
            return False
        event.stop()
        event.prevent_default()
        deleted, self._deleting = self._deleting, None
        if isinstance(event, events.Key) and event.character == "y":
            self.dismiss(Picked(deleted.key, "delete"))
        else:
            self._return_to(deleted)
        return True

    def on_key(self, event: events.Key) -> None:
        if self._use_key(event):
            return
        match self._key_map.find_action("picker", event.key) or event.key:
            case "close" | "ctrl+c":
                event.stop()
                if self._renaming is None:
                    self.dismiss(None)
                else:
                    self._end_renaming(self._renaming)
            case "down" | "up" | "pagedown" | "pageup" as key if self._renaming is None:
                event.stop()
                {
                    "down": self._list.action_cursor_down,
                    "up": self._list.action_cursor_up,
                    "pagedown": self._list.action_page_down,
                    "pageup": self._list.action_page_up,
                }[key]()
            case "all" if self._edits and self._renaming is None:
                event.stop()
                event.prevent_default()
                row = self._chosen
                self.dismiss(Picked("" if row is None else row.key, "all", query=self.query_one(Input).value))
            case "fork" | "rename" | "delete" as action if self._edits and self._renaming is None:
                event.stop()
                event.prevent_default()
                if (row := self._chosen) is not None:
                    self._edit(action, row)
            case _:
                pass

    def _edit(self, action: Literal["fork", "rename", "delete"], row: PickerRow) -> None:
        match action:
            case "fork":
                self.dismiss(Picked(row.key, "fork"))
            case "rename":
                self._query, self._renaming = self.query_one(Input).value, row
                self._put(row.title)
                self._say(texts.PLACEHOLDER_RENAME.format(keys=self._key_map))
            case "delete":
                self._deleting = row
                self._say(texts.DELETE_CONFIRM.format(title=one_line(row.title, 60)))

    def _end_renaming(self, row: PickerRow) -> None:
        """Return to the list as it was."""
        self._renaming = None
        self._put(self._query)
        self._return_to(row)

    def _return_to(self, row: PickerRow) -> None:
        """Show the list again, with what was found meanwhile and the same row chosen."""
        self._filter(self.query_one(Input).value)
        self._list.highlighted = self._shown.index(row) if row in self._shown else self._list.highlighted

    def _put(self, text: str) -> None:
        field = self.query_one(Input)
        with self.prevent(Input.Changed):
            field.value = text
        field.cursor_position = len(text)
