"""Notes while a user waits for a model: lines in a file, and one changing line on a terminal."""

import io
import time
from collections.abc import Sequence
from typing import Protocol

from treadle.domain.envelope import Event, Origin, make_draft
from treadle.domain.events import (
    EventData,
    LlmError,
    LlmRequest,
    LlmRetry,
    RunWaiting,
    Token,
    ToolCallEnd,
    ToolCallStart,
)
from treadle.domain.ids import AgentId, EventId, RunId, SessionId
from treadle.domain.transcript import Change, RunTotals
from treadle.operations.transcripts import RunTranscript
from treadle.surfaces.cli.live_line import CLEAR, LiveLine, RunActivity
from treadle.surfaces.cli.model_wait import ModelWait

ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))
REQUEST = LlmRequest(1, 1, "ollama", "big", 3)


class Observer(Protocol):
    def observe(self, changes: Sequence[Change], totals: RunTotals) -> None: ...


class Story:
    """A run to which events happen, each at a time."""

    def __init__(self) -> None:
        self.transcript = RunTranscript(ORIGIN.run_id)

    def tell(self, observer: Observer, at: float, *happened: EventData) -> None:
        for data in happened:
            made = make_draft(EventId("evt_1"), at, data)
            sequence = self.transcript.sequence + 1
            changes = self.transcript.apply(
                Event(
                    event_id=made.event_id,
                    timestamp=at,
                    origin=ORIGIN,
                    sequence=sequence,
                    type=made.type,
                    data=data,
                    raw=made.raw,
                )
            )
            observer.observe(changes, self.transcript.totals)


def test_the_wait_is_reported_repeatedly_until_the_first_token() -> None:
    now, said = [0.0], list[str]()
    wait = ModelWait(said.append, lambda: now[0])
    assert wait.next_notice() is None
    story = Story()
    story.tell(wait, 0.0, REQUEST)
    assert wait.next_notice() == 10
    for seconds in (9, 10, 29, 30, 60, 120, 300, 599, 600, 900):
        now[0] = float(seconds)
        wait.notice()
    assert [line.split(" for ")[2].split(" s")[0] for line in said] == [
        "10",
        "30",
        "60",
        "120",
        "300",
        "600",
        "900",
    ]
    assert said[0] == "Waiting for ollama/big: no reply for 10 s (Ctrl-C interrupts)"
    story.tell(wait, 900.0, Token(1, 1, 0, "Hello"))
    now[0] = 5000.0
    wait.notice()
    assert (wait.next_notice(), len(said)) == (None, 7)


def test_the_line_names_the_model_the_seconds_the_tokens_and_the_countdown() -> None:
    now = [0.0]
    activity, story = RunActivity(lambda: now[0]), Story()

    def after(seconds: float, *happened: EventData) -> str:
        story.tell(activity, now[0], *happened)
        now[0] += seconds
        return activity.describe()

    assert after(5) == ""
    assert after(0.5, REQUEST) == "", "what is quick is not shown"
    assert after(11.5) == "ollama/big · 12 s · no reply yet · Ctrl-C interrupts"
    assert after(1, Token(1, 1, 0, "four" * 300)) == "ollama/big · 13 s · about 300 tokens · Ctrl-C interrupts"
    failed = LlmError(1, 1, "overloaded", "ollama is busy.", True)
    at = now[0] + 8.0
    retry = (LlmRetry(1, 1, at, 8000), RunWaiting("retry", "attempt 2 of the model call", at))
    assert after(2, failed, *retry) == "retrying in 6 s · ollama is busy."
    assert after(30) == "retrying in 0 s · ollama is busy."
    begun = (ToolCallStart("a", "bash", "{}", "k"), ToolCallStart("b", "grep", "{}", "k"))
    assert after(3, REQUEST, *begun) == "bash, grep · 3 s · Ctrl-C interrupts"
    assert after(1, ToolCallEnd("a", "bash", "", 1)) == "grep · 4 s · Ctrl-C interrupts"
    assert after(9, ToolCallEnd("b", "grep", "", 1), RunWaiting("approval", "waits")) == ""
    wait = RunWaiting("breaker", "the model's circuit breaker", now[0] + 30)
    assert after(10, wait) == "continues in 20 s · the model's circuit breaker"
    assert after(1, REQUEST).startswith("ollama/big · 1 s")


def test_the_line_is_removed_before_anything_else_is_printed() -> None:
    out, at_start = io.StringIO(), [True]
    line = LiveLine(lambda: at_start[0], out)
    Story().tell(line, 0.0, LlmRetry(1, 1, time.time() + 60.4, 60_000))
    line.draw()
    assert "retrying in 60 s" in out.getvalue()
    line.clear()
    assert out.getvalue().endswith(CLEAR)
    written = out.getvalue()
    line.clear()
    at_start[0] = False
    line.draw()
    assert out.getvalue() == written, "nothing is drawn in the middle of a line, and nothing is cleared twice"
