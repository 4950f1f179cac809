"""Folding events into state is incremental, ignores unknown data, and does not depend on when a delivery
arrived."""

from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.run_scenario import ORIGIN, READ, START, WRITE, RunScenario, fails, same, use
from treadle.core import sub_states
from treadle.core.fold import fold, fold_all
from treadle.core.state import RunState, new_state
from treadle.core.steps import CallModel, Finish
from treadle.domain import events as e
from treadle.domain.envelope import Event, make_draft
from treadle.domain.events import EventData
from treadle.domain.ids import ApprovalId, EventId
from treadle.domain.messages import Message, Text, ToolUse, user
from treadle.domain.runs import Metrics, Usage

DELIVERIES: tuple[EventData, ...] = (
    e.MessageSteered(user("hello"), "steer"),
    e.MessageSteered(user("hello"), "interrupt"),
    e.RunInterrupted("wait"),
    e.ResumeRequested(),
    e.CancelRequested("enough"),
    e.ApprovalDecided(ApprovalId("apr_1"), "approve"),
    e.ClarifyAnswered("asked", "yes"),
    e.ClientResult("asked", "sunny"),
    e.ModeChanged("plan", "ada"),
)
FACTS: tuple[EventData, ...] = (
    e.RunStart((READ,)),
    e.ModelResolved("p", "m2", "custom", "why"),
    e.RunRecovered(2, "died"),
    e.RunQuarantined(4),
    e.StepEnd(step=1, attempts=1, calls=2, input_tokens=3, output_tokens=4, duration_ms=5),
    e.LlmResponse(
        step=2,
        attempt=1,
        parts=(Text("words"), ToolUse("c", "read", "{}")),
        stop="tool_use",
        usage=Usage(1, 2),
        duration_ms=3,
    ),
    e.LlmResponse(step=2, attempt=1, parts=(Text("NO_REPLY"),), stop="end_turn", usage=Usage(1, 2), duration_ms=3),
    e.LlmResponse(
        step=2,
        attempt=1,
        parts=(Text("hal"),),
        stop="interrupted",
        usage=Usage(1, 2, estimated=True),
        duration_ms=3,
    ),
    e.LlmError(2, 1, "overloaded", "busy", True),
    e.LlmRetry(2, 1, START + 9, 9000),
    e.ToolCallEnd("open", "read", "text", 4),
    e.ToolCallError("open", "read", "failed", "text", 4),
    e.ToolCallError("open", "read", "cancelled", "text", 4),
    e.HookBlocked("open", "read", "hook", "text"),
    e.ApprovalRequested(ApprovalId("apr_1"), "open", "read", "{}", "why"),
    e.ApprovalExpired(ApprovalId("apr_1"), "open"),
    e.ClarifyRequested("asked", "what?"),
    e.Redacted(("TOKEN",), "tool_result"),
)
"""What an owner records of its own accord, without asking whether something was delivered."""


def flatten(state: object) -> dict[str, Any]:
    """Return the fields of a state and of its parts."""
    found: dict[str, Any] = {}
    for each in fields(cast("Any", state)):
        value = getattr(state, each.name)
        if type(value).__module__ == sub_states.__name__ and each.name != "recovery":
            found |= flatten(value)
        elif each.name != "sequence":
            found[each.name] = value
    return found


def snapshot_state(state: RunState) -> dict[str, Any]:
    """Return everything in a state except the sequence, for comparisons."""
    plain = flatten(state)
    plain["transcript"] = list(state.transcript.messages)
    plain["preamble"] = (state.prompt.preamble.system, state.prompt.preamble.tools)
    for name in ("ledger", "recovery", "step", "usage"):
        plain[name] = asdict(plain[name])
    plain["calls"] = [asdict(call) for call in state.turn.calls]
    return plain


def in_the_middle() -> RunScenario:
    """Return a run with one open call and one that has ended."""
    scenario = RunScenario(READ, WRITE)
    scenario.turn(use("read", path="x"), text="first")
    scenario.asks()
    scenario.replies(use("read", "open", path="y"), text="second")
    scenario.happens(e.ToolCallStart("open", "read", "{}", "key"))
    return scenario


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
@pytest.mark.parametrize("delivery", DELIVERIES, ids=lambda delivery: type(delivery).__name__)
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_delivery_and_a_fact_give_the_same_state_in_either_order(
    delivery: EventData, fact: EventData, interrupted: bool
) -> None:
    pictures: list[dict[str, Any]] = []
    for pair in ((delivery, fact), (fact, delivery)):
        scenario = in_the_middle()
        if interrupted:
            scenario.happens(e.RunInterrupted("before"))
        for offset, data in enumerate(pair):
            fold(scenario.state, data, scenario.state.sequence + 1 + offset, START)
        pictures.append(snapshot_state(scenario.state))
    assert pictures[0] == pictures[1]


def test_the_test_covers_every_delivery_type() -> None:
    assert {type(delivery) for delivery in DELIVERIES} == set(e.Delivery.__args__)


# ── A random run ──

CALLS = st.lists(
    st.tuples(st.sampled_from(["read", "write", "poll", "again", "nonsense"]), st.integers(0, 3)), max_size=3
)
TURNS = st.lists(
    st.tuples(
        CALLS,
        st.sampled_from(["", "words", "NO_REPLY"]),
        st.sampled_from([None, same, fails]),
        st.sampled_from([None, *DELIVERIES[:2], DELIVERIES[3]]),
    ),
    max_size=14,
)


