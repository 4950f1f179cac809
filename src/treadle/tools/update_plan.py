"""`update_plan`: the model shows the user its plan for a task of several steps. Surfaces show the latest plan."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from treadle.tools.function import tool

MAX_ENTRIES = 100


class PlanEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Step."""

    content: Annotated[str, Meta(min_length=1, max_length=1000)]
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


@tool(effect="none")
def update_plan(
    entries: Annotated[tuple[PlanEntry, ...], Meta(max_length=MAX_ENTRIES)], for_approval: bool = False
) -> str:
    """Show the user your plan.

    Args:
        entries: Steps.
        for_approval: Plan mode only.
    """
    done = sum(entry.status == "completed" for entry in entries)
    return f"The plan is shown: {done} of {len(entries)} steps are completed."
