"""Styled lines printed to a terminal: the transcript on exit, and everything that `--inline` shows."""

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.color import ColorSystem
from rich.segment import Segment

from treadle.domain.transcript import CallItem
from treadle.surfaces.cli.terminal import supports_colour
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.markdown.wrapping import Line
from treadle.surfaces.tui.item_view import render_item
from treadle.surfaces.tui.transcript import SessionTranscript, ShownItem

MAX_PRINTED_LINES = 3000


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


def print_transcript(transcript: SessionTranscript, palette: Palette, width: int) -> None:
    """Print the items to standard output, so that they stay in the scrollback."""
    lines: list[Line] = []
    for item in transcript.items:
        if is_printed(item):
            lines += render_item(item, width, palette, details=False, thinking=False)
    if lines:
        sys.stdout.write(format_lines(lines[-MAX_PRINTED_LINES:], find_colours(sys.stdout)))
        sys.stdout.write("\n")
        sys.stdout.flush()


def is_printed(shown: ShownItem) -> bool:
    """Return whether an item belongs into the scrollback: neither a report, such as the welcome, nor what the model
    still writes. A call that waits or runs belongs there."""
    if isinstance(shown.item, CallItem):
        return shown.item.state != "writing"
    return shown.run_id is not None and shown.is_final
