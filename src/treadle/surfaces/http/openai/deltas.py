"""What a client is told of a run while it goes on, piece by piece.

A client cannot take text back. So text goes out as it comes, and after an attempt that failed in the middle only
what the new one adds to it; where the new one says something else, the client is told that the answer begins anew.
An answer that is none before it is whole (it must fit a schema, or a mark is taken out of it) is held back to the
end. The whole reply in the journal has the last word: what a client has not been shown of it, it gets then."""

from collections.abc import Iterable

from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.events import Continuation, LlmRequest, LlmResponse, RunEnd, ThinkingDelta, Token
from treadle.domain.messages import Text, Thinking
from treadle.operations.run_stream import is_silence, may_be_silence


class AnswerText(Struct, frozen=True, gc=False):
    """More of the answer."""

    text: str


class ReasoningText(Struct, frozen=True, gc=False):
    """More of what led to it."""

    text: str


class StepBreak(Struct, frozen=True):
    """What was said is whole, and more comes: calls were made, or the agent was asked again."""


class Restart(Struct, frozen=True):
    """What was said since the last break is void: the model failed, and the one that took over says otherwise."""


class Waiting(Struct, frozen=True):
    """The run waits, for as long as it takes: for a person."""

    text: str


class Ended(Struct, frozen=True):
    end: RunEnd


AnswerPiece = AnswerText | ReasoningText | StepBreak | Restart | Waiting | Ended


def is_shown_at_end(agent: AgentSpec) -> bool:
    """Whether an answer of the agent is none before it is whole."""
    return agent.output is not None or agent.loop.final_marker is not None


class DeltaTracker:
    """Hears the events of a run, and says what a client is told."""

    def __init__(self, agent: AgentSpec) -> None:
        self._held = is_shown_at_end(agent)
        self._step = 0
        self._attempt = 0
        self._heard: list[str] = []
        """Of this attempt."""
        self._length = 0
        self._shown = ""
        """Of this step, by attempts that failed."""
        self._catching_up = False
        """What comes may be what was shown already, or the mark of having nothing to say."""
        self._said = False
        """Anything at all."""
        self._begins = False
        """What comes next is the first of its step, and something was said before."""
        self._continues = False
        self._has_thought = False
        """In this attempt, where it was heard."""

    def hear(self, event: Event) -> Iterable[AnswerPiece]:
        match event.data:
            case Token(attempt=attempt, offset=offset, text=text) if not self._held:
                return self._token(attempt, offset, text)
            case ThinkingDelta(text=text) if not self._held:
                return self._thought(text)
            case LlmRequest(step=step, attempt=attempt):
                self._asked(step, attempt)
            case LlmResponse(parts=parts) if not self._held:
                whole = "".join([part.text for part in parts if isinstance(part, Text)])
                thought = "".join([part.text for part in parts if isinstance(part, Thinking)])
                missed = self._thought(thought) if self._catching_up and not self._has_thought else ()
                return (*missed, *self._settle(whole))
            case Continuation():
                self._continues = True
            case RunEnd() as end:
                return self._last(end)
            case _:
                pass
        return ()

    def _asked(self, step: int, attempt: int) -> None:
        if step != self._step:
            self._step, self._shown = step, ""
            self._begins = self._said and not self._continues
            self._continues = False
        elif not self._catching_up:
            self._shown = "".join(self._heard)
        self._attempt, self._heard, self._length, self._catching_up = attempt, [], 0, True
        self._has_thought = False

    def _token(self, attempt: int, offset: int, text: str) -> Iterable[AnswerPiece]:
        if attempt != self._attempt or offset > self._length:
            return ()  # of another attempt, or after what was missed: the whole reply will tell
        text = text[self._length - offset :]
        self._heard.append(text)
        self._length += len(text)
        if not text:
            return ()
        return self._catch_up("".join(self._heard)) if self._catching_up else self._words(text)

    def _catch_up(self, heard: str) -> Iterable[AnswerPiece]:
        """What to say of text that may have been said before."""
        if self._shown.startswith(heard) or (not self._shown and may_be_silence(heard)):
            return ()
        self._catching_up = False
        if heard.startswith(self._shown):
            return self._words(heard[len(self._shown) :])
        return (Restart(), *self._words(heard))

    def _settle(self, whole: str) -> Iterable[AnswerPiece]:
        """What to say when the reply is known."""
        said = "" if self._catching_up else "".join(self._heard)
        self._heard, self._length = [whole], len(whole)
        if not self._catching_up:
            return self._words(whole[len(said) :]) if whole.startswith(said) else ()
        if not whole or (not self._shown and is_silence(whole)):
            return ()
        self._catching_up = False
        if whole.startswith(self._shown):
            return self._words(whole[len(self._shown) :])
        return (Restart(), *self._words(whole))

    def _words(self, text: str) -> Iterable[AnswerPiece]:
        if not text:
            return ()
        self._said = True
        return (*self._break(), AnswerText(text))

    def _thought(self, text: str) -> Iterable[AnswerPiece]:
        if not text:
            return ()
        self._has_thought = True
        return (*self._break(), ReasoningText(text))

    def _break(self) -> Iterable[AnswerPiece]:
        begins, self._begins = self._begins, False
        return (StepBreak(),) if begins else ()

    def _last(self, end: RunEnd) -> Iterable[AnswerPiece]:
        late = self._words(end.text) if not self._said else ()
        return (*late, Ended(end))
