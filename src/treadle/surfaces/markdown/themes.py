"""The themes: their colours, and the palettes that text is drawn with."""

from functools import lru_cache
from typing import NamedTuple

from rich.style import Style

from treadle.surfaces.markdown.palette import PLAIN, Palette

DARK, LIGHT, PLAIN_NAME = "dark", "light", "plain"
NAMES = (DARK, LIGHT, PLAIN_NAME)


class Colours(NamedTuple):
    """The colours of a theme."""

    background: str
    surface: str
    panel: str
    text: str
    dim: str
    accent: str
    blue: str
    green: str
    yellow: str
    red: str
    purple: str
    added: str
    removed: str
    select: str


_DARK = Colours(
    background="#14161b",
    surface="#1c1f26",
    panel="#232730",
    text="#d7dae0",
    dim="#858d9b",
    accent="#7fb4ff",
    blue="#7fb4ff",
    green="#8fd19e",
    yellow="#e5c07b",
    red="#ef8a8a",
    purple="#c8a2f0",
    added="#17301f",
    removed="#3a1c20",
    select="#2f4a6d",
)
_LIGHT = Colours(
    background="#fbfbf9",
    surface="#f1f1ee",
    panel="#e7e7e3",
    text="#24272d",
    dim="#666c76",
    accent="#0b5cad",
    blue="#0b5cad",
    green="#1a7038",
    yellow="#8a5a00",
    red="#b3261e",
    purple="#7a3ea8",
    added="#dff3e3",
    removed="#fbe1e0",
    select="#c5dcf7",
)

COLOURS = {DARK: _DARK, LIGHT: _LIGHT, PLAIN_NAME: Colours(*["ansi_default"] * 14)}
"""The colours of the themes."""


def find_palette(name: str) -> Palette:
    """Return the palette of a theme."""
    return {DARK: _dark, LIGHT: _light, PLAIN_NAME: _plain}.get(name, _dark)()


@lru_cache(1)
def _dark() -> Palette:
    return make_palette(DARK, COLOURS[DARK])


@lru_cache(1)
def _light() -> Palette:
    return make_palette(LIGHT, COLOURS[LIGHT])


def make_palette(name: str, colours: Colours) -> Palette:
    """Return the palette of a theme with these colours."""

    def ink(colour: str, *, bold: bool | None = None, italic: bool | None = None) -> Style:
        return Style(color=colour, bold=bold, italic=italic)

    dim = ink(colours.dim)
    return Palette(
        name,
        text=ink(colours.text),
        dim=dim,
        accent=ink(colours.accent),
        strong=Style(bold=True),
        emphasis=Style(italic=True),
        heading=ink(colours.accent, bold=True),
        subheading=Style(color=colours.text, bold=True),
        code=Style(color=colours.yellow),
        block=Style(color=colours.text, bgcolor=colours.surface),
        link=Style(color=colours.accent, underline=True),
        quote=ink(colours.dim, italic=True),
        rule=ink(colours.dim),
        user=Style(color=colours.text, bgcolor=colours.panel),
        success=ink(colours.green),
        warning=ink(colours.yellow),
        error=ink(colours.red),
        added=Style(color=colours.text, bgcolor=colours.added),
        removed=Style(color=colours.text, bgcolor=colours.removed),
        changed=ink(colours.purple),
        thinking=ink(colours.dim, italic=True),
        selected=Style(bgcolor=colours.select),
        tokens=(
            ("Comment", ink(colours.dim, italic=True)),
            ("Keyword", ink(colours.purple)),
            ("Keyword.Constant", ink(colours.yellow)),
            ("Operator.Word", ink(colours.purple)),
            ("Literal.String", ink(colours.green)),
            ("Literal.Number", ink(colours.yellow)),
            ("Name.Function", ink(colours.blue)),
            ("Name.Class", ink(colours.blue)),
            ("Name.Decorator", ink(colours.yellow)),
            ("Name.Builtin", ink(colours.blue)),
            ("Name.Tag", ink(colours.red)),
            ("Name.Attribute", ink(colours.yellow)),
            ("Name.Namespace", ink(colours.text)),
            ("Generic.Deleted", ink(colours.red)),
            ("Generic.Inserted", ink(colours.green)),
            ("Generic.Heading", ink(colours.accent, bold=True)),
        ),
    )


@lru_cache(1)
def _plain() -> Palette:
    bold, dim, under = Style(bold=True), Style(dim=True), Style(underline=True)
    return Palette(
        PLAIN_NAME,
        text=PLAIN,
        dim=dim,
        accent=bold,
        strong=bold,
        emphasis=Style(italic=True),
        heading=Style(bold=True, underline=True),
        subheading=bold,
        code=bold,
        block=PLAIN,
        link=under,
        quote=Style(italic=True),
        rule=dim,
        user=bold,
        success=PLAIN,
        warning=bold,
        error=bold,
        added=PLAIN,
        removed=PLAIN,
        changed=dim,
        thinking=dim,
        selected=Style(reverse=True),
        fills=False,
    )


@lru_cache(1)
def make_terminal_palette() -> Palette:
    """Return the palette of the command line: the terminal's own colours, which fit its background."""

    def ink(colour: str, *, bold: bool | None = None, italic: bool | None = None) -> Style:
        return Style(color=colour, bold=bold, italic=italic)

    return _plain()._replace(
        name="terminal",
        accent=ink("cyan"),
        heading=ink("cyan", bold=True),
        code=ink("yellow"),
        link=Style(color="blue", underline=True),
        success=ink("green"),
        warning=ink("yellow"),
        error=ink("red"),
        added=ink("green"),
        removed=ink("red"),
        tokens=(
            ("Comment", Style(dim=True)),
            ("Keyword", ink("magenta")),
            ("Literal.String", ink("green")),
            ("Literal.Number", ink("yellow")),
            ("Name.Function", ink("blue")),
            ("Name.Class", ink("blue")),
            ("Generic.Deleted", ink("red")),
            ("Generic.Inserted", ink("green")),
        ),
    )
