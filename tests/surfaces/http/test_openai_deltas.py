"""The deltas that a client receives of a run whose model calls fail and are retried."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from treadle.domain.agents import AgentSpec, Loop
from treadle.domain.envelope import Event, Origin
from treadle.domain.events import (
    Continuation,
    EventData,
    LlmRequest,
    LlmResponse,
    RunEnd,
    ThinkingDelta,
    Token,
)
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.messages import Text, Thinking
from treadle.domain.runs import Metrics, Usage
from treadle.surfaces.http.openai.deltas import (
    AnswerPiece,
    AnswerText,
    DeltaTracker,
    Ended,
    ReasoningText,
    Restart,
    StepBreak,
)

AGENT = AgentSpec("one", "fake/m")
ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))
Attempt = tuple[str, ...]
"""The text of one request, in the pieces in which it came."""
attempts = st.lists(st.sampled_from(["a", "b", "N", "NO_", "REPLY", " "]), max_size=5).map(tuple)


def collect_pieces(telling: DeltaTracker, *said: EventData) -> list[AnswerPiece]:
    pieces: list[AnswerPiece] = []
    for sequence, data in enumerate(said, 1):
        pieces += telling.add_event(
            Event(
                event_id=f"evt_{sequence}",
                timestamp=0.0,
                origin=ORIGIN,
                sequence=sequence,
                type="x",
                data=data,
                raw=b"",
            )
        )
    return pieces


def make_request(step: int, attempt: int) -> LlmRequest:
    return LlmRequest(step, attempt, "fake", "m", 1)


def tokens(attempt: int, words: Attempt) -> Iterable[Token]:
    offset = 0
    for word in words:
        yield Token(1, attempt, offset, word)
        offset += len(word)


def make_response(step: int, attempt: int, text: str, thought: str = "") -> LlmResponse:
    thinking = (Thinking(thought, "fake", "m"),) if thought else ()
    return LlmResponse(
        step=step,
        attempt=attempt,
        parts=(*thinking, *((Text(text),) if text else ())),
        stop="end_turn",
        usage=Usage(),
        duration_ms=1,
    )


def make_end(text: str) -> RunEnd:
    return RunEnd("completed", "completed", Metrics(), text)


def render_pieces(pieces: list[AnswerPiece]) -> str:
    """Return the text that remains: void text is removed."""
    text = ""
    for piece in pieces:
        match piece:
            case AnswerText(more):
                text += more
            case Restart():
                text = ""
            case _:
                pass
    return text


@given(st.lists(attempts, min_size=1, max_size=4), st.data())
def test_the_final_text_is_the_answer(tried: list[Attempt], data: st.DataObject) -> None:
    events: list[EventData] = []
    for number, words in enumerate(tried, 1):
        seen = list(tokens(number, words))
        lost = data.draw(st.integers(0, len(seen)))  # a reader may come late, or miss some of it
        events += [make_request(1, number), *(seen if data.draw(st.booleans()) else seen[lost:])]
    text = "".join(tried[-1])
    silent = text.strip() in ("NO_REPLY", "[SILENT]")
    events += [make_response(1, len(tried), text), make_end("" if silent else text)]
    pieces = collect_pieces(DeltaTracker(AGENT), *events)
    assert isinstance(pieces[-1], Ended)
    told = render_pieces(pieces)
    if text and not silent:
        assert told == text
    elif len(tried) == 1:
        assert told == ""


@given(st.lists(attempts, min_size=1, max_size=4))
def test_text_repeated_by_the_next_attempt_is_not_void(tried: list[Attempt]) -> None:
    """Text that was said is said again only after a word that it is void."""
    telling, sent, events = DeltaTracker(AGENT), "", list[EventData]()
    for number, words in enumerate(tried, 1):
        events += [make_request(1, number), *tokens(number, words)]
    for piece in collect_pieces(telling, *events):
        match piece:
            case AnswerText(more):
                sent += more
                assert any("".join(words).startswith(sent) for words in tried)
            case Restart():
                sent = ""
            case _:
                pass


def test_text_is_streamed_piece_by_piece() -> None:
    telling = DeltaTracker(AGENT)
    assert collect_pieces(telling, make_request(1, 1), *tokens(1, ("Yes", ",", " it is"))) == [
        AnswerText("Yes"),
        AnswerText(","),
        AnswerText(" it is"),
    ]


def test_another_step_is_another_paragraph_unless_it_continues_the_text() -> None:
    said = (make_request(1, 1), *tokens(1, ("One",)), make_response(1, 1, "One"))
    more = (make_request(2, 1), *tokens(1, ("two",)), make_response(2, 1, "two"))
    assert collect_pieces(DeltaTracker(AGENT), *said, *more) == [AnswerText("One"), StepBreak(), AnswerText("two")]
    assert collect_pieces(DeltaTracker(AGENT), *said, Continuation(1, ""), *more) == [
        AnswerText("One"),
        AnswerText("two"),
    ]


def test_reasoning_is_sent_once_and_opens_the_step() -> None:
    heard_it = (
        make_request(1, 1),
        ThinkingDelta(1, 1, 0, "Hm"),
        *tokens(1, ("One",)),
        make_response(1, 1, "One", "Hm"),
    )
    missed = (make_request(2, 1), make_response(2, 1, "two", "Ah"))
    assert collect_pieces(DeltaTracker(AGENT), *heard_it, *missed) == [
        ReasoningText("Hm"), AnswerText("One"), StepBreak(), ReasoningText("Ah"), AnswerText("two"),
    ]  # fmt: skip


def test_a_missed_step_is_sent_when_it_is_complete() -> None:
    assert collect_pieces(DeltaTracker(AGENT), make_request(1, 1), make_response(1, 1, "All of it")) == [
        AnswerText("All of it")
    ]


def test_an_answer_with_a_schema_is_sent_at_the_end() -> None:
    said = (
        make_request(1, 1),
        ThinkingDelta(1, 1, 0, "Hm"),
        *tokens(1, ("DONE",)),
        make_response(1, 1, "Yes DONE"),
    )
    end = make_end("Yes")
    for agent in (AgentSpec("one", "fake/m", loop=Loop(final_marker="DONE")), AgentSpec("one", "m", output={})):
        assert collect_pieces(DeltaTracker(agent), *said, end) == [AnswerText("Yes"), Ended(end)]
    assert collect_pieces(DeltaTracker(AGENT), *said)[0] == ReasoningText("Hm")
