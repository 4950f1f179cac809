"""The lineage of a child run, and what it was given: never more than its parent has."""

from typing import Literal

from msgspec import Struct

from treadle.domain.ids import RunId
from treadle.domain.permissions import ApprovalRules
from treadle.domain.quotas import Quotas

Role = Literal["spawn", "send", "invoke", "quality", "errors"]
"""The purpose of a child run: one of the delegating tools, or an evaluation."""
DELEGATION_TOOLS: dict[Role, str] = {"spawn": "agent_spawn", "send": "agent_send", "invoke": "invoke_agent"}
"""The tool that begins a child run with this role."""
EVALUATOR_ROLES = ("quality", "errors")
"""The roles that evaluate the end of a run. Evaluators are not evaluated and have no tools."""


class TreeCeiling(Struct, frozen=True, omit_defaults=True):
    """What a run and all its child runs may use together; None for no limit."""

    run_id: RunId
    cost: float | None = None
    """In dollars."""
    steps: int | None = None
    runs: int | None = None
    """Number of child runs."""


class Ancestor(Struct, frozen=True):
    """An ancestor of a run, and the call in it that leads to the run."""

    run_id: RunId
    call_id: str


class Lineage(Struct, frozen=True, omit_defaults=True):
    root: RunId
    depth: int
    """1 for a child of the root."""
    call_id: str
    """The call of its parent that it answers. For an evaluator, a name that no call has."""
    role: Role
    agents: tuple[str, ...]
    """The agents of its ancestors, the root's first. It has the secrets that all of them were granted."""
    tools: tuple[str, ...] | None = ()
    """The tools of its parent. None: its agent keeps its own tools, because its parent names the agent."""
    approvals: tuple[ApprovalRules, ...] = ()
    """The rules of its ancestors, which apply to it too."""
    ceilings: tuple[TreeCeiling, ...] = ()
    """The ceilings of its ancestors."""
    quotas: tuple[tuple[str, Quotas], ...] = ()
    """The quotas of its ancestors' agents, by name. It counts for them too."""
    steps_before: int = 0
    """Steps of the tree when it began, as far as its parent knew."""
    above: tuple[Ancestor, ...] = ()
    """Its ancestors, the root first. They are told when it waits for a reviewer, and when it resumes."""

    @property
    def judges(self) -> bool:
        return self.role in EVALUATOR_ROLES


class Order(Struct, frozen=True):
    """The arguments of a delegating tool."""

    message: str
    agent: str | None = None
    """None for a copy of the calling agent."""
    instructions: str | None = None
    """The persona of the copy; None for that of the agent."""
    tools: tuple[str, ...] | None = None
    """The only tools that it gets."""
    model: str | None = None
    """A model that the calling agent or that agent may already use."""
