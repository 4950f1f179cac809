"""The plan of an agent in short: how much of it is done, what is in progress, and which steps fit a small place."""

from collections.abc import Sequence

from msgspec import Struct

from treadle.domain.transcript import PlanStatus, PlanStep

PLAN_MARKS: dict[PlanStatus, str] = {"completed": "✓", "in_progress": "▸", "pending": "○"}


class PlanExtract(Struct, frozen=True):
    """The steps of a plan that are shown, and how many are left out before and after them."""

    steps: tuple[PlanStep, ...]
    before: int = 0
    after: int = 0


def is_finished(steps: Sequence[PlanStep]) -> bool:
    """Return whether every step is completed."""
    return all(step.status == "completed" for step in steps)


def summarize_plan(steps: Sequence[PlanStep]) -> str:
    """Return one line: how many steps are done, and the first one in progress."""
    done = sum(step.status == "completed" for step in steps)
    now = next((step.text for step in steps if step.status == "in_progress"), "")
    return f"{done} of {len(steps)} done{f' · {now}' if now else ''}"


def extract_plan(steps: Sequence[PlanStep], most: int) -> PlanExtract:
    """Return the steps around the first one that is not completed, at most so many."""
    if len(steps) <= most:
        return PlanExtract(tuple(steps))
    current = next((at for at, step in enumerate(steps) if step.status != "completed"), len(steps) - 1)
    first = max(0, min(current - 1, len(steps) - most))
    return PlanExtract(tuple(steps[first : first + most]), first, len(steps) - first - most)
