"""Whose child a run is, and what it was given: never more than its parent has."""

from typing import Literal

from msgspec import Struct

from treadle.domain.ids import RunId
from treadle.domain.permissions import ApprovalRules
from treadle.domain.quotas import Quotas

Role = Literal["spawn", "send", "invoke", "quality", "errors"]
"""Why there is a child: one of the tools that delegate, or the run itself wants its end looked at."""
DELEGATION_TOOLS: dict[Role, str] = {"spawn": "agent_spawn", "send": "agent_send", "invoke": "invoke_agent"}
"""The tool that a child was asked for with."""
EVALUATOR_ROLES = ("quality", "errors")
"""Those that look at the end of a run. Nobody looks at theirs, and they have no tools."""


class TreeCeiling(Struct, frozen=True, omit_defaults=True):
    """What a run and all runs under it may use together. None: as much as they want."""

    run_id: RunId
    cost: float | None = None
    """Dollars."""
    steps: int | None = None
    runs: int | None = None
    """Under it."""


class Ancestor(Struct, frozen=True):
    """A run above another, and the call of it that the other is under."""

    run_id: RunId
    call_id: str


class Lineage(Struct, frozen=True, omit_defaults=True):
    root: RunId
    depth: int
    """1 for a child of the root."""
    call_id: str
    """The call of its parent that it answers; for one that judges, a name that no call has."""
    role: Role
    agents: tuple[str, ...]
    """The names of those above it, the root's first. It has the secrets that all of them were granted."""
    tools: tuple[str, ...] = ()
    """Those that its parent may call."""
    approvals: tuple[ApprovalRules, ...] = ()
    """The rules of those above it, which hold for it too."""
    ceilings: tuple[TreeCeiling, ...] = ()
    """Of those above it."""
    quotas: tuple[tuple[str, Quotas], ...] = ()
    """What the agents above it may use, by their names, where that has an end: it counts for them too."""
    steps_before: int = 0
    """Taken by the tree when it was begun, as far as its parent knew."""
    above: tuple[Ancestor, ...] = ()
    """The runs above it, the root first: they hear when it waits for a person, and when it goes on."""

    @property
    def judges(self) -> bool:
        return self.role in EVALUATOR_ROLES


class Order(Struct, frozen=True):
    """What a tool that delegates was asked for."""

    message: str
    agent: str | None = None
    """None: a copy of whoever asks."""
    instructions: str | None = None
    """What the copy is told to be; None: what the agent is."""
    tools: tuple[str, ...] | None = None
    """No others than these."""
    model: str | None = None
    """One that whoever asks, or that agent, may ask already."""
