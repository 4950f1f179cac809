"""The theme of the terminal UI: which one it begins with, and the colours of the widgets."""

import os

from textual.theme import Theme

from treadle.surfaces.markdown.themes import DARK, LIGHT, PLAIN_NAME, Colours
from treadle.surfaces.tui.own_themes import Themes


def choose_theme(themes: Themes, preferred: str | None, background: str | None = None) -> str:
    """Return the theme to begin with: without colours if the user wants none, else the preferred one, else the one
    that fits the background of the terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return PLAIN_NAME
    if preferred is not None and preferred in themes.names:
        return preferred
    return background or _guess_background()


def _guess_background() -> str:
    """Return the theme for the background that some terminals put into COLORFGBG, such as `15;0`."""
    last = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if last in ("7", "15") else DARK


def make_textual_themes(themes: Themes) -> list[Theme]:
    """Return the themes for the widgets."""

    def make(name: str, colours: Colours, *, dark: bool) -> Theme:
        return Theme(
            name=f"treadle-{name}",
            primary=colours.accent,
            secondary=colours.purple,
            accent=colours.accent,
            warning=colours.yellow,
            error=colours.red,
            success=colours.green,
            foreground=colours.text,
            background=colours.background,
            surface=colours.surface,
            panel=colours.panel,
            dark=dark,
            variables={
                "border": colours.dim,
                "border-blurred": colours.panel,
                "input-selection-background": colours.select,
                "scrollbar": colours.panel,
                "scrollbar-hover": colours.dim,
                "scrollbar-active": colours.dim,
                "scrollbar-background": colours.background,
                "scrollbar-background-hover": colours.background,
                "scrollbar-background-active": colours.background,
                "dim": colours.dim,
            },
        )

    return [make(name, colours, dark=themes.is_dark(name)) for name, colours in themes.list_colours().items()]
