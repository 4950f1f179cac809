"""The styles that text is drawn with. The themes of the terminal UI and of the command line are palettes."""

from typing import NamedTuple

from rich.style import Style

PLAIN = Style()


class Palette(NamedTuple):
    """The styles of one theme."""

    name: str
    text: Style
    dim: Style
    accent: Style
    strong: Style
    emphasis: Style
    heading: Style
    subheading: Style
    code: Style
    """Code inside a line."""
    block: Style
    """The background of a code block."""
    link: Style
    quote: Style
    rule: Style
    user: Style
    """What the user has sent."""
    success: Style
    warning: Style
    error: Style
    added: Style
    removed: Style
    changed: Style
    """The header of a part of a diff."""
    thinking: Style
    selected: Style
    tokens: tuple[tuple[str, Style], ...] = ()
    """Styles of code by the name of the Pygments token, such as `Keyword`; the longest name that fits wins."""
    fills: bool = True
    """Whether code blocks are filled to the full width."""
