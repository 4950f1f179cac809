"""A small dialog with a few choices, each with a key."""

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import Static

from treadle.surfaces.markdown.palette import Palette


class ChoiceScreen(ModalScreen[str | None]):
    """Asks for one of several choices: (key, name, description). Its result is the name; None for Esc."""

    DEFAULT_CSS = """
    ChoiceScreen { align: center middle; background: $background 60%; }
    ChoiceScreen Static {
        width: auto; max-width: 90%; height: auto; padding: 1 2; background: $surface; border: round $warning;
    }
    """

    def __init__(self, palette: Palette, title: str, choices: Sequence[tuple[str, str, str]]) -> None:
        super().__init__()
        self._palette = palette
        self._title = title
        self._choices = choices

    def compose(self) -> ComposeResult:
        text = Text()
        text.append(f"{self._title}\n", self._palette.warning + self._palette.strong)
        for key, _, help_ in self._choices:
            text.append(f"\n {key:>3}  ", self._palette.accent + self._palette.strong)
            text.append(help_, self._palette.text)
        yield Static(text)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        if event.key in ("escape", "ctrl+c"):
            self.dismiss(None)
            return
        for key, name, _ in self._choices:
            if event.character == key:
                self.dismiss(name)
