"""Printers of events: for people, with the model's text on standard output and the rest on standard error, or as
JSON."""

import sys
from collections.abc import Callable
from typing import Protocol, TextIO

from treadle.domain.durations import format_duration
from treadle.domain.envelope import Event, to_json
from treadle.domain.events import (
    AttemptReset,
    CommandObeyed,
    EventData,
    LlmError,
    LlmResponse,
    LlmRetry,
    MemoryRecalled,
    RunEnd,
    SecretUsed,
    StepEnd,
    Token,
    ToolCallError,
)
from treadle.domain.ids import RunId
from treadle.domain.messages import Text, ToolUse
from treadle.domain.time_format import format_second
from treadle.surfaces.cli.activity import NARROW, WIDE, activity, describe_denial
from treadle.surfaces.cli.output import alert, note, print_json_line, short_id
from treadle.surfaces.cli.terminal import columns, inert, is_terminal, one_line

LONG_WAIT_MS = 60_000
"""For longer waits, the time at which they end is printed."""
SHORT = 16
"""A reply of at most this many characters may be the word for silence; the end of the run decides."""


class Printer(Protocol):
    def show(self, event: Event) -> None: ...

    def note(self, line: str) -> None:
        """Print a line of Treadle itself on standard error."""
        ...


class JsonLines:
    """Prints every event as a line of JSON."""

    def show(self, event: Event) -> None:
        print_json_line(to_json(event))
        sys.stdout.buffer.flush()

    def note(self, line: str) -> None:
        note(line)


class EventLines:
    """Prints every durable event on one line."""

    def show(self, event: Event) -> None:
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
        self._attempt = (0, 0)
        self._shown = 0
        """Characters of the current reply that have been printed."""
        self._held = ""
        """Text that has not been printed yet."""
        self._whole = True
        """Whether the held text is the end of its reply."""
        self._mid_line = False
        self._failure = ""
        self._calls: dict[str, str] = {}
        """The arguments that the model wrote, by call."""
        self._secrets: set[SecretUsed] = set()
        """Secrets whose use was printed."""
        self.before_output: Callable[[], None] = lambda: None
        """Called before something is printed: it removes a line that is drawn below."""

    @property
    def is_at_line_start(self) -> bool:
        return not self._mid_line

    def show(self, event: Event) -> None:
        match event.data:
            case Token() as token:
                self._add_token(token)
            case AttemptReset():
                self._discard()
            case LlmError(message=message):
                self._failure = message
                self._discard()
            case LlmRetry(delay_ms=delay_ms, wake_at=wake_at):
                when = f"{delay_ms / 1000:.1f} s"
                if delay_ms >= LONG_WAIT_MS:
                    when = f"{format_duration(delay_ms / 1000)}, at {format_second(wake_at)}"
                self.note(f"{self._failure} Retrying in {when}.")
            case LlmResponse(parts=parts):
                self._calls |= {part.call_id: part.arguments for part in parts if isinstance(part, ToolUse)}
                self._end_reply("".join(part.text for part in parts if isinstance(part, Text)))
            case RunEnd(outcome="silent"):
                self._discard()
            case CommandObeyed(said=said, done=True):
                self._held = said
                self._print_held()
                self._break_line()
            case data if event.durable and not isinstance(data, StepEnd):
                self._report(event.run_id, data)
            case _:
                pass

    def note(self, line: str) -> None:
        self._break_line()
        self.before_output()
        note(line)

    def _add_token(self, token: Token) -> None:
        if not self._terminal:
            return
        if self._attempt != (token.request, token.attempt):
            self._attempt = (token.request, token.attempt)
            self._discard()
            self._break_line()
        self._whole = False
        self._held += token.text[max(0, self._shown + len(self._held) - token.offset) :]
        if self._shown or len(self._held) > SHORT:
            self._shown += len(self._held)
            self._print_held()

    def _end_reply(self, text: str) -> None:
        certain = self._shown > 0 or len(text) > SHORT
        self._held, self._whole = text[self._shown :] if text.strip() else "", True
        self._shown = 0
        if certain:
            self._print_held()
            self._break_line()

    def _report(self, run_id: RunId, data: EventData) -> None:
        """Print what happened. A short reply before it was meant as an answer."""
        if self._whole:
            self._print_held()
            self._break_line()
        match data:
            case ToolCallError(kind="denied"):
                for line in describe_denial(data, self._calls.get(data.call_id)):
                    self.note(line)
                return
            case SecretUsed() if data in self._secrets:
                return
            case SecretUsed():
                self._secrets.add(data)
            case _:
                pass
        if line := activity(data, WIDE if is_terminal() else NARROW):
            if isinstance(data, MemoryRecalled):
                line += f"; to read them: treadle runs prompt {short_id(run_id)}"
            self.note(line)

    def _discard(self) -> None:
        self._held, self._shown = "", 0

    def _print_held(self) -> None:
        if self._held:
            self.before_output()
            self._out.write(inert(self._held) if self._terminal else self._held)
            self._out.flush()
            self._mid_line = not self._held.endswith("\n")
            self._held = ""

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

    def _report(self, run_id: RunId, data: EventData) -> None:
        """Print nothing about activity; only the short reply before it."""
        if self._whole:
            self._print_held()
            self._break_line()
