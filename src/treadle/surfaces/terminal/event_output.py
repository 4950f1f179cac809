"""Printers of a run: for people, with the model's text on standard output and the rest on standard error, or its
events as JSON."""

import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from treadle.domain.envelope import Event, to_json
from treadle.domain.transcript import (
    AnswerItem,
    Change,
    EndItem,
    Item,
    ItemAdded,
    ItemChanged,
    LiveReplaced,
    NoteItem,
    TextAppended,
)
from treadle.surfaces.terminal.item_lines import NARROW, WIDE, list_lines
from treadle.surfaces.terminal.output import alert, note, print_json_line
from treadle.surfaces.terminal.text import columns, inert, is_terminal, one_line


class Printer(Protocol):
    def show(self, event: Event, changes: Sequence[Change]) -> None:
        """Print an event, or what it changed in the transcript."""
        ...

    def note(self, line: str) -> None:
        """Print a line of Treadle itself on standard error."""
        ...


class JsonLines:
    """Prints every event as a line of JSON."""

    def show(self, event: Event, changes: Sequence[Change] = ()) -> None:
        print_json_line(to_json(event))
        sys.stdout.buffer.flush()

    def note(self, line: str) -> None:
        note(line)


class EventLines:
    """Prints every durable event on one line."""

    def show(self, event: Event, changes: Sequence[Change] = ()) -> None:
        if event.durable:
            head = f"{event.sequence:>5}  {one_line(event.type):<18}  "
            width = columns() - len(head) if sys.stdout.isatty() else None
            print(head + one_line(event.raw.decode("utf-8", "replace"), width), flush=True)

    def note(self, line: str) -> None:
        note(line)


class TranscriptPrinter:
    """Prints a run for people. A terminal shows the text while it is generated. A pipe or a file gets each reply
    when it is complete, so that the text of a failed attempt never gets there."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._items: dict[str, Item] = {}
        """The items as they were printed last."""
        self._writing = ""
        """The key of the answer that is being printed."""
        self._printed = 0
        """Characters of it that have been printed."""
        self._is_dropped = False
        """What was being written has been discarded, unless its reply is next."""
        self._mid_line = False
        self._secrets: set[tuple[str, str]] = set()
        """Uses of secrets that were printed."""
        self.before_output: Callable[[], None] = lambda: None
        """Called before something is printed: it removes a line that is drawn below."""

    @property
    def is_at_line_start(self) -> bool:
        return not self._mid_line

    def show(self, event: Event, changes: Sequence[Change]) -> None:
        has_ended = any(isinstance(change, ItemAdded) and isinstance(change.item, EndItem) for change in changes)
        for change in changes:
            match change:
                case ItemAdded(AnswerItem() as item) | ItemChanged(AnswerItem() as item):
                    self._show_answer(item)
                case ItemAdded(EndItem(text=text)):
                    self._print_text(text)
                    self._break_line()
                case ItemAdded(item) | ItemChanged(item) if not has_ended:  # the end closes what is left open
                    self._report(item)
                case TextAppended(key=key, offset=offset, text=text) if key == self._writing:
                    self._print_text(text[max(0, self._printed - offset) :])
                    self._printed = max(self._printed, offset + len(text))
                case LiveReplaced():
                    self._is_dropped = True
                case _:
                    pass

    def note(self, line: str) -> None:
        self._break_line()
        self.before_output()
        note(line)

    def _show_answer(self, item: AnswerItem) -> None:
        """Print the rest of an answer. While it is written, only a terminal gets it."""
        if item.state == "writing" and not self._terminal:
            return
        is_again = self._is_dropped and item.state == "writing"
        if item.key != self._writing or is_again:
            self._break_line()
            self._writing, self._printed = item.key, 0
        self._is_dropped = False
        self._print_text(item.text[self._printed :])
        self._printed = len(item.text)
        if item.state != "writing":
            self._writing = ""
            self._break_line()

    def _report(self, item: Item) -> None:
        """Print what happened."""
        before = self._items.get(item.key)
        self._items[item.key] = item
        if isinstance(item, NoteItem) and item.topic == "secret_used":
            if (use := (item.call_id, item.text)) in self._secrets:
                return
            self._secrets.add(use)
        for line in list_lines(item, before, WIDE if is_terminal() else NARROW):
            self.note(line)

    def _print_text(self, text: str) -> None:
        if text:
            self.before_output()
            self._out.write(inert(text) if self._terminal else text)
            self._out.flush()
            self._mid_line = not text.endswith("\n")

    def _break_line(self) -> None:
        if self._mid_line:
            self._mid_line = False  # first: if the reader is gone, this must not be tried again
            self._out.write("\n")
            self._out.flush()


class PlainAnswer(TranscriptPrinter):
    """Prints the text of a run alone. Notes about its end are printed without colours."""

    def note(self, line: str) -> None:
        self._break_line()
        self.before_output()
        alert(line)

    def _report(self, item: Item) -> None:
        """Print nothing about activity."""
