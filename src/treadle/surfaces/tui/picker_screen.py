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
from treadle.surfaces.cli.terminal import one_line
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.tui import keys, texts
from treadle.surfaces.tui.key_queue import HasKeyQueue
from treadle.surfaces.tui.suggestions import rank

SEARCH_PAUSE_SECONDS = 0.25
PickedAction = Literal["open", "fork", "rename", "delete"]


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


Search = Callable[[str], Awaitable[Sequence[PickerRow]]]


Load = Callable[[], Awaitable[Sequence[PickerRow]]]
EDITING_KEYS = ("backspace", "delete", "left", "right", "home", "end", "ctrl+u", "ctrl+w")
"""Keys that change the search, besides characters."""


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
        title: str,
        hint: str,
        load: Load,
        *,
        search: Search | None = None,
        allows_typed: bool = False,
        edits: bool = False,
        query: str = "",
    ) -> None:
        super().__init__()
        self._palette = palette
        self._title, self._hint = title, hint
        self._load = load
        self._all: list[PickerRow] = []
        self._is_loaded = self._is_mounted = False
        self._shown: list[PickerRow] = []
        self._search = search
        self._allows_typed = allows_typed
        self._edits = edits
        self._query = query
        self._problem = ""
        self._renaming: PickerRow | None = None
        self._deleting: PickerRow | None = None

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self._title
            yield Input(self._query, placeholder=texts.PICKER_SEARCH)
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
        self._filter(self.query_one(Input).value)
        self._look_again()

    def _look_again(self) -> None:
        app = cast("object", self.app)
        if isinstance(app, HasKeyQueue):
            app.key_queue.look_again()

    def is_ready_for(self, event: events.Key | events.Paste) -> bool:
        """Return whether a key can be used now: one that changes the search, or any after the rows are loaded."""
        if not self._is_mounted or self._is_loaded:
            return self._is_mounted
        if isinstance(event, events.Paste):
            return True
        return event.is_printable or event.key in EDITING_KEYS or keys.find_action("picker", event.key) == "close"

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _chosen(self) -> PickerRow | None:
        index = self._list.highlighted
        return None if index is None or index >= len(self._shown) else self._shown[index]

    # ── The list ──

    def _filter(self, query: str, found: Sequence[PickerRow] = ()) -> None:
        by_text = {f"{row.searched}\0{row.key}": row for row in self._all}
        matches = [by_text[name] for name in rank(query, list(by_text), 200)] if query else list(self._all)
        known = {row.key for row in matches}
        matches += [row for row in found if row.key not in known]
        if self._allows_typed and query.strip() and query.strip() not in known:
            matches.append(PickerRow(query.strip(), query.strip(), texts.USE_TYPED))
        self._shown = matches
        self._list.clear_options()
        self._list.add_options([Option(self._draw(row)) for row in matches])
        if matches:
            self._list.highlighted = 0
        empty = self._problem or (texts.PICKER_EMPTY if self._is_loaded else texts.PICKER_LOADING)
        self._say(self._hint if matches else empty)

    def _draw(self, row: PickerRow) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{row.mark or ' '} ", self._palette.warning)
        text.append(one_line(row.title) or row.key, self._palette.text)
        if row.detail:
            text.append(f"   {one_line(row.detail)}", self._palette.dim)
        if row.found:
            text.append(f"\n    {one_line(row.found, 90)}", self._palette.dim)
        return text

    def _say(self, text: str) -> None:
        self.query_one(Static).update(Text(text, self._palette.dim))

    @on(Input.Changed)
    def _on_changed(self, event: Input.Changed) -> None:
        if self._renaming is not None:
            return
        self._filter(event.value)
        if self._search is not None and len(event.value.strip()) >= 2:
            self.run_worker(self._search_soon(event.value), exclusive=True)

    async def _search_soon(self, query: str) -> None:
        import asyncio

        await asyncio.sleep(SEARCH_PAUSE_SECONDS)
        assert self._search is not None
        found = await self._search(query.strip())
        if self.query_one(Input).value == query and self._renaming is None:
            self._filter(query, found)

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

    def on_key(self, event: events.Key) -> None:
        row = self._chosen
        if self._deleting is not None:
            event.stop()
            event.prevent_default()
            deleted, self._deleting = self._deleting, None
            if event.character == "y":
                self.dismiss(Picked(deleted.key, "delete"))
            else:
                self._say(self._hint)
            return
        match keys.find_action("picker", event.key) or event.key:
            case "close" | "ctrl+c":
                event.stop()
                self.dismiss(None)
            case "down" | "up" | "pagedown" | "pageup" as key:
                event.stop()
                {
                    "down": self._list.action_cursor_down,
                    "up": self._list.action_cursor_up,
                    "pagedown": self._list.action_page_down,
                    "pageup": self._list.action_page_up,
                }[key]()
            case "fork" if self._edits and row is not None:
                event.stop()
                self.dismiss(Picked(row.key, "fork"))
            case "rename" if self._edits and row is not None:
                event.stop()
                event.prevent_default()
                self._renaming = row
                field = self.query_one(Input)
                field.value = row.title
                field.cursor_position = len(row.title)
                self._say(texts.PLACEHOLDER_RENAME)
            case "delete" if self._edits and row is not None:
                event.stop()
                event.prevent_default()
                self._deleting = row
                self._say(texts.DELETE_CONFIRM.format(title=one_line(row.title, 60)))
            case _:
                pass
