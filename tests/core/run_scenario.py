"""A run as a list of events, without a journal or a loop: tests fold events and read the next decision."""

from collections.abc import Callable
from typing import Any

import msgspec

from treadle.core.decide import decide
from treadle.core.environment import Environment
from treadle.core.fold import fold
from treadle.core.state import RunState, new_state
from treadle.core.steps import CallModel, Finish, RunTools, Step
from treadle.core.tools.ledger import Call
from treadle.domain import events as e
from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.envelope import Origin
from treadle.domain.events import EventData, RunWaiting, StopReason
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.messages import Part, Text, ToolUse, user
from treadle.domain.runs import Usage
from treadle.domain.tools import Effect, ToolSpec

ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))
START = 1_000.0
Answer = Callable[[Call], str]
"""What a tool answers; an exception that it raises is a failure."""


def spec(name: str, effect: Effect = "read", **more: Any) -> ToolSpec:
    return ToolSpec(name, f"To {name}.", {"type": "object"}, effect=effect, **more)


READ, WRITE, POLL = spec("read"), spec("write", "write"), spec("poll", poller=True)
OTHER_READ, AGAIN = spec("look"), spec("again", "write", repeatable=True)
TOOLS = (READ, OTHER_READ, WRITE, POLL, AGAIN)


def use(name: str, call_id: str = "", /, **arguments: Any) -> ToolUse:
    return ToolUse(call_id, name, msgspec.json.encode(arguments).decode())


def fails(call: Call) -> str:
    raise RuntimeError(f"{call.call_id} went wrong")


def same(call: Call) -> str:
    return "the same"


class RunScenario:
    """A run in progress. `turn` plays the model and the tools, and the decisions are recorded."""

    def __init__(self, *tools: ToolSpec, limits: dict[str, Any] | None = None, **agent: Any) -> None:
        self.state: RunState = new_state(ORIGIN)
        self.now = START
        self.events: list[EventData] = []
        self.ran: list[str] = []
        self.batches: list[tuple[str, ...]] = []
        self.asked: list[CallModel] = []
        self._calls = 0
        agent_spec = AgentSpec("hero", "model", limits=Limits(**(limits or {})), **agent)
        self.happens(
            e.RunQueued(agent_spec),
            e.UserMessage(user("go")),
            e.RunStart(tools or TOOLS),
            e.ModelResolved("provider", "model", "custom", "it was named"),
        )

    # ── Telling ──

    def happens(self, *data: EventData) -> None:
        for item in data:
            self.events.append(item)
            fold(self.state, item, self.state.sequence + 1, self.now)

    def decision(self) -> Step:
        return decide(self.state, Environment(self.now))

    def asks(self) -> CallModel:
        """Apply the request that was decided."""
        step = self.decision()
        assert isinstance(step, CallModel), step
        self.asked.append(step)
        number = self.state.step.number
        opening = () if self.state.step.is_open else (e.StepStart(number + 1),)
        attempt = 1 if opening else self.state.step.attempts + 1
        request = e.LlmRequest(
            number + len(opening), attempt, "provider", "model", 1, tools_offered=step.tools_offered
        )
        self.happens(*step.events, *opening, request)
        return step

    def replies(self, *calls: ToolUse, text: str = "", stop: StopReason | None = None) -> None:
        """Apply a reply to the last request."""
        parts: list[Part] = [Text(text)] if text else []
        for call in calls:
            self._calls += 1
            parts.append(ToolUse(call.call_id or f"call_{self._calls}", call.name, call.arguments))
        step = self.state.step
        reason: StopReason = stop or ("tool_use" if calls else "end_turn")
        self.happens(
            e.LlmResponse(
                step=step.number,
                attempt=step.attempts,
                parts=tuple(parts),
                stop=reason,
                usage=Usage(10, 5),
                duration_ms=7,
            )
        )
        self._end_step()

    def works(self, answer: Answer = lambda call: f"result of {call.call_id}") -> Step:
        """Run or refuse every open call, and return the next decision."""
        while isinstance(step := self.decision(), RunTools):
            self.happens(*step.refuse)
            self.batches.append(tuple(call.call_id for call in step.run))
            for call in step.run:
                self.happens(e.ToolCallStart(call.call_id, call.name, call.use.arguments, "key"))
                self.ran.append(call.call_id)
                self.happens(_ended(call, answer))
        if not isinstance(step, Finish):
            self._end_step()
            step = self.decision()
        return step

    def turn(self, *calls: ToolUse, text: str = "", answer: Answer | None = None) -> Step:
        """Apply one model turn with its calls, and return the next decision."""
        self.asks()
        self.replies(*calls, text=text)
        return self.works() if answer is None else self.works(answer)

    def _end_step(self) -> None:
        step = self.state.step
        if step.is_open and self.state.turn.reply is not None and not self.state.open_calls:
            self.happens(
                e.StepEnd(
                    step=step.number,
                    attempts=step.attempts,
                    calls=step.calls,
                    input_tokens=0,
                    output_tokens=0,
                    duration_ms=0,
                )
            )

    # ── Looking back ──

    def happened(self, kind: type[EventData]) -> list[EventData]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def blocked(self) -> list[str]:
        return [event.call_id for event in self.events if isinstance(event, e.ToolCallBlocked)]

    @property
    def errors(self) -> dict[str, e.ToolCallError]:
        return {event.call_id: event for event in self.events if isinstance(event, e.ToolCallError)}


def _ended(call: Call, answer: Answer) -> EventData:
    try:
        return e.ToolCallEnd(call.call_id, call.name, answer(call), 3)
    except RuntimeError as error:
        return e.ToolCallError(call.call_id, call.name, "failed", str(error), 3)


def outcome(step: Step) -> str:
    """Return the outcome, if the last decision ends the run."""
    assert isinstance(step, Finish), step
    return step.outcome.kind


def noted(step: Step) -> list[EventData]:
    """Return the notes of the guards for the next request."""
    assert isinstance(step, CallModel), step
    return list(step.events)


def waits(step: Step) -> RunWaiting:
    assert isinstance(step, RunWaiting), step
    return step
