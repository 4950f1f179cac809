"""The concurrency limit of an agent: how many of its runs workers may own at the same time."""

from collections.abc import Sequence

from treadle.domain.envelope import Draft
from treadle.domain.events import RunQueued
from treadle.domain.ids import RunId


def read_concurrency_limit(opening: Sequence[Draft]) -> int | None:
    """Return the concurrency limit of a run that starts with these events, or None for no limit."""
    for draft in opening:
        if isinstance(draft.data, RunQueued):
            return draft.data.agent.concurrency
    return None


def describe_full_agent(run_id: RunId, taken: int) -> str:
    return (
        f"{run_id} waits for other runs of its agent: {taken} runs are in progress, which is the most that the "
        "agent's `concurrency` allows."
    )
