"""A run that goes on from a step of another one."""

from typing import Literal

from msgspec import Struct

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.events.guards import RecoveryStage
from treadle.domain.ids import RunId

CallEnding = Literal["ok", "failed", "refused", "denied"]
"""How a call did: refused by a guard or a hook, denied by a person or a rule."""


class ReusedCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """A call of the steps before, and what came of it. It is not made again."""

    call_id: str
    name: str
    key: str
    """The tool and its arguments: what makes two calls the same."""
    ended: CallEnding = "ok"
    told: str = ""
    """A digest of its result."""
    writes: bool = False
    polls: bool = False
    after: int = 0
    """How many calls of its turn had ended before it."""


class Counters(Struct, frozen=True, omit_defaults=True):
    """What the guards had counted by then."""

    answer: str = ""
    """The answer so far, joined over continuations."""
    continuations: int = 0
    empty_turns: int = 0
    rejected_outputs: int = 0
    claims: int = 0
    claim: str = ""
    """What the answer claims and no call has done."""
    quiet_steps: int = 0
    stage: RecoveryStage | None = None
    refused_tool: str | None = None
    report_due: bool = False
    detected_at: int = 0


class Measured(Struct, frozen=True, omit_defaults=True):
    """What a provider has said about the size of the conversation."""

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
    """What that run was asked."""
    tasks: tuple[int, ...] = ()
    """The messages that say so: they stay whatever is folded away."""
    calls: tuple[tuple[ReusedCall, ...], ...] = ()
    """Of each turn of the model, in order."""
    counters: Counters = Counters()
    measured: Measured | None = None
    route: str = ""
    """The name by which its model was found; empty: it is looked for anew."""
    plain: bool = False
    """No reasoning is sent back: the provider has refused that."""
    recalled: str = ""
    """The memories in its system prompt."""
    notes: str = ""
    """Of its workspace, in its system prompt."""
    workspace: str = ""
    """Whose they are."""
