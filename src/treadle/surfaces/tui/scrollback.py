"""The transcript in the scrollback of the terminal, after the terminal UI has ended."""

import sys

from treadle.domain.transcript import CallItem
from treadle.surfaces.markdown.line_output import find_colours, format_lines
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.markdown.wrapping import Line
from treadle.surfaces.tui.item_view import render_item
from treadle.surfaces.tui.transcript import SessionTranscript, ShownItem

MAX_PRINTED_LINES = 3000


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
