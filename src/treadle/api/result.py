"""The results of runs."""

from collections.abc import Iterable
from typing import Any, Generic

import msgspec
from msgspec import Struct
from typing_extensions import TypeVar

from treadle.domain.envelope import Event, Origin
from treadle.domain.errors import UsageError
from treadle.domain.events import HookBlocked, RunEnd, ToolCallBlocked, ToolCallError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.runs import Metrics, OutcomeKind, Status
from treadle.tools import pydantic

Output = TypeVar("Output", default=Any)
"""The type of the answer."""


class RefusedCall(Struct, frozen=True):
    """A tool call that did not run."""

    call_id: str
    tool: str
    reason: str
    """What the model was told."""


RefusedCalls = tuple[tuple[RefusedCall, ...], tuple[RefusedCall, ...]]
"""The denied calls, and the blocked ones."""


class Result(Struct, Generic[Output], frozen=True):
    """The result of a run.

    For example:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        result = treadle.Engine("sqlite:///helper.db").run_sync(agent, "Hello.")
        print(result.outcome, result.text, result.metrics.cost)
    """

    run_id: RunId
    session_id: SessionId
    status: Status
    outcome: OutcomeKind
    text: str
    metrics: Metrics
    output: Output | None = None
    """The validated value, if an `output` was requested and the run completed."""
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

    @property
    def silent(self) -> bool:
        return self.outcome == "silent"


def parse_output(text: str, output: Any) -> Any:
    """Return the answer decoded as `output`, or None if no type is given. Raise UsageError if it does not match."""
    if output is None:
        return None
    try:
        return (
            output.model_validate_json(text)
            if pydantic.is_model(output)
            else msgspec.json.decode(text, type=output)
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"The answer cannot be read as {output}: {error}") from None


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
    """Return the result of a run that has ended, with its answer decoded as `output`."""
    return Result(
        origin.run_id,
        origin.session_id,
        end.status,
        end.outcome,
        end.text,
        end.metrics,
        parse_output(end.text, output) if end.outcome == "completed" else None,
        end.reason,
        end.next,
        end.stopped,
        end.unverified_claim,
        end.score,
        end.score_reasons,
        end.diagnosis,
        denied,
        blocked,
    )
