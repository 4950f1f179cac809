"""The answer of `treadle run` as rendered Markdown, on a terminal. Each paragraph is printed when it is finished.

It needs the extra `tui`. Its libraries are imported in a thread while the model is awaited."""

import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, TextIO

from treadle.domain.envelope import Event
from treadle.domain.transcript import Change
from treadle.surfaces.terminal.event_output import TranscriptPrinter
from treadle.surfaces.terminal.text import columns

if TYPE_CHECKING:
    from treadle.surfaces.markdown.stream import MarkdownStream

MAX_WIDTH = 120


def make_transcript_printer(out: TextIO) -> TranscriptPrinter:
    """Return the printer for people: with rendered Markdown on a terminal that can show it, else with raw text."""
    can_render = out.isatty() and os.environ.get("TERM") != "dumb"
    if can_render and find_spec("rich") is not None and find_spec("markdown_it") is not None:
        return MarkdownPrinter(out)
    return TranscriptPrinter(out)


class MarkdownPrinter(TranscriptPrinter):
    """Prints a run with its text as rendered Markdown."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._stream: MarkdownStream | None = None
        self._printed_lines = 0
        """Lines of the stream that were printed."""
        self._importing: Thread | None = None

    def show(self, event: Event, changes: Sequence[Change]) -> None:
        if self._importing is None:
            self._importing = Thread(target=_import_renderer, daemon=True)
            self._importing.start()
        super().show(event, changes)

    def _print_text(self, text: str) -> None:
        if text:
            stream = self._stream = self._stream or self._open_stream()
            stream.append(text)
            stream.update()
            self._print_finished(stream)

    def _break_line(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.finish()
            self._print_finished(stream)

    def _open_stream(self) -> "MarkdownStream":
        from treadle.surfaces.markdown.line_output import find_colours
        from treadle.surfaces.markdown.stream import MarkdownStream
        from treadle.surfaces.markdown.themes import PLAIN_NAME, find_palette, make_terminal_palette

        self._printed_lines = 0
        palette = find_palette(PLAIN_NAME) if find_colours(self._out) is None else make_terminal_palette()
        return MarkdownStream(min(columns(), MAX_WIDTH), palette)

    def _print_finished(self, stream: "MarkdownStream") -> None:
        from treadle.surfaces.markdown.line_output import find_colours, format_lines

        lines = stream.finished_lines[self._printed_lines :]
        if lines:
            self._printed_lines = len(stream.finished_lines)
            self.before_output()
            self._out.write(format_lines(lines, find_colours(self._out)))
            self._out.flush()


def _import_renderer() -> None:
    """Import the renderer, so that the first words of the model are not delayed."""
    for name in ("stream", "line_output", "themes"):
        import_module(f"treadle.surfaces.markdown.{name}")
