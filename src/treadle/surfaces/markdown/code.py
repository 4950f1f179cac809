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
    """Return the lines of the code as styled text. Code in an unknown language has one style.

    Nothing of the code is left out: what a lexer changes is shown without colours."""
    shown = clean(code)
    spans = _highlight_spans(shown, language, palette) or [(shown, palette.block)]
    lines: list[list[Span]] = [[]]
    for text, style in spans:
        first, *others = text.split("\n")
        if first:
            lines[-1].append((first, style))
        lines.extend([(other, style)] if other else [] for other in others)
    return lines


def _highlight_spans(shown: str, language: str, palette: Palette) -> list[Span] | None:
    """Return the code in the colours of its tokens; None if no lexer reads it as it is."""
    if not palette.tokens or len(shown) > MAX_HIGHLIGHTED_CHARACTERS:
        return None
    lexer = _find_lexer(language)
    if lexer is None or any(len(line) > MAX_LINE_CHARACTERS for line in shown.split("\n")):
        return None
    try:
        tokens: list[tuple[Any, str]] = list(lexer.get_tokens(f"{shown}\n"))  # lexers need the end of the last line
    except Exception:  # there are hundreds of lexers, and the code is still to be read
        return None
    if "".join(text for _, text in tokens) != f"{shown}\n":
        return None
    spans: list[Span] = []
    missing = len(shown)
    for kind, text in tokens:
        if missing:
            spans.append((text[:missing], palette.block + _style_of(str(kind), palette)))
        missing -= min(missing, len(text))
    return spans


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
