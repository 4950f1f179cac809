"""Highlighted source code, by lines."""

from functools import lru_cache
from typing import Any

from rich.style import Style

from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.markdown.wrapping import Span, clean

MAX_HIGHLIGHTED_CHARACTERS = 200_000
MAX_LINE_CHARACTERS = 2_000
"""A longer line, such as minified code, is not highlighted: the patterns of some lexers are slow on it."""


def highlight(code: str, language: str, palette: Palette) -> list[list[Span]]:
    """Return the lines of the code as styled text. Code in an unknown language has one style."""
    base = palette.block
    shown = clean(code)
    lexer = _find_lexer(language) if palette.tokens and len(shown) <= MAX_HIGHLIGHTED_CHARACTERS else None
    if lexer is None or any(len(line) > MAX_LINE_CHARACTERS for line in shown.split("\n")):
        return [[(line, base)] if line else [] for line in shown.split("\n")]
    lines: list[list[Span]] = [[]]
    for kind, text in lexer.get_tokens(shown):
        style = base + _style_of(str(kind), palette)
        first, *others = text.split("\n")
        if first:
            lines[-1].append((first, style))
        lines.extend([(other, style)] if other else [] for other in others)
    if len(lines) > 1 and not lines[-1]:
        lines.pop()  # lexers end the last line
    while len(lines) < shown.count("\n") + 1:
        lines.append([])
    return lines


@lru_cache(64)
def _find_lexer(language: str) -> Any:
    """Return the lexer of a language, or None."""
    name = language.strip().split()[0].strip("{}.").lower() if language.strip() else ""
    if not name or len(name) > 40:
        return None
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(1024)
def _style_of(kind: str, palette: Palette) -> Style:
    """Return the style of a token such as `Token.Literal.String.Doc`."""
    name = kind.removeprefix("Token.").removeprefix("Token")
    known = dict(palette.tokens)
    while name:
        if name in known:
            return known[name]
        name = name.rpartition(".")[0]
    return Style()
