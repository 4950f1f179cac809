"""A person who waits for a slow model is told so."""

from treadle.domain.envelope import Event, Origin, make_draft
from treadle.domain.events import EventData, LlmRequest, Token
from treadle.domain.ids import AgentId, EventId, RunId, SessionId
from treadle.surfaces.cli.model_wait import ModelWait

ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))
REQUEST = LlmRequest(1, 1, "ollama", "big", 3)


def event(data: EventData) -> Event:
    made = make_draft(EventId("evt_1"), 0.0, data)
    return Event(made.event_id, 0.0, ORIGIN, 1, made.type, data, made.raw)


def test_the_wait_is_said_now_and_then_and_ends_with_the_first_token() -> None:
    now, said = [0.0], list[str]()
    wait = ModelWait(said.append, lambda: now[0])
    assert wait.next_notice() is None
    wait.see(event(REQUEST))
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
    wait.see(event(Token(1, 1, 0, "Hello")))
    now[0] = 5000.0
    wait.notice()
    assert (wait.next_notice(), len(said)) == (None, 7)
