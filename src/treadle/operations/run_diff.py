"""The differences between two runs: their agents, what each step got and did, and their results. All of it is
derived from their journals."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState
from treadle.domain.events import (
    ClarifyAnswered,
    MemoryRecalled,
    MessageSteered,
    ModelResolved,
    RunEnd,
    RunForked,
    RunQueued,
    StepStart,
    UserMessage,
)
from treadle.domain.ids import RunId
from treadle.domain.runs import Metrics, OutcomeKind
from treadle.operations.operation import OperationClient
from treadle.operations.run_records import CallRecord, StepRecord, build_run_steps
from treadle.operations.runs import SHOW, ShowRun


class Differs(Struct, frozen=True):
    """One difference; null where a run does not have it."""

    what: str
    a: Any = None
    b: Any = None


class Compared(Struct, frozen=True):
    """One of the two runs."""

    run_id: RunId
    agent: str
    model: str
    """The first that answered; empty: none has."""
    message: str
    outcome: OutcomeKind | None
    """Null: it has not ended."""
    text: str
    metrics: Metrics


class StepDiff(Struct, frozen=True):
    """A step that differs, by its number in each run; null: one of them has no such step."""

    a: int | None
    b: int | None
    differs: tuple[Differs, ...]


class RunDiff(Struct, frozen=True):
    a: Compared
    b: Compared
    agent: tuple[Differs, ...]
    """The fields of the agent that differ."""
    forked: str
    """Which of them is a fork of the other, and from which step; empty: neither."""
    same_steps: int
    """Number of steps before the first that differs."""
    steps: tuple[StepDiff, ...]
    """The steps that differ, in order."""
    outcome: tuple[Differs, ...]


async def diff(client: OperationClient, a: RunId, b: RunId) -> RunDiff:
    """Compare two runs."""
    return compare_journals(await _read_journal(client, a), await _read_journal(client, b))


async def _read_journal(client: OperationClient, run_id: RunId) -> list[Event]:
    run = await client.call(SHOW, ShowRun(run_id))
    return [event async for event in client.read_stored(run.run_id)]


def compare_journals(a: Sequence[Event], b: Sequence[Event]) -> RunDiff:
    """Compare two runs by their stored events."""
    one, other = _summarize_run(a), _summarize_run(b)
    forked, skip_a, skip_b = _find_fork(a, b)
    steps = list(_pair_steps(_list_steps(a)[skip_a:], _list_steps(b)[skip_b:]))
    differing = tuple([each for each in steps if each.differs])
    same = next((index for index, each in enumerate(steps) if each.differs), len(steps))
    ends = tuple(_compare_fields(("outcome", one.outcome, other.outcome), ("text", one.text, other.text)))
    return RunDiff(
        a=one,
        b=other,
        agent=tuple(_compare_agents(_spec(a), _spec(b))),
        forked=forked,
        same_steps=same,
        steps=differing,
        outcome=ends,
    )


def _summarize_run(events: Sequence[Event]) -> Compared:
    """Return the message, the model and the end of a run."""
    message = model = ""
    end: RunEnd | None = None
    for event in events:
        match event.data:
            case RunForked(asked=asked):
                message = asked
            case UserMessage(message=said):
                message = said.text
            case ModelResolved(provider, name) if not model:
                model = f"{provider}/{name}"
            case RunEnd():
                end = event.data
            case _:
                pass
    outcome, text = (None, "") if end is None else (end.outcome, end.text)
    run_id, agent = events[0].run_id, _spec(events).name
    return Compared(
        run_id=run_id,
        agent=agent,
        model=model,
        message=message,
        outcome=outcome,
        text=text,
        metrics=build_run_steps(events).metrics,
    )


def _spec(events: Sequence[Event]) -> AgentSpec:
    queued = events[0].data
    if not isinstance(queued, RunQueued):
        raise InvalidState(f"{events[0].run_id} does not begin with run_queued, so it cannot be compared.")
    return queued.agent


def _find_fork(a: Sequence[Event], b: Sequence[Event]) -> tuple[str, int, int]:
    """Return a sentence if one run is a fork of the other, and how many steps of each to skip in the comparison."""
    for events, other, is_b in ((b, a, True), (a, b, False)):
        for event in events:
            if isinstance(event.data, RunForked) and event.data.run_id == other[0].run_id:
                description = f"{events[0].run_id} is a fork of {other[0].run_id} from its step {event.data.step}"
                before = event.data.step - 1
                return (description, before, 0) if is_b else (description, 0, before)
    return "", 0, 0


def _compare_agents(one: AgentSpec, other: AgentSpec) -> Iterator[Differs]:
    a, b = cast("dict[str, Any]", msgspec.to_builtins(one)), cast("dict[str, Any]", msgspec.to_builtins(other))
    for name in AgentSpec.__struct_fields__:
        if getattr(one, name) != getattr(other, name):
            yield Differs(name, a.get(name), b.get(name))


def _compare_fields(*pairs: tuple[str, Any, Any]) -> Iterator[Differs]:
    for what, a, b in pairs:
        if a != b:
            yield Differs(what, a, b)


class _Step(NamedTuple):
    """A step, and what the model was given since the step before."""

    record: StepRecord
    input: str


def _list_steps(events: Sequence[Event]) -> list[_Step]:
    given: dict[int, list[str]] = {}
    texts: list[str] = []
    for event in events:
        match event.data:
            case UserMessage(message=message) | MessageSteered(message=message):
                texts.append(message.text)
            case RunForked(asked=text) | MemoryRecalled(section=text) | ClarifyAnswered(text=text):
                texts.append(text)
            case StepStart(step=number):
                given[number], texts = texts, []
            case _:
                pass
    return [
        _Step(record, "\n\n".join(filter(None, given.get(record.number, ()))))
        for record in build_run_steps(events).steps
    ]


def _pair_steps(a: Sequence[_Step], b: Sequence[_Step]) -> Iterator[StepDiff]:
    for one, other in zip_longest(a, b):
        numbers = [None if step is None else step.record.number for step in (one, other)]
        yield StepDiff(numbers[0], numbers[1], tuple(_compare_steps(one, other)))


def _compare_steps(one: _Step | None, other: _Step | None) -> Iterator[Differs]:
    if one is None or other is None:
        yield Differs("step", _describe_step(one), _describe_step(other))
        return
    yield from _compare_fields(("input", one.input, other.input))
    yield from _compare_records(one.record, other.record)


def _compare_records(one: StepRecord, other: StepRecord) -> Iterator[Differs]:
    yield from _compare_fields(
        ("model", f"{one.provider}/{one.model}", f"{other.provider}/{other.model}"),
        ("thinking", one.reasoning, other.reasoning),
        ("text", one.text, other.text),
        ("stop", one.stop, other.stop),
    )
    for index, (here, there) in enumerate(zip_longest(one.calls, other.calls)):
        yield from _compare_fields(
            (f"call {index + 1}", _describe_call(here), _describe_call(there)),
            (f"result {index + 1}", _describe_result(here), _describe_result(there)),
        )


def _describe_step(step: _Step | None) -> str | None:
    if step is None:
        return None
    return step.record.text or ", ".join(filter(None, map(_describe_call, step.record.calls)))


def _describe_call(call: CallRecord | None) -> str | None:
    return None if call is None else f"{call.tool} {call.input}"


def _describe_result(call: CallRecord | None) -> str | None:
    return None if call is None else f"{call.status}: {call.output}"
