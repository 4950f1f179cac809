"""The event of a run that continues from a step of another run."""

from typing import Literal

from msgspec import Struct

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.events.guards import RecoveryStage
from treadle.domain.ids import RunId

CallEnding = Literal["ok", "failed", "refused", "denied"]
"""How a call ended. refused: by a guard or a hook. denied: by a reviewer or a rule."""


class ReusedCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """A call of an earlier step, with its outcome. It is not repeated."""

    call_id: str
    name: str
    key: str
    """The tool and its arguments. Calls with the same key are the same call."""
    ended: CallEnding = "ok"
    told: str = ""
    """A digest of its result."""
    untimed: str = ""
    """For a success: a digest of its result without times."""
    writes: bool = False
    polls: bool = False
    after: int = 0
    """Number of calls of its turn that had ended before it."""


class Counters(Struct, frozen=True, omit_defaults=True):
    """The counters of the guards at that step."""

    answer: str = ""
    """The answer so far, joined over continuations."""
    continuations: int = 0
    empty_turns: int = 0
    rejected_outputs: int = 0
    claims: int = 0
    claim: str = ""
    """An action that the answer claims and no call has done."""
    quiet_steps: int = 0
    stage: RecoveryStage | None = None
    refused_tool: str | None = None
    report_due: bool = False
    detected_at: int = 0


class Measured(Struct, frozen=True, omit_defaults=True):
    """The size of the conversation, as the provider reported it."""

    provider: str
    model: str
    unseen: int = 0
    counted: int = 0
    guessed: int = 0
    rate: float = 1.0
    reports: int = 0
    added_counted: float = 0.0
    added_guessed: float = 0.0


@durable("run_forked")
class RunForked(EventData, frozen=True):
    """The run starts where another run was before it called the model. The conversation is in `run_queued`; this
    event holds the other results of the earlier steps, none of which is repeated."""

    run_id: RunId
    step: int
    asked: str = ""
    """The message that the other run answered."""
    tasks: tuple[int, ...] = ()
    """The indexes of the messages with the task. Compactions keep them."""
    calls: tuple[tuple[ReusedCall, ...], ...] = ()
    """The calls of each turn, in order."""
    counters: Counters = Counters()
    measured: Measured | None = None
    route: str = ""
    """The name that its model was resolved from; empty: it is resolved anew."""
    plain: bool = False
    """No reasoning is sent back, because the provider rejected it."""
    unconstrained: bool = False
    """Requests do not carry the output schema, because the provider rejected it."""
    recalled: str = ""
    """The memories in its system prompt."""
    notes: str = ""
    """The notes of the workspace in its system prompt."""
    workspace: str = ""
    """The workspace that the notes belong to."""
