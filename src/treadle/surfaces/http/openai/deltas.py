"""Converts the events of a run into the pieces that a client receives.

A client cannot take text back. Text is sent as it arrives. After an attempt that failed midway, only what the new
attempt adds is sent; if the new attempt says something else, the client is told that the answer restarts. An
answer that is valid only when complete (it must match a schema, or a marker is removed from it) is held back until
the end. The complete reply in the journal decides: what a client has not received of it is sent then."""

from collections.abc import Iterable

from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.events import (
    ClientCallRequested,
    Continuation,
    LlmRequest,
    LlmResponse,
    RunEnd,
    ThinkingDelta,
    Token,
)
from treadle.domain.ids import Instant
from treadle.domain.messages import Text, Thinking
from treadle.domain.runs import Metrics, Usage
from treadle.domain.silence import is_silence, may_be_silence


class AnswerText(Struct, frozen=True, gc=False):
    """More text of the answer."""

    text: str
    request: int = 0
    """Sequence of the model request whose item it is part of, for responses."""


class ReasoningText(Struct, frozen=True, gc=False):
    """More text of the reasoning."""

    text: str
    request: int = 0


class StepBreak(Struct, frozen=True):
    """The text so far is complete, and more follows: tools were called, or the agent was asked again."""


class Restart(Struct, frozen=True):
    """The text since the last break is void: the model failed, and the next attempt says something else."""


class CallAsked(Struct, frozen=True):
    """The run asks the client to run a call."""

    sequence: int
    """Sequence of the event that asks for it."""
    name: str
    arguments: str


class Called(Struct, frozen=True):
    """The run waits for the results of the calls."""

    usage: Usage
    at: Instant
    """When it began to wait."""


class Waiting(Struct, frozen=True):
    """The run waits for a person, for an unknown time."""

    text: str


class Ended(Struct, frozen=True):
    end: RunEnd
    usage: Usage | Metrics | None = None
    """The usage of this part of the run; None: that of the whole run."""
    at: Instant = 0.0
    """When it ended."""


AnswerPiece = AnswerText | ReasoningText | StepBreak | Restart | CallAsked | Called | Waiting | Ended


def is_shown_at_end(agent: AgentSpec) -> bool:
    """Return whether an answer of the agent is valid only when complete."""
    return agent.output is not None or agent.loop.final_marker is not None


class DeltaTracker:
    """Receives the events of a run and returns the pieces for the client."""

    def __init__(self, agent: AgentSpec) -> None:
        self._held = is_shown_at_end(agent)
        self._step = 0
        self._attempt = 0
        self._received: list[str] = []
        """Text of this attempt."""
        self._length = 0
        self._shown = ""
        """Text of this step that failed attempts have shown."""
        self._catching_up = False
        """New text may repeat what was shown already, or be the marker of a silent answer."""
        self._has_text = False
        """Any text has been sent."""
        self._needs_break = False
        """The next text is the first of its step, and other text was sent before."""
        self._continues = False
        self._has_thought = False
        """Reasoning was received in this attempt."""

    def add_event(self, event: Event) -> Iterable[AnswerPiece]:
        match event.data:
            case Token(attempt=attempt, offset=offset, text=text) if not self._held:
                return self._add_token(attempt, offset, text)
            case ThinkingDelta(text=text) if not self._held:
                return self._emit_reasoning(text)
            case LlmRequest(step=step, attempt=attempt):
                self._start_attempt(step, attempt)
            case LlmResponse(parts=parts) if not self._held:
                whole = "".join([part.text for part in parts if isinstance(part, Text)])
                thought = "".join([part.text for part in parts if isinstance(part, Thinking)])
                missed = self._emit_reasoning(thought) if self._catching_up and not self._has_thought else ()
                return (*missed, *self._settle(whole))
            case Continuation():
                self._continues = True
            case ClientCallRequested(name=name, arguments=arguments):
                return (CallAsked(event.sequence, name, arguments),)
            case RunEnd() as end:
                return self._end(end)
            case _:
                pass
        return ()

    def _start_attempt(self, step: int, attempt: int) -> None:
        if step != self._step:
            self._step, self._shown = step, ""
            self._needs_break = self._has_text and not self._continues
            self._continues = False
        elif not self._catching_up:
            self._shown = "".join(self._received)
        self._attempt, self._received, self._length, self._catching_up = attempt, [], 0, True
        self._has_thought = False

    def _add_token(self, attempt: int, offset: int, text: str) -> Iterable[AnswerPiece]:
        if attempt != self._attempt or offset > self._length:
            return ()  # of another attempt, or after a gap: the complete reply fills it
        text = text[self._length - offset :]
        self._received.append(text)
        self._length += len(text)
        if not text:
            return ()
        return self._catch_up("".join(self._received)) if self._catching_up else self._emit_text(text)

    def _catch_up(self, received: str) -> Iterable[AnswerPiece]:
        """Return the pieces for text that may have been shown before."""
        if self._shown.startswith(received) or (not self._shown and may_be_silence(received)):
            return ()
        self._catching_up = False
        if received.startswith(self._shown):
            return self._emit_text(received[len(self._shown) :])
        return (Restart(), *self._emit_text(received))

    def _settle(self, whole: str) -> Iterable[AnswerPiece]:
        """Return the pieces when the complete reply is known."""
        said = "" if self._catching_up else "".join(self._received)
        self._received, self._length = [whole], len(whole)
        if not self._catching_up:
            return self._emit_text(whole[len(said) :]) if whole.startswith(said) else ()
        if not whole or (not self._shown and is_silence(whole)):
            return ()
        self._catching_up = False
        if whole.startswith(self._shown):
            return self._emit_text(whole[len(self._shown) :])
        return (Restart(), *self._emit_text(whole))

    def _emit_text(self, text: str) -> Iterable[AnswerPiece]:
        if not text:
            return ()
        self._has_text = True
        return (*self._break(), AnswerText(text))

    def _emit_reasoning(self, text: str) -> Iterable[AnswerPiece]:
        if not text:
            return ()
        self._has_thought = True
        return (*self._break(), ReasoningText(text))

    def _break(self) -> Iterable[AnswerPiece]:
        begins, self._needs_break = self._needs_break, False
        return (StepBreak(),) if begins else ()

    def _end(self, end: RunEnd) -> Iterable[AnswerPiece]:
        late = self._emit_text(end.text) if not self._has_text else ()
        return (*late, Ended(end))
