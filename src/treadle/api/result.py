"""The results of runs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal

from msgspec import Struct
from typing_extensions import TypeVar

from treadle.domain.envelope import Event, Origin
from treadle.domain.errors import RunFailed
from treadle.domain.events import HookBlocked, RunEnd, ToolCallBlocked, ToolCallError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.runs import Metrics, OutcomeKind, Status
from treadle.operations.approvals import ApprovalView as ApprovalView
from treadle.operations.runs import OpenCall as OpenCall
from treadle.tools.answer_types import parse_answer

Output = TypeVar("Output", default=Any)
"""The type of the answer of an agent."""
Answer = TypeVar("Answer", default=Output)
"""The type of the answer of a run: that of its agent, unless the run has an `output` of its own."""


class RefusedCall(Struct, frozen=True):
    """A tool call that did not run.

    For example:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        result = treadle.Engine("sqlite:///helper.db").run_sync(agent, "Hello.")
        print(result.text)
        for call in (*result.denied, *result.blocked):
            print(call.tool, "did not run:", call.reason)
    """

    call_id: str
    tool: str
    reason: str
    """What the model was told."""


class OpenQuestion(Struct, frozen=True):
    """A question of an agent that has no answer yet. `Engine.answer` answers it, or `on_clarify=` of a run.

    For example:

        def answer(question: treadle.OpenQuestion) -> str:
            return question.options[0] if question.options else "Decide yourself."

        agent = treadle.Agent(name="helper", model="provider/model-id", tools=["clarify"])
        result = treadle.Engine("sqlite:///helper.db").run_sync(agent, "Hello.", on_clarify=answer)
        print(result.text)
    """

    run_id: RunId
    """The run that asks: the run itself, or one below it."""
    call_id: str
    question: str
    options: tuple[str, ...] = ()


Until = Literal["asked", "ended"]
"""What is waited for: that the run has ended or waits for people, or that it has ended."""
RefusedCalls = tuple[tuple[RefusedCall, ...], tuple[RefusedCall, ...]]
"""The denied calls, and the blocked ones."""


class Result(Struct, Generic[Output], frozen=True):
    """The result of a run: how it ended, or what it waits for if its `status` is `waiting`.

    For example:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        result = treadle.Engine("sqlite:///helper.db").run_sync(agent, "Hello.")
        print(result.outcome, result.text, result.metrics.cost)
    """

    run_id: RunId
    session_id: SessionId
    status: Status
    outcome: OutcomeKind | None
    """None while the run waits."""
    text: str
    metrics: Metrics
    output: Output | None = None
    """The answer of a completed run: the validated value if an `output` was requested, else its text."""
    reason: str = ""
    next: str = ""
    stopped: tuple[str, ...] = ()
    unverified_claim: str = ""
    """What the answer claims to have done without a supporting call; empty if nothing."""
    score: float | None = None
    """From 0 to 1, if the agent has a quality checker."""
    score_reasons: str = ""
    diagnosis: str = ""
    """Why the run failed, if the agent has an error analyzer."""
    denied: tuple[RefusedCall, ...] = ()
    """Calls that a rule or a reviewer denied."""
    blocked: tuple[RefusedCall, ...] = ()
    """Calls that a guard or a hook blocked."""
    approvals: tuple[ApprovalView, ...] = ()
    """What it waits for: calls that someone has to decide, with `Engine.decide`."""
    questions: tuple[OpenQuestion, ...] = ()
    """What it waits for: questions to answer, with `Engine.answer`."""
    client_calls: tuple[OpenCall, ...] = ()
    """What it waits for: results of tools that the program brought. `Engine.deliver_result` delivers them."""

    @property
    def silent(self) -> bool:
        return self.outcome == "silent"

    @property
    def usage(self) -> Metrics:
        """Another name of `metrics`."""
        return self.metrics

    def raise_for_status(self) -> None:
        """Raise RunFailed unless the run has completed or waits for people."""
        if self.status not in ("completed", "waiting"):
            reason = self.reason or f"It ended as `{self.outcome}`."
            raise RunFailed(f"Run {self.run_id} is {self.status}. {reason} {self.next}".rstrip())

    if not TYPE_CHECKING:  # type checkers know what is there

        def __getattr__(self, name):
            from treadle.api.attribute_hints import refuse_name

            refuse_name(self, name)


def list_refused_calls(events: Iterable[Event]) -> RefusedCalls:
    """Return the denied and the blocked calls among the events of a run."""
    denied: list[RefusedCall] = []
    blocked: list[RefusedCall] = []
    for event in events:
        match event.data:
            case ToolCallError(call_id=call_id, name=name, kind="denied", content=content):
                denied.append(RefusedCall(call_id, name, content))
            case ToolCallBlocked(call_id=call_id, name=name, content=content):
                blocked.append(RefusedCall(call_id, name, content))
            case HookBlocked(call_id=call_id, name=name, content=content, stage="before"):
                blocked.append(RefusedCall(call_id, name, content))
            case _:
                pass
    return tuple(denied), tuple(blocked)


def make_result(
    origin: Origin, end: RunEnd, output: Any, denied: tuple[RefusedCall, ...], blocked: tuple[RefusedCall, ...]
) -> Result[Any]:
    """Return the result of a run that has ended, with its answer decoded as `output`. An answer that the type
    refuses makes it a failed one."""
    status, outcome, reason, answer = end.status, end.outcome, end.reason, None
    if outcome == "completed" and output is None:
        answer = end.text
    elif outcome == "completed":
        try:
            answer = parse_answer(end.text, output)
        except Exception as error:  # validators are third-party code
            status, outcome, reason = "failed", "failed", f"The answer cannot be read as {output}: {error}"
    return Result(
        run_id=origin.run_id,
        session_id=origin.session_id,
        status=status,
        outcome=outcome,
        text=end.text,
        metrics=end.metrics,
        output=answer,
        reason=reason,
        next=end.next,
        stopped=end.stopped,
        unverified_claim=end.unverified_claim,
        score=end.score,
        score_reasons=end.score_reasons,
        diagnosis=end.diagnosis,
        denied=denied,
        blocked=blocked,
    )


def make_waiting_result(
    origin: Origin,
    approvals: Iterable[ApprovalView],
    questions: Iterable[OpenQuestion],
    client_calls: Iterable[OpenCall] = (),
) -> Result[Any]:
    """Return the result of a run that waits for people, or for results of its client."""
    return Result(
        run_id=origin.run_id,
        session_id=origin.session_id,
        status="waiting",
        outcome=None,
        text="",
        metrics=Metrics(),
        approvals=tuple(approvals),
        questions=tuple(questions),
        client_calls=tuple(client_calls),
    )
