"""Events, printed: for people, with the words on standard output and the rest on standard error, or as JSON."""

import sys
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
    RunEnd,
    SecretUsed,
    StepEnd,
    Token,
    ToolCallError,
)
from treadle.domain.messages import Text, ToolUse
from treadle.domain.time_format import format_second
from treadle.surfaces.cli.activity import NARROW, WIDE, activity, denial
from treadle.surfaces.cli.terminal import columns, inert, is_terminal, likes_colour, one_line, print_json_line

LONG_WAIT_MS = 60_000
"""From here on, people are told the time until which a run waits."""
SHORT = 16
"""A reply no longer than this may be one of the words for silence; only the end of the run tells."""


class Printer(Protocol):
    def show(self, event: Event) -> None: ...

    def note(self, line: str) -> None:
        """A word from Treadle itself, on standard error."""
        ...


def note(line: str) -> None:
    """One line on standard error, quieter than the words of the model where colours are welcome."""
    line = inert(line.replace("\n", " "))
    print(f"\x1b[2m{line}\x1b[0m" if likes_colour(sys.stderr) else line, file=sys.stderr, flush=True)


def say(line: str) -> None:
    """One line on standard error that somebody must read: as bright as the words of the model."""
    print(inert(line.replace("\n", " ")), file=sys.stderr, flush=True)


class JsonLines:
    """Every event, whole, one per line."""

    def show(self, event: Event) -> None:
        print_json_line(to_json(event))
        sys.stdout.buffer.flush()

    def note(self, line: str) -> None:
        note(line)


class EventLines:
    """Every durable event on a line for people."""

    def show(self, event: Event) -> None:
        if event.durable:
            head = f"{event.sequence:>5}  {one_line(event.type):<18}  "
            width = columns() - len(head) if sys.stdout.isatty() else None
            print(head + one_line(event.raw.decode("utf-8", "replace"), width), flush=True)

    def note(self, line: str) -> None:
        note(line)


class Transcript:
    """A run for people. A terminal shows the words as they are written. Into a pipe or a file goes each reply when
    it is whole, so that the words of a failed attempt never get there."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._attempt = (0, 0)
        self._shown = 0
        """How much of the reply that is being written has been printed."""
        self._held = ""
        """What has been said and not been printed yet."""
        self._whole = True
        """Whether what is held is the end of its reply."""
        self._mid_line = False
        self._failure = ""
        self._calls: dict[str, str] = {}
        """The arguments that the model wrote, by call."""
        self._secrets: set[SecretUsed] = set()
        """Those whose use was told."""

    def show(self, event: Event) -> None:
        match event.data:
            case Token() as token:
                self._hear(token)
            case AttemptReset():
                self._forget()
            case LlmError(message=message):
                self._failure = message
                self._forget()
            case LlmRetry(delay_ms=delay_ms, wake_at=wake_at):
                when = f"{delay_ms / 1000:.1f} s"
                if delay_ms >= LONG_WAIT_MS:
                    when = f"{format_duration(delay_ms / 1000)}, at {format_second(wake_at)}"
                self.note(f"{self._failure} Trying again in {when}.")
            case LlmResponse(parts=parts):
                self._calls |= {part.call_id: part.arguments for part in parts if isinstance(part, ToolUse)}
                self._replied("".join(part.text for part in parts if isinstance(part, Text)))
            case RunEnd(outcome="silent"):
                self._forget()
            case CommandObeyed(said=said, done=True):
                self._held = said
                self._print_held()
                self._break_line()
            case data if event.durable and not isinstance(data, StepEnd):
                self._tell(data)
            case _:
                pass

    def note(self, line: str) -> None:
        self._break_line()
        note(line)

    def _hear(self, token: Token) -> None:
        if not self._terminal:
            return
        if self._attempt != (token.request, token.attempt):
            self._attempt = (token.request, token.attempt)
            self._forget()
            self._break_line()
        self._whole = False
        self._held += token.text[max(0, self._shown + len(self._held) - token.offset) :]
        if self._shown or len(self._held) > SHORT:
            self._shown += len(self._held)
            self._print_held()

    def _replied(self, text: str) -> None:
        certain = self._shown > 0 or len(text) > SHORT
        self._held, self._whole = text[self._shown :] if text.strip() else "", True
        self._shown = 0
        if certain:
            self._print_held()
            self._break_line()

    def _tell(self, data: EventData) -> None:
        """Something happened that shows a short reply before it to have been meant."""
        if self._whole:
            self._print_held()
            self._break_line()
        match data:
            case ToolCallError(kind="denied"):
                for line in denial(data, self._calls.get(data.call_id)):
                    self.note(line)
                return
            case SecretUsed() if data in self._secrets:
                return
            case SecretUsed():
                self._secrets.add(data)
            case _:
                pass
        if line := activity(data, WIDE if is_terminal() else NARROW):
            self.note(line)

    def _forget(self) -> None:
        self._held, self._shown = "", 0

    def _print_held(self) -> None:
        if self._held:
            self._out.write(inert(self._held) if self._terminal else self._held)
            self._out.flush()
            self._mid_line = not self._held.endswith("\n")
            self._held = ""

    def _break_line(self) -> None:
        if self._mid_line:
            self._mid_line = False  # first: when nobody reads any more, this must not be tried again
            self._out.write("\n")
            self._out.flush()
