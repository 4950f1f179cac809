"""The help: made from the key map and the commands, so that it is always true."""

from textwrap import wrap

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.commands import list_commands
from treadle.surfaces.tui.keys import PLACES, KeyMap, Place

CLOSING_KEYS = ("escape", "q", "ctrl+c", "enter")
NAME_WIDTH, MAX_WIDTH, MARGINS = 30, 96, 8
"""Columns of the keys, of the whole help, and of its border, padding and scrollbar."""


class HelpScreen(ModalScreen[None]):
    """Lists all keys and commands."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen VerticalScroll {
        width: 96; max-width: 96%; height: auto; max-height: 94%; padding: 0 2; background: $surface;
        border: round $primary; scrollbar-size-vertical: 1;
    }
    """

    def __init__(self, palette: Palette, key_map: KeyMap, place: Place = "message") -> None:
        """`place` is where the user is. Its keys come first."""
        super().__init__()
        self._palette = palette
        self._key_map = key_map
        self._place: Place = place

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = texts.HELP_TITLE
            box.border_subtitle = texts.HELP_HINT
            yield Static(id="help")

    def on_mount(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        width = min(MAX_WIDTH, int(self.size.width * 0.96)) - MARGINS
        self.query_one("#help", Static).update(make_help(self._palette, self._key_map, width, self._place))

    def on_key(self, event: events.Key) -> None:
        if event.key in CLOSING_KEYS or self._key_map.find_action("anywhere", event.key) == "help":
            event.stop()
            self.dismiss()


def make_help(
    palette: Palette, key_map: KeyMap, width: int = MAX_WIDTH - MARGINS, first: Place = "message"
) -> Text:
    """Return the help as text of a width, with the keys of a place at the beginning."""
    text = Text()
    places = sorted(PLACES, key=lambda place: place != first)
    sections = [(PLACES[place], key_map.list_keys(place)) for place in places]
    for title, rows in [*sections, (texts.HELP_COMMANDS, list_commands())]:
        text.append(f"\n{title}\n", palette.heading)
        for name, help_ in rows:
            text.append(f"  {name:<{NAME_WIDTH}} ", palette.accent)
            for index, line in enumerate(wrap(help_, max(20, width - NAME_WIDTH - 3))):
                text.append(f"{' ' * (NAME_WIDTH + 3) if index else ''}{line}\n", palette.text)
    return text
