"""What a program learns about a run that it provides something to."""

from collections.abc import Mapping
from typing import Any, Generic

from msgspec import Struct
from typing_extensions import TypeVar

from treadle.domain.ids import RunId, SessionId
from treadle.domain.users import UserId

Deps = TypeVar("Deps", default=Any)
"""The type of what a program provides to a run."""


class RunContext(Struct, Generic[Deps], frozen=True, kw_only=True):
    """A run, for functions of a program: those of instructions, and `Engine(make_deps=…)`.

    For example:

        class Shop:
            name = "Weft & Warp"

        def introduce(context: treadle.RunContext[Shop]) -> str:
            return f"You sell looms for {context.deps.name} to {context.user}."

        agent = treadle.Agent("seller", model="provider/model-id", deps_type=Shop, instructions=introduce)
        treadle.Engine("sqlite:///shop.db").run_sync(agent, "Hello.", deps=Shop(), user="ada")
    """

    run_id: RunId
    session_id: SessionId | None
    """None: the run begins a new session."""
    agent: str
    user: UserId
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = {}
    deps: Deps = None  # pyright: ignore[reportAssignmentType] -- a run without deps has none
    """What the program provides to the run; None for `make_deps`, which is to make it."""
