"""Themes that the user has defined: some colours, and a theme that has the others."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import Struct

from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.markdown.themes import COLOURS, DARK, LIGHT, NAMES, Colours, find_palette, make_palette

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


class OwnTheme(Struct, frozen=True, forbid_unknown_fields=True):
    """A theme of the user. A colour that is not set is that of the base."""

    base: Literal["dark", "light"] = DARK
    background: str | None = None
    surface: str | None = None
    panel: str | None = None
    text: str | None = None
    dim: str | None = None
    accent: str | None = None
    blue: str | None = None
    green: str | None = None
    yellow: str | None = None
    red: str | None = None
    purple: str | None = None
    added: str | None = None
    removed: str | None = None
    select: str | None = None

    @property
    def colours(self) -> Colours:
        """All colours. One that is not valid is that of the base."""
        set_ = {name: colour for name, colour in _list_colours(self) if _COLOUR.fullmatch(colour)}
        return COLOURS[self.base]._replace(**set_)


class Themes:
    """The themes that can be chosen: the built-in ones, and those of the user."""

    def __init__(self, own: Mapping[str, OwnTheme]) -> None:
        self.own = {name: theme for name, theme in own.items() if name not in NAMES}
        self.names = (*NAMES, *self.own)

    def find_palette(self, name: str) -> Palette:
        """Return the palette of a theme."""
        theme = self.own.get(name)
        return find_palette(name) if theme is None else _make_own(name, theme)

    def is_dark(self, name: str) -> bool:
        return (self.own[name].base if name in self.own else name) != LIGHT

    def list_colours(self) -> Mapping[str, Colours]:
        """Return the colours of each theme."""
        return COLOURS | {name: theme.colours for name, theme in self.own.items()}


def check_themes(themes: Mapping[str, OwnTheme], chosen: str | None) -> list[str]:
    """Return what is wrong with themes, and with the choice of one."""
    problems: list[str] = []
    for name, theme in themes.items():
        if name in NAMES:
            problems.append(f"themes.{name} is the name of a built-in theme; accepted: another name")
        for field, colour in _list_colours(theme):
            if not _COLOUR.fullmatch(colour):
                problems.append(f"themes.{name}.{field}: found the text `{colour[:60]}`; accepted: #rrggbb")
    known = (*NAMES, *themes)
    if chosen is not None and chosen not in known:
        problems.append(f"theme: found the text `{chosen[:60]}`; accepted: {', '.join(known)}")
    return problems


def _list_colours(theme: OwnTheme) -> list[tuple[str, str]]:
    values = msgspec.structs.asdict(theme)
    return [(name, value) for name, value in values.items() if name != "base" and value is not None]


@lru_cache(8)
def _make_own(name: str, theme: OwnTheme) -> Palette:
    return make_palette(name, theme.colours)