def make_history(turns: list[Any], prefixes: list[list[Message]] | None = None) -> list[Event]:
    """Return a random run until it ends, with each request of the model."""
    scenario = RunScenario()
    for calls, text, answer, delivery in turns:
        if not isinstance(scenario.decision(), CallModel):
            break
        scenario.asks()
        if prefixes is not None:
            prefixes.append(list(scenario.state.transcript.messages))
        scenario.replies(*(use(name, n=number) for name, number in calls), text=text)
        if delivery is not None:
            scenario.happens(delivery)
        step = scenario.works() if answer is None else scenario.works(answer)
        if isinstance(step, Finish):
            scenario.happens(*step.events, e.RunEnd("completed", "completed", Metrics()))
            break
    return [make_event(data, number) for number, data in enumerate(scenario.events, start=1)]


def make_event(data: EventData, sequence: int) -> Event:
    made = make_draft(EventId(f"evt_{sequence}"), START, data)
    return Event(
        event_id=made.event_id,
        timestamp=made.timestamp,
        origin=ORIGIN,
        sequence=sequence,
        type=made.type,
        data=made.data,
        raw=made.raw,
    )


@given(TURNS, st.data())
def test_folding_in_parts_gives_the_same_state_as_folding_at_once(turns: list[Any], data: st.DataObject) -> None:
    events = make_history(turns)
    cut = data.draw(st.integers(0, len(events)))
    whole = fold_all(new_state(ORIGIN), events)
    halves = fold_all(fold_all(new_state(ORIGIN), events[:cut]), events[cut:])
    assert snapshot_state(whole) == snapshot_state(halves)
    assert whole.sequence == halves.sequence == len(events)


@given(TURNS)
def test_the_transcript_only_grows(turns: list[Any]) -> None:
    prefixes: list[list[Message]] = []
    make_history(turns, prefixes)
    for before, after in pairwise(prefixes):
        assert after[: len(before)] == before
        assert len(after) > len(before)


@given(TURNS)
def test_a_request_never_ends_with_an_assistant_message(turns: list[Any]) -> None:
    prefixes: list[list[Message]] = []
    make_history(turns, prefixes)
    assert all(messages[-1].role != "assistant" for messages in prefixes)


@given(TURNS)
def test_every_call_has_exactly_one_result(turns: list[Any]) -> None:
    events = make_history(turns)
    if not any(isinstance(event.data, e.RunEnd) for event in events):
        return
    asked = [
        part.call_id
        for event in events
        if isinstance(event.data, e.LlmResponse)
        for part in event.data.parts
        if isinstance(part, ToolUse)
    ]
    ended = [
        event.data.call_id
        for event in events
        if isinstance(event.data, e.ToolCallEnd | e.ToolCallError | e.ToolCallBlocked)
    ]
    assert sorted(ended) == sorted(asked)


@given(TURNS)
def test_events_of_a_later_version_change_nothing(turns: list[Any]) -> None:
    events = make_history(turns)
    known, salted = new_state(ORIGIN), new_state(ORIGIN)
    for event in events:
        fold(known, event.data, event.sequence, event.timestamp)
        fold(salted, e.UnknownEvent(), event.sequence, event.timestamp)
        fold(salted, event.data, event.sequence, event.timestamp)
    assert snapshot_state(known) == snapshot_state(salted)


# ── Examples ──


def test_messages_of_earlier_runs_come_first() -> None:
    history = (user("before"), Message("assistant", (Text("yes"),)))
    state = new_state(ORIGIN, history)
    assert state.transcript.messages == list(history)
    assert state.own_messages == ()


def test_the_history_of_a_run_includes_unsent_messages() -> None:
    scenario = RunScenario()
    scenario.turn(text="done")
    scenario.happens(e.MessageSteered(user("too late"), "steer"))
    assert [message.text for message in scenario.state.own_messages] == ["go", "done", "too late"]


def test_an_interrupted_reply_keeps_its_text_and_drops_its_calls() -> None:
    scenario = RunScenario(READ)
    scenario.asks()
    scenario.replies(use("read", path="a"), text="I was about to", stop="interrupted")
    assert scenario.state.turn.calls == []
    assert scenario.state.transcript.messages[-1] == Message("assistant", (Text("I was about to"),))


def test_metrics_sum_up_steps_calls_tokens_and_time() -> None:
    scenario = RunScenario(READ)
    scenario.turn(use("read", path="a"), use("read", path="b"))
    scenario.now += 2
    scenario.turn(text="done")
    metrics = scenario.state.metrics(scenario.now)
    assert (metrics.steps, metrics.model_calls, metrics.actions) == (2, 2, 2)
    assert (metrics.input_tokens, metrics.output_tokens) == (20, 10)
    assert (metrics.duration_ms, metrics.model_ms, metrics.tool_ms, metrics.overhead_ms) == (2000, 14, 6, 1980)


def test_a_request_that_repeats_a_lost_one_is_counted() -> None:
    scenario = RunScenario()
    scenario.asks()
    assert scenario.state.attempts.in_flight
    scenario.happens(e.RunRecovered(2, "died"), e.LlmRequest(1, 2, "p", "m", 1, repeats_lost=True))
    assert scenario.state.metrics(START).repeated_calls == 1
