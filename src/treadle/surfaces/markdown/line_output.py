"""Styled lines as text for a terminal, with the colours that it has."""

import os
from collections.abc import Iterable
from typing import TextIO

from rich.color import ColorSystem
from rich.segment import Segment

from treadle.surfaces.markdown.wrapping import Line
from treadle.surfaces.terminal.text import supports_colour


def format_lines(lines: Iterable[Line], colours: ColorSystem | None) -> str:
    """Return lines with the escape codes of their styles; without colours as plain text."""
    return "".join(f"{_format_line(line, colours)}\n" for line in lines)


def _format_line(line: Line, colours: ColorSystem | None) -> str:
    if colours is None:
        return "".join(segment.text for segment in line).rstrip()
    return "".join(_format_segment(segment, colours) for segment in line)


def _format_segment(segment: Segment, colours: ColorSystem) -> str:
    return segment.text if segment.style is None else segment.style.render(segment.text, color_system=colours)


def find_colours(stream: TextIO) -> ColorSystem | None:
    """Return the colours of the terminal that a stream goes to; None if it should have none."""
    if not supports_colour(stream):
        return None
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return ColorSystem.TRUECOLOR
    return ColorSystem.EIGHT_BIT if "256" in os.environ.get("TERM", "") else ColorSystem.STANDARD
