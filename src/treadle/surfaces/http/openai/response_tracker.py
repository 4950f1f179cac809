"""Converts the events of a run into the pieces of a response.

The pieces and their order follow from the journal alone: tokens only make them arrive earlier. A response that is
read again therefore has the same items, and its events the same numbers. The text of an attempt that failed is not
in the journal; it is an item of its own, which is not part of the response."""

from collections.abc import Iterable

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
from treadle.domain.messages import Text, Thinking
from treadle.domain.silence import is_silence, may_be_silence
from treadle.surfaces.http.openai.deltas import (
    AnswerPiece,
    AnswerText,
    CallAsked,
    Ended,
    ReasoningText,
    Restart,
    StepBreak,
    is_shown_at_end,
)


class ResponseTracker:
    """Receives the events of a run and returns the pieces of the response. Implements `run_answer.Tracker`."""

    def __init__(self, agent: AgentSpec) -> None:
        self._held = is_shown_at_end(agent)
        self._step = self._attempt = 0
        self._item = 0
        """Sequence of the model request whose item is open: the first of a continued answer."""
        self._continues = False
        self._text = ""
        """Text of this attempt that was received."""
        self._shown = 0
        """Characters of it that were passed on."""
        self._thought = 0
        """Characters of its reasoning that were passed on."""
        self._has_text = False
        """Text was passed on since the last break."""
        self._has_output = False
        """Text or reasoning was passed on since the last break."""
        self._restarts = 0
        """Attempts that failed without output. The client need not know of them before there is some."""

    def add_event(self, event: Event) -> Iterable[AnswerPiece]:
        match event.data:
            case LlmRequest(step=step, attempt=attempt):
                return self._start_attempt(event.sequence, step, attempt)
            case Token(attempt=attempt, offset=offset, text=text) if self._expects(attempt):
                return self._add_token(offset, text)
            case ThinkingDelta(attempt=attempt, offset=offset, text=text) if self._expects(attempt):
                return self._add_thought(offset, text)
            case LlmResponse(parts=parts) if not self._held:
                return self._complete_reply(
                    "".join([part.text for part in parts if isinstance(part, Thinking)]),
                    "".join([part.text for part in parts if isinstance(part, Text)]),
                )
            case Continuation():
                self._continues = True
            case ClientCallRequested(name=name, arguments=arguments):
                return self._pass_on(CallAsked(event.sequence, name, arguments))
            case RunEnd() as end:
                late = () if self._has_text or not end.text else self._pass_on(AnswerText(end.text, self._item))
                return (*late, Ended(end))
            case _:
                pass
        return ()

    def _expects(self, attempt: int) -> bool:
        return attempt == self._attempt and not self._held

    def _start_attempt(self, sequence: int, step: int, attempt: int) -> Iterable[AnswerPiece]:
        had_text, is_new = self._has_text, step != self._step
        continues, self._continues = self._continues and is_new, False
        self._step, self._attempt = step, attempt
        self._text, self._shown, self._thought = "", 0, 0
        if continues and had_text:
            return ()  # the text goes on in the same item
        had_output, self._has_output = self._has_output, False
        self._item, self._has_text = sequence, False
        if not had_output:
            self._restarts += not is_new
            return ()
        return (StepBreak(),) if is_new else (Restart(),)

    def _pass_on(self, piece: AnswerText | ReasoningText | CallAsked) -> Iterable[AnswerPiece]:
        self._has_output = True
        restarts, self._restarts = self._restarts, 0
        return (*[Restart()] * restarts, piece)

    def _add_token(self, offset: int, text: str) -> Iterable[AnswerPiece]:
        if offset > len(self._text):
            return ()  # after a gap, which the complete reply fills
        self._text += text[len(self._text) - offset :]
        if not self._shown and may_be_silence(self._text):
            return ()
        return self._show_text()

    def _show_text(self) -> Iterable[AnswerPiece]:
        new, self._shown = self._text[self._shown :], len(self._text)
        if not new:
            return ()
        self._has_text = True
        return self._pass_on(AnswerText(new, self._item))

    def _add_thought(self, offset: int, text: str) -> Iterable[AnswerPiece]:
        new = text[self._thought - offset :] if offset <= self._thought else ""
        if not new or self._has_text:
            return ()
        self._thought += len(new)
        return self._pass_on(ReasoningText(new, self._item))

    def _complete_reply(self, thought: str, text: str) -> Iterable[AnswerPiece]:
        """Return what the client lacks of a complete reply."""
        pieces = [*self._add_thought(self._thought, thought[self._thought :])]
        if not text.startswith(self._text) or (not self._shown and is_silence(text)):
            return pieces
        self._text = text
        return [*pieces, *self._show_text()]
